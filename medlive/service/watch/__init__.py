"""What stops or spoils a week: one list of checks, and the scheduler's loop that reports what they find."""
