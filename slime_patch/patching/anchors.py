"""What is inserted where in slime, and what else of slime live-eval needs: declared, not done.

A place is a statement of a named function, found by its structure: line numbers, comments, blank lines and
formatting do not matter, the names and the calls do. What the inserted lines call is slime_patch.hooks.
Without --eval-mode they do nothing, and where live-eval is not installed they do not miss it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import libcst.matchers as m

ARGUMENTS = "slime/utils/arguments.py"
PLACEMENT = "slime/ray/placement_group.py"
ACTOR_GROUP = "slime/ray/actor_group.py"
ACTOR = "slime/backends/megatron_utils/actor.py"
UPDATERS = "slime/backends/megatron_utils/update_weight"
SCRIPTS = ("train.py", "train_async.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """One statement of one function."""

    function: str
    """Dotted: an inner function after the outer one."""
    statement: m.BaseMatcherNode
    near: m.BaseMatcherNode
    """An expression by which a statement that was edited is still recognised, to name its line."""
    words: str
    """The statement as slime writes it, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """Lines of their own before or after the anchor, at its indentation, between markers."""

    name: str
    file: str
    where: Literal["before", "after"]
    anchor: Anchor
    body: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """`keyword=live_eval_KEYWORD` behind the last argument of the call that is the anchor's value."""

    name: str
    file: str
    anchor: Anchor
    keyword: str


Insertion = Lines | Argument


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """A function or method of slime that the hooks lean on and that nothing is inserted into."""

    file: str
    function: str
    parameters: tuple[str, ...] = ()
    """Parameters it must have, among others."""


def _names(*names: str) -> list[m.Arg]:
    return [m.Arg(value=m.Name(name), keyword=None, star="") for name in names]


def _call(function: str, *names: str) -> m.Call:
    return m.Call(func=m.Name(function), args=_names(*names))


def _line(statement: m.BaseSmallStatementMatchType) -> m.SimpleStatementLine:
    return m.SimpleStatementLine(body=[statement])


def _pair(first: str, second: str) -> list[m.AssignTarget]:
    elements = [m.Element(value=m.Name(first)), m.Element(value=m.Name(second))]
    return [m.AssignTarget(target=m.Tuple(elements=elements))]


ADDS_ARGUMENTS = Anchor(
    function="get_slime_extra_args_provider.add_slime_arguments",
    statement=m.If(
        test=m.Comparison(
            left=m.Name("add_custom_arguments"),
            comparisons=[m.ComparisonTarget(operator=m.IsNot(), comparator=m.Name("None"))],
        ),
        body=m.IndentedBlock(
            body=[
                _line(
                    m.Assign(
                        targets=[m.AssignTarget(target=m.Name("parser"))],
                        value=_call("add_custom_arguments", "parser"),
                    )
                )
            ]
        ),
        orelse=None,
    ),
    near=m.Call(func=m.Name("add_custom_arguments")),
    words="if add_custom_arguments is not None: parser = add_custom_arguments(parser)",
)

RETURNS_ARGUMENTS = Anchor(
    function="parse_args",
    statement=_line(m.Return(value=m.Name("args"))),
    near=m.Return(),
    words="return args",
)

MAKES_ROLLOUT_MANAGER = Anchor(
    function="train",
    statement=_line(
        m.Assign(
            targets=_pair("rollout_manager", "num_rollout_per_epoch"),
            value=m.Call(
                func=m.Name("create_rollout_manager"),
                args=[*_names("args"), m.Arg(value=m.Subscript(value=m.Name("pgs")), keyword=None, star="")],
            ),
        )
    ),
    near=m.Call(func=m.Name("create_rollout_manager")),
    words='rollout_manager, num_rollout_per_epoch = create_rollout_manager(args, pgs["rollout"])',
)

MAKES_MODELS = Anchor(
    function="train",
    statement=_line(
        m.Assign(
            targets=_pair("actor_model", "critic_model"),
            value=_call("create_training_models", "args", "pgs", "rollout_manager"),
        )
    ),
    near=m.Call(func=m.Name("create_training_models")),
    words="actor_model, critic_model = create_training_models(args, pgs, rollout_manager)",
)

FINISHES_TRACKING = Anchor(
    function="train",
    statement=_line(m.Expr(value=_call("finish_tracking", "args"))),
    near=m.Call(func=m.Name("finish_tracking")),
    words="finish_tracking(args)",
)

REGISTER = """\
try:
    from slime_patch import hooks as live_eval
except ImportError:  # not installed: slime as it is, but never a job whose eval flags are ignored
    import sys

    if any(word.startswith("--eval-mode") for word in sys.argv):
        raise
else:
    parser = live_eval.add_arguments(parser)
"""

CONFIGURE = """\
if hasattr(args, "eval_mode"):
    from slime_patch import hooks as live_eval

    live_eval.configure(args)
"""

START = """\
live_eval, live_eval_actor_cls = None, None
if getattr(args, "eval_mode", "inline") != "inline":
    from slime_patch import hooks as live_eval

    live_eval.start(args, pgs, rollout_manager)
    live_eval_actor_cls = live_eval.actor_class(args)
"""

ATTACH = """\
if live_eval is not None:
    live_eval.attach(args, actor_model)
"""

FINISH = """\
if live_eval is not None:
    live_eval.finish(args)
"""


def _script(file: str) -> tuple[Insertion, ...]:
    return (
        Lines(name="start", file=file, where="after", anchor=MAKES_ROLLOUT_MANAGER, body=START),
        Argument(name="actor", file=file, anchor=MAKES_MODELS, keyword="actor_cls"),
        Lines(name="attach", file=file, where="after", anchor=MAKES_MODELS, body=ATTACH),
        Lines(name="finish", file=file, where="before", anchor=FINISHES_TRACKING, body=FINISH),
    )


INSERTIONS: tuple[Insertion, ...] = (
    Lines(name="register", file=ARGUMENTS, where="after", anchor=ADDS_ARGUMENTS, body=REGISTER),
    Lines(name="configure", file=ARGUMENTS, where="before", anchor=RETURNS_ARGUMENTS, body=CONFIGURE),
    *(insertion for script in SCRIPTS for insertion in _script(script)),
)
"""In the order in which they run; those of one function must be found in this order, in one block."""

NEEDS: tuple[Need, ...] = (
    Need(file=PLACEMENT, function="create_training_models", parameters=("args", "pgs", "actor_cls")),
    Need(file=ACTOR_GROUP, function="RayTrainGroup.async_train", parameters=("rollout_id",)),
    Need(file=ACTOR_GROUP, function="RayTrainGroup.update_weights"),
    Need(file=ACTOR, function="MegatronTrainRayActor.init"),
    Need(file=ACTOR, function="MegatronTrainRayActor.update_weights"),
    Need(
        file=f"{UPDATERS}/update_weight_from_distributed.py", function="UpdateWeightFromDistributed._on_chunk"
    ),
    Need(file=f"{UPDATERS}/update_weight_from_tensor.py", function="UpdateWeightFromTensor.update_weights"),
)

FILES: tuple[str, ...] = tuple(dict.fromkeys(insertion.file for insertion in INSERTIONS))
"""The files of slime that are edited."""
