"""Tasks for other harnesses: Inspect AI (entry point `inspect_ai`) and lm-evaluation-harness (`lm_eval.yaml`).

They load cases and grade answers as `medlive eval` does. Each needs its harness; `eval import` and `eval export`
alone import one of them, for Inspect's logs.
"""

from importlib.util import find_spec

from medlive.errors import MissingExtra


def check_inspect() -> None:
    """Raise MissingExtra without Inspect."""
    if find_spec("inspect_ai") is None:
        raise MissingExtra(
            "logs of Inspect need inspect-ai, which is not installed",
            hint="pip install inspect-ai",
        )
