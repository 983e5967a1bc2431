"""Asking a model about cases: answers with evidence or without; what calls would cost, and have cost."""
