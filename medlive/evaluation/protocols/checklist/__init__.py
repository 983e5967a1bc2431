"""LLMEval-Med's checklist."""
