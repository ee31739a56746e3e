"""Benchmarks: `python -m tests.benchmarks [NAME] [--json]`; one JSON object each, units in the key names."""
