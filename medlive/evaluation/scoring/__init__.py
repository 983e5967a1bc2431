"""Scores of graded runs: metrics, tables, errata, contamination, overlap."""
