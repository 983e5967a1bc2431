"""What keeps strangers and secrets in their place: bounds, TLS, addresses, redaction, what a terminal is shown."""
