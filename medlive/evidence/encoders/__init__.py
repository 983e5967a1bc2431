"""Encoders turn text into vectors: `model` says what they do, each kind has a file, `opening` opens one by its name."""
