"""`medlive evidence`: build, list, search, verify, bench, models."""
