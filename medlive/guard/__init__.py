"""Protection from strangers' input and of secrets: bounds, TLS, addresses, circuits, redaction, printable text."""
