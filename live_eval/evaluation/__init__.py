"""Evaluation of one target on one dataset: eval sets, rewards, metrics and the job runner.

This package knows nothing of engines, versions' files or schedules: samples come from a
SampleSource, and what becomes of an outcome is decided by the caller.
"""
