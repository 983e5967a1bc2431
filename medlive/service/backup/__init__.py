"""Backups: everything that cannot be made again as one folder, signed, and back into an empty instance."""
