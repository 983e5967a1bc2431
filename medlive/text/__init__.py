"""Plain text: normalised forms, numbers with their units, and text neutralised for prompts.

Imports no other package of medlive.
"""
