"""A model's answers: asked one by one or in batches, with evidence or without, and what that would cost."""
