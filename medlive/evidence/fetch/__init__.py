"""Public corpora downloaded from their publishers: listed, fetched, checked, kept up to date."""
