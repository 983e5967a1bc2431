"""What people decide: reviews of held cases, and disputes."""
