"""Reading of plain text: normalised forms, numbers with their units, text made inert before a prompt holds it.

Knows no thread and no case; imports only `clock`, `digest`, `errors` and `home`.
"""
