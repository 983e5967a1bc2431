"""Threads and their revisions, identifiers, near-duplicate bands, and their erasure."""
