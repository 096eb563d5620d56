"""Stands in for live-eval where only the calls that reach it matter."""
