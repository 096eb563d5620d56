import wandb  # noqa: F401 - as slime does


def log(args, metrics, step_key):
    raise AssertionError("nobody logs here")
