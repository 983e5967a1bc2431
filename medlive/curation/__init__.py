"""From a thread to a case: screener, validator, controller and second reader, in the order of `chain`.

Each asks an engine typed tasks (`tasks`, `prompts/`) and computes its verdict in code; the three agents do not
import each other. Imports `threads`, `evidence` and `llm`.
"""
