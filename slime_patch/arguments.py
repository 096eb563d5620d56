"""live-eval's flags on slime's command line.

Owns their names, defaults and help, from which the table in docs/slime.md is made, and the check for
flags that nobody registered: slime parses with parse_known_args and would ignore them in silence.
What values mean, and whether they fit together, is for `settings`.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from live_eval.errors import ConfigError

MODES = ("inline", "latest-synced", "checkpoint")
MODE_FLAG = "--eval-mode"
ENGINE_PREFIX = "--eval-sglang-"
GUARDED_PREFIX = "--eval-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One flag; `options` are argparse's."""

    name: str
    group: str
    help: str
    default: Any = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        """Attribute of the parsed arguments."""
        return self.name.removeprefix("--").replace("-", "_")


def _flag(group: str, name: str, help_text: str, *, default: Any = None, **options: Any) -> Flag:
    return Flag(name=name, group=group, help=help_text, default=default, options=options)


WHAT, ENGINES, STORE, RUN = "what is evaluated", "eval engines", "policy versions", "the run"

FLAGS: tuple[Flag, ...] = (
    _flag(
        WHAT,
        MODE_FLAG,
        "How to evaluate. inline: as slime does. latest-synced: in the background, on eval engines of "
        "its own, "
        "the newest weights that the trainer has sent to the rollout engines. checkpoint: in the background, "
        "the checkpoints of --eval-checkpoint and --eval-checkpoint-watch only.",
        default="inline",
        choices=MODES,
    ),
    _flag(
        WHAT,
        "--eval-on-update",
        "What happens when newer weights that are due arrive during an eval. finish: it completes, then the "
        "newest are evaluated. cancel: it is aborted. queue: all that are due are evaluated, in order.",
        default="finish",
        choices=("finish", "cancel", "queue"),
    ),
    _flag(
        WHAT,
        "--eval-checkpoint",
        "Hugging Face checkpoint directories (safetensors) to evaluate while training runs, in this order.",
        type=str,
        nargs="+",
    ),
    _flag(
        WHAT,
        "--eval-checkpoint-watch",
        "Folder of which each whole Hugging Face checkpoint is evaluated as it appears, once, in order of "
        "number; several may be given. Megatron's own checkpoints are named in the service's log with the "
        "command that converts them.",
        type=str,
        nargs="+",
    ),
    _flag(
        WHAT,
        "--eval-snapshot",
        "Which weight updates are kept as policy versions. due: those that --eval-interval asks for, the "
        "first "
        "and the last one. all: each one, at the cost of one copy of the weights per update.",
        default="due",
        choices=("due", "all"),
    ),
    _flag(
        WHAT,
        "--eval-runner",
        "Who asks the engines and gives rewards. live-eval: its own code, sample by sample. slime: slime's "
        "eval function (--eval-function-path, --custom-generate-function-path, ...) and log function, in a "
        "process of their own.",
        default="live-eval",
        choices=("live-eval", "slime"),
    ),
    _flag(
        WHAT,
        "--eval-queue-size",
        "Versions that may wait under --eval-on-update queue; one more and the oldest waiting one is "
        "dropped.",
        default=16,
        type=int,
    ),
    _flag(
        WHAT,
        "--eval-max-consecutive-cancels",
        "After so many evals in a row were cancelled for newer weights the next one completes.",
        default=3,
        type=int,
    ),
    _flag(
        ENGINES,
        "--eval-num-gpus",
        "GPUs of the eval engines, all on one node, beside those of the trainer and the rollout engines.",
        type=int,
    ),
    _flag(
        ENGINES,
        "--eval-num-gpus-per-engine",
        "Tensor parallel size of one eval engine; --eval-num-gpus must be a multiple of it.",
        default=1,
        type=int,
    ),
    _flag(
        ENGINES,
        "--eval-engine-addrs",
        "Addresses (host:port) of running SGLang servers to evaluate on, instead of --eval-num-gpus. "
        "They must "
        "run on one node of the Ray cluster and serve --hf-checkpoint's model.",
        type=str,
        nargs="+",
    ),
    _flag(
        ENGINES,
        "--eval-concurrency",
        "Samples in flight at one eval engine.",
        default=64,
        type=int,
    ),
    _flag(
        ENGINES,
        "--eval-engines-per-eval",
        "How many of the eval engines work on one checkpoint: N, so that several are evaluated side by side; "
        "fair, those that are free, divided among the checkpoints that wait; all. A policy version has all.",
        default="all",
        type=str,
        metavar="{N,fair,all}",
    ),
    _flag(
        ENGINES,
        "--eval-engine-timeout-s",
        "Longest wait for an eval engine that can serve: at the start, and before an eval if all are down.",
        default=900.0,
        type=float,
    ),
    _flag(
        STORE,
        "--eval-transport",
        "How weights reach the eval engines' node. ray, the default: the trainer copies them to host memory, "
        "and beside the training the receiver reads them there, or gets them as Ray objects where it cannot. "
        "disk: copied as well, then handed over as files in --eval-transport-dir; where slime's own updates "
        "are files, links to these, and the only way. nccl: the receiver is one more member of the group in "
        "which slime broadcasts; no copy, but a receiver that dies during an update ends the training.",
        choices=("ray", "nccl", "disk"),
    ),
    _flag(
        STORE,
        "--eval-transport-dir",
        "Directory of --eval-transport disk, on a file system that the trainers and the eval engines' node "
        "share. Default: transfer in the output directory.",
        type=str,
    ),
    _flag(
        STORE,
        "--eval-store-dir",
        "Local directory, on the eval engines' node, for policy versions. Default: in the output directory.",
        type=str,
    ),
    _flag(
        STORE,
        "--eval-store-max-gb",
        "Bound on all policy versions together, in GB (1e9 bytes). Default: room for four versions "
        "more than are kept, at least 4 GB.",
        type=float,
    ),
    _flag(
        STORE,
        "--eval-keep-versions",
        "Of the policy versions that nobody needs any more the newest so many are kept.",
        default=2,
        type=int,
    ),
    _flag(
        STORE,
        "--eval-sync-deadline-s",
        "Longest time that a weight update waits for the one before it to be handed over; then the eval of "
        "this version is given up and training goes on.",
        default=5.0,
        type=float,
    ),
    _flag(
        RUN,
        "--eval-timeout-s",
        "Longest time of one eval of one dataset.",
        default=1800.0,
        type=float,
    ),
    _flag(
        RUN,
        "--eval-drain-timeout-s",
        "Longest time, after the training loop has ended, for the evals that are left.",
        default=3600.0,
        type=float,
    ),
    _flag(
        RUN,
        "--eval-on-failure",
        "What a failed or timed out eval does. record: it is recorded and logged. alert: also a line in the "
        "driver's log and a W&B alert. stop: also an error in the driver, before its next training step.",
        default="record",
        choices=("record", "alert", "stop"),
    ),
    _flag(
        RUN,
        "--eval-output-dir",
        "Directory, on the eval engines' node, for results, samples, logs and policy versions. A job that is "
        "given the directory of an earlier one continues its numbering. Default: live_eval in --save, else "
        "a new directory in ./live_eval_runs.",
        type=str,
    ),
    _flag(
        RUN,
        "--eval-wandb-run",
        "Where results go with --use-wandb, beside slime's eval/* keys in the trainer's run. own: a run of "
        "its own in the trainer's project and group. attach: the trainer's run, written by the driver.",
        default="own",
        choices=("own", "attach"),
    ),
    _flag(
        RUN,
        "--eval-wandb-samples",
        "Samples of each scored eval, prompts and answers, in a W&B table of live-eval's own run. 0: none "
        "leave the machine.",
        default=0,
        type=int,
    ),
    _flag(
        RUN,
        "--eval-http-host",
        "Where the HTTP API and the page listen, on the eval engines' node; 127.0.0.1 where only a port is "
        "given. Any other address needs a token in the driver's environment, LIVE_EVAL_HTTP_TOKEN.",
        type=str,
    ),
    _flag(
        RUN,
        "--eval-http-port",
        "Port of the HTTP API and the page; 0: any that is free. Without host and port there is neither. The "
        "output directory's http.url says where they are.",
        type=int,
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFlag:
    """A flag of the SGLang server, as --eval-sglang-<name> takes it; values stay text."""

    name: str
    """Without leading dashes: `mem-fraction-static`."""
    nargs: int | str | None = None


class _Collect(argparse.Action):
    """Appends the server's flag and its values, unconverted, to one list."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert option_string is not None
        given = [] if values is None else [values] if isinstance(values, str) else list(values)
        tokens = [option_string.replace(ENGINE_PREFIX, "--", 1), *given]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or []), *tokens])


ENGINE_DEST = "eval_sglang"


def add_arguments(
    parser: argparse.ArgumentParser, engine_flags: Iterable[EngineFlag] = ()
) -> argparse.ArgumentParser:
    """Register all flags, once; `engine_flags` are those of the SGLang that is installed."""
    if MODE_FLAG in parser._option_string_actions:
        return parser
    groups = {name: parser.add_argument_group(f"live eval: {name}") for name in (WHAT, ENGINES, STORE, RUN)}
    for flag in FLAGS:
        groups[flag.group].add_argument(flag.name, default=flag.default, help=flag.help, **flag.options)
    for flag in engine_flags:
        parser.add_argument(
            ENGINE_PREFIX + flag.name,
            action=_Collect,
            nargs=flag.nargs,
            dest=ENGINE_DEST,
            default=None,
            help=f"--{flag.name} of the eval engines' SGLang servers; default: as the rollout engines.",
        )
    return parser


NOT_FOR_ENGINES = {
    "model-path",
    "model",
    "tp-size",
    "tensor-parallel-size",
    "host",
    "port",
    "nnodes",
    "node-rank",
    "dist-init-addr",
    "base-gpu-id",
    "gpu-id-step",
}
"""Set by live-eval for each server."""


def sglang_flags() -> list[EngineFlag]:
    """The flags of the installed SGLang server."""
    from sglang.srt.server_args import ServerArgs  # pyright: ignore[reportMissingImports]

    parser = argparse.ArgumentParser(add_help=False)
    ServerArgs.add_cli_args(parser)
    return [
        EngineFlag(name=option.removeprefix("--"), nargs=action.nargs)
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option.removeprefix("--") not in NOT_FOR_ENGINES
    ]


def given_flags(argv: Sequence[str]) -> list[str]:
    """Names of the --eval-* flags on a command line, in order."""
    return [
        token.split("=", 1)[0]
        for token in argv
        if token.startswith(GUARDED_PREFIX) and token != GUARDED_PREFIX
    ]


def check_flags(argv: Sequence[str], known: Iterable[str]) -> None:
    """ConfigError for the first --eval-* flag that no parser knows."""
    known = list(known)
    for name in given_flags(argv):
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"{name} is no flag of slime or live-eval{hint}")


def our_dests() -> list[str]:
    """Attributes that the flags add to slime's arguments."""
    return [*(flag.dest for flag in FLAGS), ENGINE_DEST]


def flag_table() -> str:
    """All flags as a Markdown table."""
    lines = ["| flag | default | what it does |", "| --- | --- | --- |"]
    for flag in FLAGS:
        choices = flag.options.get("choices")
        name = f"`{flag.name}" + (f" {{{','.join(choices)}}}" if choices else "") + "`"
        name = name.replace("|", "\\|")
        default = "" if flag.default is None else f"`{flag.default}`"
        lines.append(f"| {name} | {default} | {flag.help} |")
    help_text = "Any flag of the SGLang server, for the eval engines; default: as the rollout engines."
    lines.append(f"| `{ENGINE_PREFIX}*` |  | {help_text} |")
    return "\n".join(lines) + "\n"
