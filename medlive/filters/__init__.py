"""Rules that turn a thread away before an engine is asked; each gives a verdict with its reason.

Imports `threads` and below.
"""
