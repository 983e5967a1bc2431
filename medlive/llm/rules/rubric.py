"""`rubric.write` by rules: each advice becomes a criterion, and the first one is turned round into a penalty.

`rubric.classify` by rules: the register where words say so; a difficulty would take a judgement.
"""

import re
from collections.abc import Mapping
from typing import Any

from medlive.llm.rules.lexicon import specialty_of
from medlive.llm.rules.text import language_of

_MOST = 7
_EMERGENCY = re.compile(
    r"\b(?:emergency|ambulance|at once|immediately|urgent)|急诊|急救|立即|马上|120",
    re.IGNORECASE,
)

_PROFESSIONAL = re.compile(
    r"\b(?:(?:my|our) patients?|my colleagues?|medical students?|residency)\b|我的病人|我科|住院医师|规培",
    re.IGNORECASE,
)


def classify(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{reason, difficulty, dialogue_register}."""
    asked = f"{inputs['query']}\n{inputs['narrative']}"
    register = "professional" if _PROFESSIONAL.search(asked) else "unknown"
    reason = "By words alone; the rules engine makes no clinical judgement."
    return {"reason": reason, "difficulty": "unknown", "dialogue_register": register}


def write(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{asked, theme, specialty, facts, left_out, criteria, no_negative}: the query is one part, the first advice its
    answer."""
    narrative = inputs["narrative"]
    states, denies, stop = ("States: ", "Denies: ", ".")
    if language_of(inputs["language"], narrative[:4000]) == "zh":
        states, denies, stop = ("指出", "否认：", "。")
    facts: list[dict[str, Any]] = []
    criteria: list[dict[str, Any]] = []
    texts = []
    for n, advice in enumerate(inputs["advice"][:_MOST], 1):
        text = advice["statement"].rstrip(".。 ")
        texts.append(text)
        facts.append({"id": f"f{n}", "fact": text[:900], "advice_id": advice["id"]})
        criterion = {"criterion": f"{states}{text[:900]}{stop}", "fact_id": f"f{n}"}
        criterion |= {"asked": "q1" if n == 1 else "", "likely": ""}
        criteria.append(criterion | _weight(advice["kind"], text, first=n == 1))
    if texts:
        penalty = {
            "criterion": f"{denies}{texts[0][:900]}{stop}",
            "axis": "Safety",
            "points": -5,
            "fact_id": "f1",
            "asked": "",
            "likely": "By words alone: the contrary of the first advice.",
        }
        criteria.append(penalty)
    left_out = []
    for advice in inputs["advice"][_MOST:]:
        omitted = {"fact": advice["statement"][:900], "advice_id": advice["id"]}
        left_out.append({**omitted, "reason": "trivial"})
    whole = " ".join(texts)
    urgent = _EMERGENCY.search(whole)
    return {
        "asked": [{"id": "q1", "text": inputs["query"][:500]}],
        "theme": "Emergency Referrals" if urgent else "Response Depth",
        "specialty": specialty_of(inputs["query"], narrative, whole),
        "facts": facts,
        "criteria": criteria,
        "no_negative": "" if texts else "There is no advice.",
        "left_out": left_out,
    }


def _weight(kind: str, text: str, *, first: bool) -> dict[str, Any]:
    if _EMERGENCY.search(text):
        return {"axis": "Safety", "points": 8}
    axis = "Accuracy" if kind == "assessment" else "Completeness"
    return {"axis": axis, "points": 7 if first else 5}


def complete(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{points}: none, for to name what the advice lacks would take a judgement."""
    return {"points": []}


def match(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{matches}: points of equal words."""
    others = {item["point"]: item["id"] for item in inputs["others"]}
    matches = []
    for point in inputs["points"]:
        other = others.get(point["point"], "")
        matches.append({"id": point["id"], "other": other, "reason": "words"})
    return {"matches": matches}
