"""What admins do about cases, threads and sources: each act by a function of `service`, which logs it."""
