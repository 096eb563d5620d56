"""Stands in for the sglang package in processes that the tests start: put its parent on PYTHONPATH."""
