"""Freezes, rebuilds, publishes and withdraws snapshots."""
