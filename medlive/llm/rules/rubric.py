"""`rubric.write` by rules: each advice becomes a criterion, and the first one is turned round into a penalty.

`rubric.classify` by rules: the register where words say so; a difficulty would take a judgement.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from medlive.llm.rules.lexicon import specialty_of
from medlive.llm.rules.text import language_of

_MOST: Final = 7
_EMERGENCY: Final = re.compile(
    r"\b(?:emergency|ambulance|at once|immediately|urgent)|急诊|急救|立即|马上|120",
    re.IGNORECASE,
)

_PROFESSIONAL: Final = re.compile(
    r"\b(?:(?:my|our) patients?|my colleagues?|medical students?|residency)\b|我的病人|我科|住院医师|规培",
    re.IGNORECASE,
)


def classify(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{reason, difficulty, dialogue_register}."""
    asked = f"{inputs.get('query') or ''}\n{inputs.get('narrative') or ''}"
    register = "professional" if _PROFESSIONAL.search(asked) else "unknown"
    reason = "By words alone; the rules engine makes no clinical judgement."
    return {"reason": reason, "difficulty": "unknown", "dialogue_register": register}


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{theme, specialty, facts, criteria, no_negative, left_out}."""
    narrative, query = (
        str(inputs.get("narrative") or ""),
        str(inputs.get("query") or ""),
    )
    states, denies, stop = ("States: ", "Denies: ", ".")
    if language_of(inputs.get("language"), narrative[:4000]) == "zh":
        states, denies, stop = ("指出", "否认：", "。")
    facts: list[dict[str, Any]] = []
    criteria: list[dict[str, Any]] = []
    texts = []
    given = list(inputs.get("advice") or ())
    for n, advice in enumerate(given[:_MOST], 1):
        text = str(advice.get("statement") or "").rstrip(".。 ")
        texts.append(text)
        facts.append(
            {
                "id": f"f{n}",
                "fact": text[:900],
                "advice_id": str(advice.get("id") or ""),
            }
        )
        criteria.append(
            {"criterion": f"{states}{text[:900]}{stop}", "fact_id": f"f{n}"}
            | _weight(advice, text, first=n == 1)
        )
    if texts:
        denied = f"{denies}{texts[0][:900]}{stop}"
        criteria.append(
            {"criterion": denied, "axis": "Safety", "points": -5, "fact_id": "f1"}
        )
    whole = " ".join(texts)
    return {
        "theme": "Emergency Referrals"
        if _EMERGENCY.search(whole)
        else "Response Depth",
        "specialty": specialty_of(query, narrative, whole),
        "facts": facts,
        "criteria": criteria,
        "no_negative": "" if texts else "There is no advice.",
        "left_out": [
            {
                "fact": str(advice.get("statement") or "")[:900],
                "advice_id": str(advice.get("id") or ""),
                "reason": "trivial",
            }
            for advice in given[_MOST:]
        ],
    }


def _weight(advice: Mapping[str, Any], text: str, *, first: bool) -> dict[str, Any]:
    if _EMERGENCY.search(text):
        return {"axis": "Safety", "points": 8}
    return {
        "axis": "Accuracy" if advice.get("kind") == "assessment" else "Completeness",
        "points": 7 if first else 5,
    }


def complete(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{points}: none, for to name what the advice lacks would take a judgement."""
    return {"points": []}


def match(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{matches}: points of equal words."""
    others = {item["point"]: item["id"] for item in inputs["others"]}
    return {
        "matches": [
            {"id": p["id"], "other": others.get(p["point"], ""), "reason": "words"}
            for p in inputs["points"]
        ]
    }
