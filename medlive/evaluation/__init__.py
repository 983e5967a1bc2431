"""Models evaluated on a snapshot: answers, grades, scores and what can be said about them.

Its folders are layers, each importing only from those after it: bundles > agreement and protocols > grading > scoring
> asking > runs > cases > model. It reads files, never the database.
"""
