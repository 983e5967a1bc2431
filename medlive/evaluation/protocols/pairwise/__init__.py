"""MEDIC's pairwise comparison."""
