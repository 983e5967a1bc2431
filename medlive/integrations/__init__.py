"""Tasks for other harnesses: Inspect AI (entry point `inspect_ai`) and lm-evaluation-harness (`lm_eval.yaml`).

They load cases and grade answers as `medlive eval` does. Nothing else imports them: each needs its harness.
"""
