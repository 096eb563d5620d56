from slime.calls import record


def finish_tracking(args):
    record("finish_tracking")


def log(args, metrics, step_key):
    record("log", metrics=metrics, step_key=step_key)
