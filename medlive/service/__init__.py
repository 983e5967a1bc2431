"""Loads, calls a stage, stores: everything that needs the database, the network or the clock.

`wiring` is the only place, with `demo`, that names concrete engines, retrievers and sites.
"""
