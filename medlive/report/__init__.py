"""Pages that show runs: tables, figures, cases, readable offline.

Imports `evaluation` and below.
"""
