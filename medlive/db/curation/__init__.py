"""Decisions about threads, the cases and replies that came of them, and people's reviews."""
