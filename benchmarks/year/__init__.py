"""A simulated year: communities, scheduler, workers and people on a clock of its own, then synthetic candidates.

Run by `make year`:
`PYTHONPATH=benchmarks python -m year [--seed 7] [--weeks 52] [--home FOLDER] [--out docs/builders/measurements]`.
"""
