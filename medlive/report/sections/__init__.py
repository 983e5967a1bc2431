"""One section of the report in each file."""
