"""Stands for the package: a process without a run may not log."""


def log(metrics, step=None):
    raise AssertionError("there is no run here")
