"""Verdicts on answers: asked for live or in batches, repeated, imported; readings for harm; the direct judge."""
