"""Pages as they came, in WARC files, and their index."""
