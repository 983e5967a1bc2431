"""Encoders turn text into vectors: `model` says what they do, one file has each kind, `opening` opens one by name."""
