"""Search by vectors with FAISS: embeddings on disk, indexes over them, their tuning.

`model` can be imported without FAISS; the others need `medlive[medcpt]`.
"""
