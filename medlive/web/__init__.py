"""Read-only pages over HTTP."""
