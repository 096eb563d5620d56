from slime.backends.megatron_utils.actor import MegatronTrainRayActor
from slime.calls import record
from slime.ray.actor_group import RayTrainGroup


class RolloutManager:
    def dispose(self):
        record("dispose")


def create_placement_groups(args):
    return {"actor": "the actor's", "rollout": "the rollout's"}


def create_rollout_manager(args, pg):
    record("create_rollout_manager", pg=pg)
    return RolloutManager(), None


def create_training_models(args, pgs, rollout_manager, actor_cls=None):
    record("create_training_models", actor_cls=actor_cls)
    return RayTrainGroup(actor_cls or MegatronTrainRayActor), None
