"""Other papers' methods on cases and answers: a file each, and one entry in `registry.PROTOCOLS`.

A protocol (`model.Protocol`) makes typed questions and turns their replies into tables; `grading.questions` asks for
all of them, keeps the replies and resumes. The package imports grading and the layers below; no protocol another one.
"""
