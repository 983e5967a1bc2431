"""Verification of a snapshot from its files alone, in numbered steps; `run` is the entry and lists them."""
