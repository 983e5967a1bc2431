"""Readers of evidence: one file per kind of source, one entry each in `registry.READERS`."""
