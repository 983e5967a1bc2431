"""Verified snapshots sent where others find them, and fetched from there.

The places: a folder in `target`, a bucket in `s3`, the hub in `huggingface`. Imports `snapshot` and below.
"""
