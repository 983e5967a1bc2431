"""The offline engine: typed tasks answered by deterministic, extractive rules, with no clinical judgement."""
