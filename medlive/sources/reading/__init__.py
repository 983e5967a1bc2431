"""What every adapter needs to read a page: text from markup, structured data, dates."""
