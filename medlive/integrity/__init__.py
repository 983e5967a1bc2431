"""A folder that can be verified, whatever is in it: listing, numbered checks, signatures, locks.

Snapshots and bundles are built on it; it knows neither.
"""
