"""Harvest or import threads, keep their raw pages, parse these again, and take threads down."""
