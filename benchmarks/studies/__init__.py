"""Measurements of one thing each, by hand: `PYTHONPATH=benchmarks python -m studies.hub`."""
