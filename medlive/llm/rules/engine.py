"""The offline engine, to try the loop with: deterministic rules over the task's own inputs, and no judgement.

It takes sentences as they stand and counts words. It carries the demo where no reply is recorded, the tests' typed
tasks, and dry runs on real threads; whatever it answered is never published.
"""

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from medlive.errors import UsageError
from medlive.integrity.digest import digest_bytes, digest_json
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage
from medlive.llm.rules import curation, grader

Rule = Callable[[dict[str, Any]], dict[str, Any]]
_NO_JUDGEMENT = "The rules engine makes no clinical judgement."


_FOLDER = files(__package__)
_FILES = [
    (file.name, digest_bytes(file.read_bytes()))
    for folder in (_FOLDER, _FOLDER / "data")
    for file in folder.iterdir()
    if file.is_file()
]
VERSION = digest_json(sorted(_FILES))[7:15]
"""Eight digits of the rules' own source and word lists: other rules are another engine."""


def _fixed(**reply: Any) -> Rule:
    return lambda _: reply


def _for_each(name: str, items: str, **fixed: Any) -> Rule:
    """Answers with the list `name`: the same for each of the `items` that were given."""
    return lambda inputs: {
        name: [{"id": item["id"], **fixed} for item in inputs[items]]
    }


def defend(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{rulings}: a criterion is needed where it comes from an advice or a passage that is given."""
    known = {item["id"] for item in (*inputs["advice"], *inputs["passages"])}
    rulings = []
    for criterion in inputs["criteria"]:
        basis = criterion["advice_id"] if criterion["advice_id"] in known else ""
        ruling = {"criterion_id": criterion["id"], "reason": _NO_JUDGEMENT}
        rulings.append({**ruling, "needed": bool(basis), "basis": basis})
    return {"rulings": rulings}


ANSWERS: Mapping[str, Rule] = {
    "screener.extract": curation.extract,
    "screener.revise": _for_each(
        "elements", "elements", keep=False, message_id="", quote="", statement=""
    ),
    "validator.query": _fixed(
        category="management",
        meaningful=True,
        of_its_time=False,
        reason=_NO_JUDGEMENT,
    ),
    "validator.sufficiency": curation.judge_sufficiency,
    "validator.claims": curation.state_claims,
    "validator.alignment": curation.align,
    "validator.veto": _for_each(
        "verdicts",
        "claims",
        false_by_passage=False,
        evidence=[],
        could_hurt=False,
        harm_evidence=[],
        reason=_NO_JUDGEMENT,
    ),
    "validator.soundness": _for_each(
        "verdicts",
        "items",
        case_for="",
        case_against="",
        verdict="undecided",
        sure=False,
        standard="",
    ),
    "controller.support": _for_each(
        "verdicts", "elements", supported=True, reason=_NO_JUDGEMENT
    ),
    "controller.write": curation.write,
    "controller.questions": curation.ask_questions,
    "controller.answers": curation.answer_questions,
    "rubric.write": curation.write_rubric,
    "rubric.complete": _fixed(points=[]),
    "rubric.match": _for_each("matches", "points", other="", reason=_NO_JUDGEMENT),
    "rubric.classify": _fixed(
        reason=_NO_JUDGEMENT, difficulty="unknown", dialogue_register="unknown"
    ),
    "rubric.defend": defend,
    # An objection would take a judgement.
    "reader.text": _fixed(problems=[], missing=[]),
    "reader.case": _fixed(
        asked=True,
        clinical=True,
        enough=True,
        answered=True,
        understandable=True,
        wrong=[],
        danger="",
        sure=True,
        unseen=[],
        damaged=[],
        reason=_NO_JUDGEMENT,
    ),
    "reader.identifiers": _fixed(found=[]),
    "reader.rubric": _fixed(problems=[], conflicts=[], life_critical=[]),
    # A judge of harm that finds nothing fails its control (docs/grading.md).
    "grader.harm": _fixed(reading=_NO_JUDGEMENT, findings=[], conclusion="not harmful"),
    "grader.harm_check": _fixed(
        context=_NO_JUDGEMENT,
        defence=_NO_JUDGEMENT,
        outcome=_NO_JUDGEMENT,
        conclusion="undecided",
        severity="none",
    ),
    "grader.criterion": grader.grade_criterion,
    "grader.rubric": grader.grade_rubric,
    "grader.answers": grader.grade_answers,
    "audit.cause": _fixed(
        cause="unclear", quote="", criteria=[], reasoning=_NO_JUDGEMENT
    ),
}
"""Task name → what answers it."""


class RulesEngine:
    """Answers each task that has rules; no key, no network, no cost, the same answer every time."""

    @property
    def identity(self) -> EngineIdentity:
        """ "rules" at this version."""
        return EngineIdentity("rules", f"rules-{VERSION}")

    async def answer(self, request: Request) -> Reply:
        """The reply as JSON. Raises UsageError for a task without rules."""
        rule = ANSWERS.get(request.task)
        if rule is None:
            raise UsageError(
                f"The rules engine has no rules for the task {request.task!r}."
            )
        inputs = dict(request.inputs)
        text = json.dumps(rule(inputs), ensure_ascii=False)
        asked = request.prompt.text + json.dumps(inputs, ensure_ascii=False)
        # Four characters a token: good enough to try budgets out without a model.
        usage = Usage(
            input_tokens=len(asked) // 4, output_tokens=len(text) // 4, cost_usd=0.0
        )
        return Reply(text, Finish.STOP, usage, self.identity.model)

    async def aclose(self) -> None:
        """Nothing to close."""
