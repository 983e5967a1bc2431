"""A graded run as a bundle that others verify, score again and rank."""
