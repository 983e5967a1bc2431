"""Verification of a snapshot from its files alone, in numbered steps.

`run` is the entry, `steps` lists what is looked at in order.
"""
