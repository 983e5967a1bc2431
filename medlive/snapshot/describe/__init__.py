"""Descriptions of a snapshot: dataset card, Croissant, figures, and the feed of all releases."""
