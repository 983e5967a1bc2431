"""Tasks for other harnesses: Inspect AI (entry point `inspect_ai`) and lm-evaluation-harness (`lm_eval.yaml`).

They load cases and grade answers as `medlive eval` does. Each needs its harness; `eval import` and `eval export`
alone import one of them, for Inspect's logs.
"""
