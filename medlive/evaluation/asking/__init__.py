"""A model's answers: with evidence or without, and what that would cost."""
