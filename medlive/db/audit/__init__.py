"""Queries of the audit pages and of monitoring: lists of rows, the instance's health, and what engines cost."""
