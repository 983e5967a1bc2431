"""Cases to evaluate on: from a snapshot, from LiveMedBench's file, or a part of either."""
