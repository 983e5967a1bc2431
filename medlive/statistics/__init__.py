"""Figures from numbers alone: bootstrap, agreement, correlation, contamination.

Imports no other room.
"""
