"""Verification of a snapshot from its files alone, in numbered steps; `steps` is the entry and lists them."""
