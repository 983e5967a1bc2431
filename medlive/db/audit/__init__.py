"""What is listed: a filter, a row type and facets for each table; counts, search, pages by key, streams."""
