"""`medlive eval`: run, grade, score, report, audit, bundle."""
