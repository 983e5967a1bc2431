"""Engines that answer typed tasks: an endpoint, a recording, the offline rules.

Callers use `ask`; `pool`, `replay`, `budget` and `limiter` bound, store and pay for the calls.
It knows no agent and no grader: their tasks come as values. Imports `text` and below.
"""
