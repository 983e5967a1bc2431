"""Verdicts about answers: asked for, read, shared, repeated, in batches or imported; the direct judge."""
