"""Reading an answer for statements that are false or harmful for its patient, without a rubric."""
