"""A run's folder: what it is about, its answers and grades, read and written as logs."""
