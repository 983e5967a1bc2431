"""Rules that reject a thread before any engine request; each returns a verdict with its reason.

Imports `threads` and below.
"""
