"""`medlive scheduler` and `worker`: the weekly steps, and the queue."""
