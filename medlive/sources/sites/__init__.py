"""One adapter for each community; they do not know each other."""
