"""The layer that loads rows, calls a stage and stores its result: all that needs database, network or clock.

`wiring` is the only place, with `instance.opening` and `demo`, that knows which engines and retrievers there are.
"""
