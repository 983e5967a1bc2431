"""Medical evidence: passages from corpora, an index of them by words and by vectors, and the search.

`build` writes an index, `index` checks and opens one, `retriever` searches it. Imports `text` and below.
"""
