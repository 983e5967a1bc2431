"""Literature on demand: a claim's phrases asked of PubMed and Europe PMC, fused with the local index."""
