"""Pages over HTTP: robots.txt, limits, guarded addresses, and how a page says no."""
