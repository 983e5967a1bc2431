"""Backups: a signed folder of everything that cannot be made again, and its restore into an empty instance."""
