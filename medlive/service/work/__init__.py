"""Jobs of the queues, and the worker that does them until it is stopped."""
