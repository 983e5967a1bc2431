"""Root causes of low scores, as an engine names them."""
