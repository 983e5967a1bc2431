"""Snapshots, the frozen cases of a week as a folder: frozen by `freeze` behind `gates`, loaded by `load`, compared by `diff`.

`verify` checks a snapshot, `describe` writes its descriptions for people and machines. Imports `rubric` and below.
"""
