"""The schema: its migrations, the checks that it is the model's, and who may do what in it."""
