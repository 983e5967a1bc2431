"""A model's answers: with evidence or without; what calls would cost, and have cost."""
