"""Reading an answer by its rubric: what a grader is asked about each criterion, and what its reply counts for.

The service proves rubrics by it and the evaluation grades models by it; neither imports the other.
"""
