"""The thread: its model, what the agents see of it, and near duplicates.

Imports `text` and `deidentify`.
"""
