"""Verified snapshots sent where others find them, and fetched from there.

`targets` holds the places beyond a folder. Imports `snapshot` and below.
"""
