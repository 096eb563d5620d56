from slime.calls import record
from slime.observability.logging_utils import finish_tracking
from slime.ray.placement_group import create_placement_groups, create_rollout_manager, create_training_models
from slime.utils.arguments import parse_args

# One of slime's scripts, as far as the patcher and the runner know it:
# the same functions, called in the same order.


def train(args):
    record("train", **vars(args))
    pgs = create_placement_groups(args)

    # one rollout ahead
    rollout_manager, num_rollout_per_epoch = create_rollout_manager(args, pgs["rollout"])

    # the models
    actor_model, critic_model = create_training_models(args, pgs, rollout_manager)
    record("made", rollouts=num_rollout_per_epoch, critic=critic_model)
    actor_model.update_weights()

    def finish_tracking_of(step):
        return finish_tracking(step)  # an inner function is no place for an anchor

    for rollout_id in range(args.num_rollout):
        actor_model.async_train(rollout_id, None)
        actor_model.update_weights()

    rollout_manager.dispose()
    finish_tracking(args)


if __name__ == "__main__":
    args = parse_args()
    train(args)
