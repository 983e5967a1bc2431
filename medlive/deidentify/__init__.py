"""Find identifiers of people and places in a text, and replace them by their kind.

`detect` is the entry; the other modules hold its rules, `data/` its word lists. Imports `text`.
"""
