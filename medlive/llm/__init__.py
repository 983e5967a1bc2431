"""Engines that answer typed tasks: an endpoint, a recording, the offline rules.

`ask` is the way to ask them; beside it what goes with asking: pool, replay, budget, limiter.
Knows no agent and no grader: their tasks come as values. Imports `text` and below.
"""
