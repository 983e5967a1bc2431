"""The thread: its model, its form for agents, and near duplicates.

Imports `text` and `deidentify`.
"""
