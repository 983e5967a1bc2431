"""What was harvested, decided and released: an overview, a page for every table, and one for each thread."""
