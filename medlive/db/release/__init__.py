"""Snapshots: fixed, frozen, withdrawn; and evaluations that were recorded."""
