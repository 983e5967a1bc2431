"""What names a person or a place in a text: found by language and by number, and replaced by its kind.

`detect` is the entry; the others hold its rules and word lists. Imports `text`, never a thread.
"""
