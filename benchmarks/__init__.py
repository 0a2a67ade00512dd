"""Benchmarks: every number is a ratio to something measured in the same run. ``python -m benchmarks``."""
