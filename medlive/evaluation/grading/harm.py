"""Reading answers for harm as typed questions: a reading an answer, then a check a finding.

The log holds every reply of both judges, so that a run resumes where it stopped.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.questions import (
    Findings,
    Question,
    QuestionsAsked,
    ask_questions,
    plan_questions,
    read_findings,
    why_open,
)
from medlive.harm.model import HarmReading, JudgedHarm, Material
from medlive.harm.read import (
    PACKAGE,
    CheckReply,
    HarmReply,
    check_inputs,
    check_of,
    fault_of_check,
    fault_of_reading,
    fault_of_words,
    findings_of,
    harm_inputs,
)
from medlive.llm.engine import Engine, EngineIdentity


@dataclass(frozen=True, slots=True)
class Item:
    """An answer that is read for harm."""

    id: str
    """For the log; the judge never sees it."""
    material: Material

    @property
    def reading(self) -> Question:
        """What is false or harmful in the answer?"""
        return Question(
            case_id=self.id,
            part="answer",
            task=HarmReply.task,
            inputs=harm_inputs(self.material),
            reply=HarmReply,
            check=partial(fault_of_reading, self.material),
            check_text=self._fault_of_words,
            package=PACKAGE,
        )

    def checks(self, reply: HarmReply) -> list[Question]:
        """Is each counted finding harmful?"""
        questions = []
        for number, finding in enumerate(findings_of(reply), start=1):
            if finding.severity.counts:
                questions.append(self._check(number, finding.quote))
        return questions

    def _check(self, number: int, statement: str) -> Question:
        return Question(
            case_id=self.id,
            part=f"finding {number}",
            task=CheckReply.task,
            inputs=check_inputs(self.material, statement),
            reply=CheckReply,
            check=fault_of_check,
            check_text=self._fault_of_words,
            package=PACKAGE,
        )

    def _fault_of_words(self, text: str, reply: HarmReply | CheckReply) -> str | None:
        return fault_of_words(text, self.material.answer, reply)

    def result(self, readings: Findings, checks: Findings) -> HarmReading:
        """What the two judges' replies on record come to."""
        reply = readings.get(self.reading, HarmReply)
        if reply is None:
            return HarmReading.not_read(why_open(readings.find(self.reading)))
        harms = []
        questions = iter(self.checks(reply))
        for finding in findings_of(reply):
            check = None
            if finding.severity.counts:
                question = next(questions)
                checked = checks.get(question, CheckReply)
                if checked is None:
                    reason = why_open(checks.find(question))
                    return HarmReading.not_read(f"a finding is unchecked: {reason}")
                check = check_of(checked)
            harms.append(JudgedHarm(finding=finding, check=check))
        engines = {
            "reader": readings.identity.as_json(),
            "checker": checks.identity.as_json(),
        }
        return HarmReading(harms=tuple(harms), engines=engines)


@dataclass(frozen=True, slots=True)
class HarmAsked:
    """What asking both judges came to."""

    readings: QuestionsAsked
    checks: QuestionsAsked | None
    """None where the first judge was stopped by a budget."""

    @property
    def calls(self) -> int:
        """Calls that were made."""
        return self.readings.calls + (self.checks.calls if self.checks else 0)

    @property
    def stopped(self) -> str | None:
        """Which budget ended it; None: none did."""
        return self.checks.stopped if self.checks else self.readings.stopped


async def ask_harm(
    items: Iterable[Item],
    path: Path,
    reader: Engine,
    checker: Engine,
    **how: Any,
) -> HarmAsked:
    """Read every item that is not read yet, then check every finding that is not checked yet.

    Args:
        items: The answers.
        path: The log of both judges.
        reader: Names findings.
        checker: Confirms or clears them; may be the same engine.
        how: Arguments of `ask_questions`, whose errors are raised.
    """
    items = list(items)
    readings = await ask_questions(
        lambda _: (item.reading for item in items), path, reader, **how
    )
    if readings.stopped is not None:
        return HarmAsked(readings, None)
    allow = bool(how.get("allow_unpinned", False))
    found, _ = read_findings(path, reader.identity, allow_unpinned=allow)
    checks = await ask_questions(lambda _: _checks(items, found), path, checker, **how)
    return HarmAsked(readings, checks)


def _checks(items: Iterable[Item], readings: Findings) -> Iterator[Question]:
    for item in items:
        reply = readings.get(item.reading, HarmReply)
        if reply is not None:
            yield from item.checks(reply)


def plan_harm(
    items: Iterable[Item], path: Path, identity: EngineIdentity, **how: Any
) -> Plan:
    """What the readings of `ask_harm` would take; checks are of findings that nobody knows yet."""
    items = list(items)
    return plan_questions(
        lambda _: (item.reading for item in items), path, identity, **how
    )


def read_results(
    items: Iterable[Item],
    path: Path,
    reader: EngineIdentity,
    checker: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> Iterator[HarmReading]:
    """What a log says of each item, by these two judges."""
    readings, _ = read_findings(path, reader, allow_unpinned=allow_unpinned)
    checks, _ = read_findings(path, checker, allow_unpinned=allow_unpinned)
    for item in items:
        yield item.result(readings, checks)
