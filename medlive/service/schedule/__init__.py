"""The weekly steps: which are due, what each does, the scheduler that runs them, and reruns by a person."""
