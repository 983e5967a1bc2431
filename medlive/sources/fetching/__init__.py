"""Fetch pages over HTTP: robots.txt, limits, guarded addresses, and pages that refuse access."""
