"""What harvests remember: pages, files, lists, runs."""
