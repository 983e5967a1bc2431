"""Models evaluated on a snapshot: answers, grades, scores and what can be said about them.

Its folders are layers: bundles > agreement and protocols > grading > scoring > asking > runs > cases > model. It
sees verified files, never the database.
"""
