"""A week as a folder: frozen by `freeze` behind `gates`, loaded by `load`, compared by `diff`.

`verify` checks one, `describe` writes what tells people and machines about one. Imports `rubric` and below.
"""
