"""`audit.cause`: the rules say "unclear" of every case; a cause is a clinical judgement, and they make none."""

from collections.abc import Callable, Mapping
from typing import Any, Final


def audit_cause(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """No cause, no quote, and as many errors as the verdicts given say."""
    errors = sum(1 for one in inputs["criteria"] if one["error"])
    said = "error is" if errors == 1 else "errors are"
    return {
        "cause": "unclear",
        "quote": "",
        "criteria": [],
        "reasoning": f"{errors} {said} on record; the rules engine makes no clinical judgement about their cause.",
    }


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {"audit.cause": audit_cause}
