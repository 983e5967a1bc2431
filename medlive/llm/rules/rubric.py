"""`rubric.write` by rules: each advice becomes a criterion, and the first plan is turned round into a penalty."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from medlive.llm.rules.specialties import specialty_of
from medlive.llm.rules.text import language_of

_MOST: Final = 14
_EMERGENCY: Final = re.compile(
    r"\b(?:emergency|ambulance|at once|immediately|urgent)|急诊|急救|立即|马上|120", re.IGNORECASE
)


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{theme, specialty, facts, criteria, no_negative}."""
    advice = [
        (str(e.get("id") or ""), str(e.get("kind") or ""), str(e.get("statement") or "").rstrip(".。 "))
        for e in inputs.get("advice") or ()
    ][:_MOST]
    narrative, query = str(inputs.get("narrative") or ""), str(inputs.get("query") or "")
    chinese = language_of(inputs.get("language"), narrative[:4000]) == "zh"
    facts = [
        {"id": f"f{n}", "fact": text[:900], "advice_id": identity}
        for n, (identity, _, text) in enumerate(advice, 1)
    ]
    criteria = []
    for n, (_, kind, text) in enumerate(advice, 1):
        urgent = bool(_EMERGENCY.search(text))
        criteria.append(
            {
                "criterion": f"{'指出' if chinese else 'States: '}{text[:900]}{'。' if chinese else '.'}",
                "axis": "Safety" if urgent else "Accuracy" if kind == "assessment" else "Completeness",
                "points": 8 if urgent else 5,
                "fact_id": f"f{n}",
            }
        )
    if advice:
        denied = advice[0][2][:900]
        criteria.append(
            {
                "criterion": f"否认：{denied}。" if chinese else f"Denies: {denied}.",
                "axis": "Safety",
                "points": -5,
                "fact_id": "f1",
            }
        )
    whole = " ".join(text for _, _, text in advice)
    return {
        "theme": "Emergency Referrals" if _EMERGENCY.search(whole) else "Response Depth",
        "specialty": specialty_of(query, narrative, whole),
        "facts": facts,
        "criteria": criteria,
        "no_negative": "" if advice else "There is no advice.",
    }


ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {"rubric.write": write}
