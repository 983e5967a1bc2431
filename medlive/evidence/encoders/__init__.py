"""Encoders: text to vectors, one file per kind, behind the promises of `medlive.evidence.encoders.model`."""
