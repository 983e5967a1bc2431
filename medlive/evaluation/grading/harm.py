"""Reading answers for harm as typed questions: a reading an answer, then a check a finding.

The log holds every reply of both judges, so that a run resumes where it stopped.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from medlive.evaluation.asking.plan import Plan
from medlive.evaluation.grading.plan import assumed_answer
from medlive.evaluation.grading.questions import (
    JudgeReplies,
    Question,
    QuestionsAsked,
    ask_questions,
    plan_questions,
    read_findings,
    why_open,
)
from medlive.evaluation.harm import (
    HARM_CALLS,
    READINGS,
    UNCHECKED,
    Control,
    ControlFigures,
    HarmRow,
    control_figures,
    encode,
    harm_key,
    material_of,
    read_rows,
)
from medlive.evaluation.model import CallsMade, EvaluationCase, gradable
from medlive.evaluation.runs.folder import RunFolder, open_run, write_whole
from medlive.harm.controls import load_controls, same_statement
from medlive.harm.model import Check, HarmReading, JudgedHarm, Material, Severity
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
from medlive.integrity.digest import digest_json
from medlive.integrity.log import writing
from medlive.llm.engine import Engine, EngineIdentity, Finish, Reply, Usage
from medlive.llm.prompts import load_prompt


@dataclass(frozen=True, slots=True)
class HarmItem:
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
        )

    def _fault_of_words(self, text: str, reply: HarmReply | CheckReply) -> str | None:
        return fault_of_words(text, self.material.answer, reply)

    def raws(self, readings: JudgeReplies, checks: JudgeReplies) -> tuple[str, ...]:
        """The replies on record that a reading follows from."""
        reply = readings.get(self.reading, HarmReply)
        if reply is None:
            return ()
        findings = [readings.find(self.reading)]
        findings += [checks.find(question) for question in self.checks(reply)]
        return tuple(finding.raw for finding in findings if finding is not None)

    def reread(self, raws: Sequence[str]) -> tuple[JudgedHarm, ...]:
        """What replies say of the item. Raises Unusable or ValueError if they are not a whole reading."""
        reply = self.reading.read(_reply(raws[0]))
        assert isinstance(reply, HarmReply)
        questions = self.checks(reply)
        if len(raws) != 1 + len(questions):
            raise ValueError(f"expected {1 + len(questions)} replies, got {len(raws)}")
        rulings = []
        for question, raw in zip(questions, raws[1:], strict=True):
            checked = question.read(_reply(raw))
            assert isinstance(checked, CheckReply)
            rulings.append(check_of(checked))
        return _judged(reply, rulings)

    def result(self, readings: JudgeReplies, checks: JudgeReplies) -> HarmReading:
        """What the two judges' replies on record come to."""
        reply = readings.get(self.reading, HarmReply)
        if reply is None:
            return HarmReading.not_read(why_open(readings.find(self.reading)))
        rulings = []
        for question in self.checks(reply):
            checked = checks.get(question, CheckReply)
            if checked is None:
                reason = why_open(checks.find(question))
                return HarmReading.not_read(f"{UNCHECKED}{reason}")
            rulings.append(check_of(checked))
        engines = {
            "reader": readings.identity.as_json(),
            "checker": checks.identity.as_json(),
        }
        return HarmReading(harms=_judged(reply, rulings), engines=engines)


def _judged(reply: HarmReply, rulings: Iterable[Check]) -> tuple[JudgedHarm, ...]:
    """The findings of a reading, each counted one with its ruling."""
    left = iter(rulings)
    harms = []
    for finding in findings_of(reply):
        check = next(left) if finding.severity.counts else None
        harms.append(JudgedHarm(finding=finding, check=check))
    return tuple(harms)


def _reply(raw: str) -> Reply:
    return Reply(raw, Finish.STOP, Usage(), "")


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
    items: Iterable[HarmItem],
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
    findings, _ = read_findings(path, reader.identity, allow_unpinned=allow)
    checks = await ask_questions(
        lambda _: _checks(items, findings), path, checker, **how
    )
    return HarmAsked(readings, checks)


def _checks(items: Iterable[HarmItem], readings: JudgeReplies) -> Iterator[Question]:
    for item in items:
        reply = readings.get(item.reading, HarmReply)
        if reply is not None:
            yield from item.checks(reply)


def plan_harm(
    items: Iterable[HarmItem], path: Path, identity: EngineIdentity, **how: Any
) -> Plan:
    """What the readings of `ask_harm` would take; checks are of findings that nobody knows yet."""
    items = list(items)
    return plan_questions(
        lambda _: (item.reading for item in items), path, identity, **how
    )


def read_results(
    items: Iterable[HarmItem],
    path: Path,
    reader: EngineIdentity,
    checker: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> Iterator[tuple[HarmReading, tuple[str, ...]]]:
    """What a log says of each item by these two judges, and the replies that it follows from."""
    readings, _ = read_findings(path, reader, allow_unpinned=allow_unpinned)
    checks, _ = read_findings(path, checker, allow_unpinned=allow_unpinned)
    for item in items:
        reading = item.result(readings, checks)
        yield reading, item.raws(readings, checks) if reading.is_read else ()


CONTROLS: Final = 0.05
"""The share of answers that are controls."""
LEAST_CONTROLS: Final = 4
"""Two slips and two excellent answers, however short the run."""


def harm_judge(reader: EngineIdentity, checker: EngineIdentity) -> str:
    """What makes two pairs of judges one: their engines, models, parameters and prompts."""
    prompts = [load_prompt(PACKAGE, reply.task) for reply in (HarmReply, CheckReply)]
    return digest_json(
        [reader.as_json(), checker.as_json(), *(prompt.digest for prompt in prompts)]
    )


@cache
def control_items() -> Mapping[str, HarmItem]:
    """Every shipped control by its id, as it is read."""
    return {c.id: HarmItem(c.id, c.material) for c in load_controls()}


@cache
def _planted() -> Mapping[str, str]:
    return {c.id: c.planted for c in load_controls()}


def control_hit(control: str, reading: HarmReading) -> bool:
    """Whether harm is confirmed in a control; in a slip, in the planted words."""
    planted = _planted()[control]
    if not planted:
        return bool(reading.confirmed)
    quotes = [harm.finding.quote for harm in reading.confirmed]
    return any(same_statement(quote, planted) for quote in quotes)


def _controls(run: RunFolder, answers: int) -> list[HarmItem]:
    """The controls of a run: as many slips as excellent answers, in the languages of its cases, drawn by its cases."""
    languages = {case.language for case in run.cases}
    wanted = max(LEAST_CONTROLS, math.ceil(CONTROLS * answers))
    by_kind: dict[bool, list[HarmItem]] = {True: [], False: []}
    for name, item in control_items().items():
        if item.material.language in languages:
            by_kind[bool(_planted()[name])].append(item)
    chosen: list[HarmItem] = []
    for of_kind in by_kind.values():
        of_kind.sort(key=lambda item: digest_json([run.info.cases.rows, item.id]))
        chosen += of_kind[: math.ceil(wanted / 2)]
    return chosen


def _items(run: RunFolder) -> list[HarmItem]:
    answers, _ = run.answers()
    items = []
    for case, answer in gradable(run.cases, answers):
        items.append(HarmItem(case.case_id, material_of(case, answer)))
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmResult(CallsMade):
    """How a run stands after reading it for harm."""

    path: Path
    answers: int
    read: int
    severe: int
    moderate: int
    unconfirmed: int
    """Findings that the second judge could not decide."""
    controls: ControlFigures
    reasons: Mapping[str, int]
    """Why answers are not read."""
    notes: tuple[str, ...]


async def read_run(
    run_dir: Path, reader: Engine, checker: Engine, **how: Any
) -> HarmResult:
    """Read every answer of a run that can be graded and is not read yet by these judges, with controls among them.

    Args:
        run_dir: The run's folder.
        reader: Names findings.
        checker: Confirms or clears them; may be the same engine.
        how: Arguments of `ask_questions`, whose errors are raised; what was answered by then is kept.
    """
    run = open_run(run_dir)
    items = _items(run)
    controls = _controls(run, len(items)) if items else []
    among = _mixed(items, controls)
    try:
        asked = await ask_harm(among, run_dir / HARM_CALLS, reader, checker, **how)
    finally:
        rows = _write_rows(run_dir, items, controls, reader, checker, **how)
    done = [row for row in rows if row.control is None]
    worst = [row.reading.worst for row in done if row.reading.is_read]
    reasons = Counter(row.missing for row in done if row.missing)
    last = asked.checks or asked.readings
    return HarmResult(
        path=run_dir,
        answers=len(items),
        read=len(worst),
        severe=worst.count(Severity.SEVERE),
        moderate=worst.count(Severity.MODERATE),
        unconfirmed=sum(len(row.reading.unconfirmed) for row in done),
        controls=control_figures(row for row in rows if row.control is not None),
        reasons=dict(reasons.most_common()),
        notes=asked.readings.notes,
        calls=asked.calls,
        stopped=asked.stopped,
        silence=last.silence,
    )


def _mixed(items: Sequence[HarmItem], controls: Sequence[HarmItem]) -> list[HarmItem]:
    """The controls at even distances among the items."""
    mixed = list(items)
    for number, control in enumerate(controls):
        mixed.insert(number * (len(mixed) + 1) // len(controls), control)
    return mixed


def _write_rows(
    run_dir: Path,
    items: Sequence[HarmItem],
    controls: Sequence[HarmItem],
    reader: Engine,
    checker: Engine,
    **how: Any,
) -> list[HarmRow]:
    """Write what the replies on record come to, after the rows of other judges."""
    first, second = reader.identity, checker.identity
    judge = harm_judge(first, second)
    read = partial(
        read_results,
        path=run_dir / HARM_CALLS,
        reader=first,
        checker=second,
        allow_unpinned=bool(how.get("allow_unpinned", False)),
    )
    by = {"judge": judge, "reader": first.model, "checker": second.model}
    rows = []
    for item, (reading, raws) in zip(items, read(items), strict=True):
        rows.append(_row(item, reading, raws, by))
    for item, (reading, raws) in zip(controls, read(controls), strict=True):
        kind = Control.SLIP if _planted()[item.id] else Control.EXCELLENT
        hit = control_hit(item.id, reading) if reading.is_read else None
        rows.append(replace(_row(item, reading, raws, by), control=kind, hit=hit))
    path = run_dir / READINGS
    others = [row for row in read_rows(path)[0] if row.judge != judge]
    with writing(path):
        write_whole(path, encode([*others, *rows]))
    return rows


def _row(
    item: HarmItem, reading: HarmReading, raws: tuple[str, ...], by: Mapping[str, str]
) -> HarmRow:
    return HarmRow(
        case_id=item.id,
        key=harm_key(item.material, by["judge"]),
        judge=by["judge"],
        reader=by["reader"],
        checker=by["checker"],
        harms=reading.harms,
        missing=reading.missing,
        raws=raws,
    )


def plan_run(
    run_dir: Path,
    reader: EngineIdentity,
    *,
    ahead: Sequence[EvaluationCase] = (),
    **how: Any,
) -> Plan:
    """What the readings of `read_run` would take; checks are of findings that nobody knows yet.

    `ahead` are the cases of a run that may not have begun: those without an answer are taken to get one.
    """
    run = None if ahead and not (run_dir / "run.json").exists() else open_run(run_dir)
    items = _items(run) if run else []
    known = {item.id for item in items}
    for case in ahead:
        if case.case_id not in known:
            items.append(
                HarmItem(case.case_id, material_of(case, assumed_answer(case)))
            )
    return plan_harm(items, run_dir / HARM_CALLS, reader, **how)
