"""Engines that answer typed tasks: an endpoint, a recording, the offline rules.

Beside them what goes with asking: replay, budget, limiter.
Knows no agent and no grader: their tasks come as values. Imports `text` and below.
"""
