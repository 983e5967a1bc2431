"""Other papers' methods on cases and answers: a file each, and one entry in `registry.PROTOCOLS`.

A protocol (`model.Protocol`) makes typed questions and turns their replies into tables; `grading.questions` asks for
all of them, keeps the replies and resumes. Imports grading and what lies below it; no protocol imports another.
"""
