"""Other papers' methods on cases and answers: a file each, and one entry in `registry.PROTOCOLS`.

A protocol (`model.Protocol`) makes typed questions and turns what was found into tables; `grading.questions` asks,
keeps and resumes for all of them. Imports grading and what lies below it; no protocol imports another.
"""
