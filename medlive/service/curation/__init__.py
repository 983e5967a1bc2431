"""Filters and curates queued threads, scans cases again, and applies what reviewers decide."""
