"""What harvests store: runs, how far lists were read, the threads that lists showed, fetched pages and their files."""
