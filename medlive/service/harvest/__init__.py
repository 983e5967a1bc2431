"""Harvests, imports, raw pages and takedowns."""
