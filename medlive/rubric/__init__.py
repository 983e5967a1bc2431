"""A case's criteria: written by one engine, linted in code, reviewed by another.

Imports `curation` and below.
"""
