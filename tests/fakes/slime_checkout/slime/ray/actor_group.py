from slime.calls import record


class RayTrainGroup:
    def __init__(self, actor_cls):
        self.actor = actor_cls()

    def async_train(self, rollout_id, rollout_data_ref):
        record("async_train", rollout_id=rollout_id)

    def update_weights(self):
        self.actor.update_weights()
