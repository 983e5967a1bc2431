"""Snapshots, the frozen cases of a week as a folder.

`freeze` writes one, behind the `gates`; `load` reads it and `diff` compares two.
`verify` checks a snapshot, `describe` writes its descriptions for people and machines. Imports `rubric` and below.
"""
