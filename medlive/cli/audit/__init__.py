"""What admins ask and do: threads, cases, costs, prompts, reviews, and the log of what was done."""
