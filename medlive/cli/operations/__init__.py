"""What a maintainer runs: scheduler and workers, jobs, status and weeks, database, backups, users."""
