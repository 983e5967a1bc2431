"""Verified snapshots sent where others find them, and fetched from there.

Folders and buckets are in `target`, the hub in `huggingface`. Imports `snapshot` and below.
"""
