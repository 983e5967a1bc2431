"""Verdicts about answers: planned, asked for, repeated or imported; batches, of answers as well; the direct judge."""
