"""Threads with their revisions and identifiers, the bands that find near-duplicates, and takedowns, which erase."""
