"""`python -m slime_patch.run SCRIPT ...`: a script of slime, unedited, with the hooks in its way.

slime's scripts import what they need from slime's modules when they run, so wrapping those functions
first puts the hooks where `slime_patch apply` would write them. The script runs as __main__, as if
Python had been given it.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_eval.errors import ConfigError
from slime_patch import hooks

USAGE = """usage: python -m slime_patch.run SCRIPT [slime's arguments]

Run one of slime's scripts, unedited, with live eval: weights of every sync that is due are evaluated on
engines of their own while training goes on. Without --eval-mode the script runs as by `python SCRIPT`.

SCRIPT is a path, or a script's name beside the slime package: train.py, train_async.py. Its own --help, with
live eval's arguments: python -m slime_patch.run train.py --help

example:
  python -m slime_patch.run train_async.py ...slime's arguments... \\
      --eval-mode latest-synced --eval-num-gpus 1 --eval-on-update finish --eval-interval 5
"""


class _Seen:
    """What passed by on the way through slime's functions."""

    args: Any = None
    pgs: Any = None


def main(arguments: list[str]) -> int:
    """Run the script with the rest of the command line; its own exit status comes through SystemExit."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    try:
        script = find_script(arguments[0])
    except ConfigError as error:
        print(f"slime_patch.run: error: {error}", file=sys.stderr)
        return 2
    sys.argv = [str(script), *arguments[1:]]
    sys.path.insert(0, str(script.parent))
    seen = _Seen()
    wrap_slime(seen)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:
        if seen.args is not None:
            hooks.abandon(seen.args)
        raise
    if seen.args is not None:
        hooks.finish(seen.args)
    return 0


def find_script(name: str) -> Path:
    """The script as given, else beside the slime package; ConfigError if it is in neither place."""
    given = Path(name)
    places = [given]
    spec = importlib.util.find_spec("slime")
    if spec is not None and spec.submodule_search_locations:
        places.append(Path(next(iter(spec.submodule_search_locations))).parent / name)
    for place in places:
        if place.is_file():
            return place.absolute()
    raise ConfigError(
        f"{name} is neither in {Path.cwd()} nor beside the slime package"
        + ("" if spec else ", which cannot be imported: run this where slime is installed or on PYTHONPATH")
    )


def wrap_slime(seen: _Seen) -> None:
    """Put the hooks into slime's modules, for this process."""
    from slime.observability import logging_utils  # pyright: ignore[reportMissingImports]
    from slime.ray import placement_group  # pyright: ignore[reportMissingImports]
    from slime.utils import arguments  # pyright: ignore[reportMissingImports]

    arguments.parse_args = _parsing(arguments.parse_args, seen)
    placement_group.create_placement_groups = _placing(placement_group.create_placement_groups, seen)
    placement_group.create_rollout_manager = _managing(placement_group.create_rollout_manager, seen)
    placement_group.create_training_models = _modelling(placement_group.create_training_models)
    logging_utils.finish_tracking = _finishing(logging_utils.finish_tracking)


def _parsing(parse_args: Callable[..., Any], seen: _Seen) -> Callable[..., Any]:
    def parse(add_custom_arguments: Callable[[Any], Any] | None = None) -> Any:
        def add(parser: Any) -> Any:
            parser = hooks.add_arguments(parser)
            return add_custom_arguments(parser) if add_custom_arguments is not None else parser

        args = parse_args(add_custom_arguments=add)
        hooks.configure(args)
        seen.args = args
        return args

    return parse


def _placing(create: Callable[..., Any], seen: _Seen) -> Callable[..., Any]:
    def create_placement_groups(*rest: Any, **named: Any) -> Any:
        seen.pgs = create(*rest, **named)
        return seen.pgs

    return create_placement_groups


def _managing(create: Callable[..., Any], seen: _Seen) -> Callable[..., Any]:
    def create_rollout_manager(args: Any, pg: Any) -> Any:
        created = create(args, pg)
        hooks.start(args, seen.pgs if seen.pgs is not None else pg, created[0])
        return created

    return create_rollout_manager


def _modelling(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_training_models(
        args: Any, pgs: Any, rollout_manager: Any, actor_cls: type | None = None, **named: Any
    ) -> Any:
        ours = hooks.actor_class(args)
        if ours is not None:
            if actor_cls not in (None, ours):
                sys.exit(
                    f"{sys.argv[0]}: error: the script brings a training actor of its own "
                    f"({actor_cls.__name__}), "
                    "which cannot be listened to: let it be a subclass of slime_patch.train_actor."
                    "LiveEvalTrainActor, or use --eval-mode checkpoint"
                )
            actor_cls = ours
        models = create(args, pgs, rollout_manager, actor_cls=actor_cls, **named)
        hooks.attach(args, models[0])
        return models

    return create_training_models


def _finishing(finish_tracking: Callable[..., Any]) -> Callable[..., Any]:
    def finish(args: Any) -> Any:
        # The trainer's W&B run is open until here, and the last results belong into it too.
        hooks.finish(args)
        return finish_tracking(args)

    return finish


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
