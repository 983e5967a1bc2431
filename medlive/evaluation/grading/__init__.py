"""Verdicts about answers: asked for, read, shared, repeated or imported; the direct judge."""
