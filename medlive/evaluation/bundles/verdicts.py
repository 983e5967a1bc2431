"""Check a bundle's verdicts, and its readings for harm, against the answers and the judges' replies."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain

from medlive.evaluation.grading.harm import (
    HarmItem,
    choose_controls,
    control_items,
    items_of,
)
from medlive.evaluation.harm import READINGS, HarmRow, RunHarm, harm_key
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    Grade,
    grade_keys,
)
from medlive.evaluation.runs.folder import GRADES, IMPORTED
from medlive.evaluation.scoring.graded import GradedRun
from medlive.grader.judge import Mode
from medlive.grader.reply import (
    Verdict,
    echo_of,
    read_criterion,
    read_rubric,
)
from medlive.integrity.checks import Faults
from medlive.llm.ask import MOST_RAW, Unusable
from medlive.text.quotes import quoted

PASSED_OVER = (
    "another model answered",
    "the reply was cut at the token limit",
    "the grader refused",
)
"""Reasons, by how they begin, for which `read_checked` rejects a reply whatever verdicts it holds."""
_ID = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


def check_verdicts(run: GradedRun, out: Faults) -> list[str]:
    """Check every verdict against its criterion, its answer and the grader's reply.

    Args:
        run: The bundle's run; each of its grades is of one of its cases.
        out: Takes the faults.

    Returns:
        Notes on what is ungraded, and on verdicts that no reply shows.
    """
    assert run.grader is not None
    criteria = verdicts = unproven = graded = 0
    for case, answer in run.answered():
        own = list(run.grades.get(case.case_id, {}).values())
        keys = grade_keys(case, answer, run.grader.judge)
        read: dict[str, list[Verdict | str]] = defaultdict(list)
        for criterion_id, verdict in _readings(case, answer, own):
            # Criteria with the same text share a key, a verdict and its replies.
            read[keys.get(criterion_id, criterion_id)].append(verdict)
        for grade in own:
            what = f"case {case.case_id[:60]}, criterion {grade.criterion_id[:60]}"
            if grade.key != keys.get(grade.criterion_id):
                expected = "the key of its question, answer, criterion and grader"
                out.add(GRADES, f"{what}: {expected}", grade.key[:80])
            fault = _fault(grade, answer, read)
            if fault:
                out.add(GRADES, f"{what}: the verdict in the grader's reply", fault)
            unproven += fault is None
            verdicts += grade.met is not None
        criteria += len(case.criteria)
        graded += len(own)
    if others := sum(map(len, run.grades.values())) - graded:
        out.add(GRADES, "verdicts on answers that hold text", f"{others} others")
    notes = []
    if ungraded := criteria - verdicts:
        # A missing row counts as ungraded, like a row without a verdict.
        notes.append(f"{ungraded} of {criteria} criteria are ungraded")
    if unproven:
        notes.append(
            f"{unproven} of {graded} verdicts have no stored reply to check them against"
        )
    return notes


def _readings(
    case: EvaluationCase,
    answer: Answer,
    grades: Iterable[Grade],
) -> Iterator[tuple[str, Verdict | str]]:
    """What the stored, whole replies about a case say of its criteria, by id: a verdict, or why there is none."""
    echoes = {c.id: echo_of(case.question, c) for c in case.criteria}
    for grade in grades:
        if not 0 < len(grade.raw) < MOST_RAW:
            continue
        try:
            if grade.mode is Mode.CRITERION:
                echo = echoes.get(grade.criterion_id)
                verdict = read_criterion(grade.raw, answer.response, echo)
                yield grade.criterion_id, verdict
            else:
                ids: dict[str, None] = {}
                for match in _ID.finditer(grade.raw):
                    with suppress(ValueError):
                        ids[json.loads(match[1], strict=False)] = None
                read = read_rubric(
                    grade.raw,
                    list(ids),
                    answer.response,
                    echoes,
                )
                yield from read.items()
        except Unusable as exc:
            yield grade.criterion_id, str(exc)


def _fault(
    grade: Grade,
    answer: Answer,
    read: Mapping[str, list[Verdict | str]],
) -> str | None:
    """How a grade differs from what the replies say under its key; "" if it does not, None if no reply shows it."""
    readings = read.get(grade.key, [])
    if grade.met is None:
        return _ungraded_fault(grade, readings)
    imported = grade.engine == IMPORTED or grade.origin == "import"
    needs_quote = grade.met and not grade.whole and not imported
    if not grade.quote.strip() and needs_quote:
        return "no quote from the answer"
    if grade.quote.strip() and not quoted(grade.quote, answer.response):
        return "a quote that is not in the answer"
    own = Verdict(
        grade.met,
        grade.quote,
        grade.reasoning,
        grade.whole,
    )
    # A cached verdict may have been asked for under another criterion's id.
    cached = grade.origin == "cache" and own in chain(*read.values())
    if own in readings or cached:
        return ""
    return None if imported or not readings else "another verdict, quote or reasoning"


def _ungraded_fault(grade: Grade, readings: Iterable[Verdict | str]) -> str:
    """What is wrong with a row without a verdict; "" if nothing."""
    if not grade.reason:
        return "no verdict, and no reason"
    decided = any(isinstance(reading, Verdict) for reading in readings)
    excused = not grade.raw or grade.reason.startswith(PASSED_OVER)
    return "a verdict, though called ungraded" if decided and not excused else ""


def check_readings(
    run: GradedRun,
    harm: RunHarm,
    out: Faults,
) -> Iterator[str]:
    """Check every reading of an answer and of a control; yields notes on what is not read.

    Args:
        run: The bundle's run.
        harm: Its readings.
        out: Takes the faults.
    """
    items = {item.id: item for item in items_of(run.cases, run.answers)}
    unproven = 0
    judges = harm.judge, harm.reader, harm.checker
    for row in (*harm.rows.values(), *harm.controls):
        known = control_items() if row.control else items
        what = f"{READINGS}: {row.case_id[:60]}"
        item = known.get(row.case_id)
        if (row.judge, row.reader, row.checker) != judges:
            out.add(what, "the same judges in every row", "others")
        if item is None or row.key != harm_key(item.material, row.judge):
            out.add(what, "the key of its question, answer and judges", row.key[:80])
        elif row.reading.is_read and any(len(r) >= MOST_RAW for r in row.raws):
            unproven += 1
        elif (fault := _reading_fault(item, row)) is not None:
            out.add(what, "the findings in the judges' replies", fault)
        elif row.hit != item.hit(row.reading):
            out.add(what, "whether its control was found", str(row.hit))
    if unproven:
        yield f"{unproven} readings for harm have no whole reply to check them against"
    yield from _unread(run, harm, len(items))


def _unread(run: GradedRun, harm: RunHarm, answers: int) -> Iterator[str]:
    """What is not read of a run: controls of its judges, and answers."""
    wanted = {item.id for item in choose_controls(run.run, answers)}
    if left_out := len(wanted - {row.case_id for row in harm.controls}):
        yield f"{left_out} of {len(wanted)} controls of the judges of harm are missing"
    if unread := answers - harm.read:
        yield f"{unread} of {answers} answers are not read for harm"


def _reading_fault(item: HarmItem, row: HarmRow) -> str | None:
    """Why a row does not follow from its replies; None if it does."""
    if not row.reading.is_read:
        return "findings" if row.harms or row.raws else None
    if not row.raws:
        return "no reply"
    try:
        judged = item.reread(row.raws)
    except (Unusable, ValueError) as exc:
        return str(exc)[:200]
    return None if judged == row.harms else "others"
