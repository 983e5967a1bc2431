"""The job queues: put jobs in, take and end them, and the worker that does them until it is stopped."""
