"""What a judge is shown of the passages that were found: sentences, excerpts, and the choice for a case."""
