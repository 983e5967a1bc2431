"""What admins look up and decide: threads, cases, costs, prompts, reviews, and the audit log."""
