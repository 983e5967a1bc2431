"""How far a grading can be trusted: against people, against other graders, against itself."""
