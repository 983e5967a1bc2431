"""Decisions about threads, and the cases and replies that came of them."""
