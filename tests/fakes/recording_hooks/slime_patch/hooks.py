"""The hooks that inserted lines call, as recorders."""

from slime.backends.megatron_utils.actor import MegatronTrainRayActor
from slime.calls import record


class TappedActor(MegatronTrainRayActor):
    pass


def add_arguments(parser):
    parser.add_argument("--eval-mode", default="inline", choices=("inline", "latest-synced", "checkpoint"))
    return parser


def configure(args):
    if args.eval_mode == "inline":
        del args.eval_mode
        return
    record("hooks.configure", mode=args.eval_mode)


def start(args, pgs, rollout_manager):
    record("hooks.start", pgs=pgs, manager=type(rollout_manager).__name__)


def actor_class(args):
    return TappedActor if args.eval_mode == "latest-synced" else None


def attach(args, actor_model):
    record("hooks.attach", model=type(actor_model).__name__)


def finish(args):
    record("hooks.finish")
