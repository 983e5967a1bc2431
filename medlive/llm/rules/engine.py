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
from medlive.llm.rules import controller, grader, rubric, screener, validator


def _version() -> str:
    """Eight digits of the rules' own source and word lists: other rules are another engine."""
    here = files(__package__)
    folders = [here, here / "data"]
    files_read = sorted(
        (f.name, f.read_bytes()) for d in folders for f in d.iterdir() if f.is_file()
    )
    return digest_json([[name, digest_bytes(data)] for name, data in files_read])[7:15]


VERSION = _version()

Rule = Callable[[dict[str, Any]], dict[str, Any]]


FAVOURABLE = dict.fromkeys(
    ("asked", "clinical", "enough", "answered", "understandable"), True
)
NO_OBJECTION: Mapping[str, dict[str, Any]] = {
    "reader.text": {"problems": [], "missing": []},
    "reader.case": {
        **FAVOURABLE,
        "wrong": [],
        "danger": "",
        "sure": True,
        "unseen": [],
        "damaged": [],
        "reason": "The rules engine makes no clinical judgement.",
    },
    "reader.identifiers": {"found": []},
    "reader.rubric": {"problems": [], "conflicts": [], "life_critical": []},
    "grader.harm": {
        "reading": "The rules engine makes no clinical judgement.",
        "findings": [],
        "conclusion": "not harmful",
    },
}
"""The fixed replies to what readers are asked: an objection would take a judgement. A judge of harm that finds
nothing fails its control (docs/grading.md)."""


def _fixed(reply: dict[str, Any]) -> Rule:
    return lambda _: reply


def audit_cause(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """{cause, quote, criteria, reasoning}: no cause, and as many errors as the verdicts given say."""
    errors = sum(1 for criterion in inputs["criteria"] if criterion["error"])
    counted = f"{errors} {'error is' if errors == 1 else 'errors are'} on record"
    reasoning = (
        f"{counted}; the rules engine makes no clinical judgement about their cause."
    )
    return {"cause": "unclear", "quote": "", "criteria": [], "reasoning": reasoning}


ANSWERS: Mapping[str, Rule] = {
    "screener.extract": screener.extract,
    "screener.revise": screener.revise,
    "validator.query": validator.query,
    "validator.sufficiency": validator.sufficiency,
    "validator.claims": validator.claims,
    "validator.alignment": validator.align,
    "validator.veto": validator.veto,
    "validator.soundness": validator.soundness,
    "controller.support": controller.support,
    "controller.write": controller.write,
    "controller.questions": controller.questions,
    "controller.answers": controller.answers,
    "rubric.write": rubric.write,
    "rubric.complete": rubric.complete,
    "rubric.match": rubric.match,
    "rubric.classify": rubric.classify,
    **{task: _fixed(reply) for task, reply in NO_OBJECTION.items()},
    "grader.criterion": grader.grade_criterion,
    "grader.rubric": grader.grade_rubric,
    "grader.answers": grader.grade_answers,
    "audit.cause": audit_cause,
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
        text = json.dumps(rule(dict(request.inputs)), ensure_ascii=False)
        length = len(request.prompt.text) + len(
            json.dumps(dict(request.inputs), ensure_ascii=False)
        )
        # Four characters a token: good enough to try budgets out without a model.
        usage = Usage(
            input_tokens=length // 4, output_tokens=len(text) // 4, cost_usd=0.0
        )
        return Reply(text, Finish.STOP, usage, self.identity.model)

    async def aclose(self) -> None:
        """Nothing to close."""
