"""When a weekly step is due, and the work of each."""
