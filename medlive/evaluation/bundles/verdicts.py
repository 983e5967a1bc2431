"""Verification steps for verdicts: their keys, the grader's replies, and the grader."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from medlive import __version__
from medlive.evaluation.bundles.contents import Verification, in_order, require
from medlive.evaluation.bundles.files import BUNDLE
from medlive.evaluation.grading.quotes import quoted
from medlive.evaluation.grading.verdict import (
    Echo,
    Verdict,
    echo_of,
    read_criterion,
    read_rubric,
)
from medlive.evaluation.model import (
    Answer,
    EvaluationCase,
    Grade,
    Mode,
    Origin,
    grade_keys,
)
from medlive.evaluation.runs.folder import GRADES, IMPORTED, RESPONSES, SETTLED
from medlive.integrity.checks import Faults
from medlive.llm.ask import MOST_RAW, Unusable
from medlive.llm.prompts import load_prompt
from medlive.printable import printable

PASSED_OVER: Final = (
    "another model answered",
    "the reply was cut at the token limit",
    "the grader refused",
)
"""Reasons for which `Judge.read` rejects a reply regardless of its content."""
_ID: Final = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


def verdicts(state: Verification, out: Faults) -> None:
    """Check that every verdict matches its criterion, its answer and the grader's reply."""
    grades, cases = state.require_rows(state.grades, GRADES), state.require_cases()
    info = require(state.info, BUNDLE)
    answers = {
        a.case_id: a for a in state.require_rows(state.answers, RESPONSES) if a.gradable
    }
    order = [(case.case_id, c.id) for case in cases for c in case.criteria]
    in_order(
        GRADES, [(g.case_id, g.criterion_id) for g in grades], order, "criterion", out
    )
    by_id = {case.case_id: case for case in cases if case.case_id in answers}
    unverifiable = 0
    for case_id, of_case in groupby(grades, key=lambda grade: grade.case_id):
        case, answer = by_id.get(case_id), answers.get(case_id)
        unverifiable += _check_case(case, answer, list(of_case), info.grader.judge, out)
    if out.count and info.code_version != __version__:
        # Another version of medlive may parse a reply differently.
        out.add(
            BUNDLE,
            f"medlive {__version__}, which parsed the replies here",
            printable(info.code_version)[:40],
        )
    # A missing row counts as ungraded, like a row without a verdict.
    wanted = sum(case_id in answers for case_id, _ in order)
    open_ = wanted - sum(grade.met is not None for grade in grades)
    notes = {
        f"{open_} of {wanted} criteria are ungraded": open_,
        f"{unverifiable} of {len(grades)} verdicts have no stored reply to check them against": unverifiable,
    }
    for note, n in notes.items():
        if n > 0:
            state.add_note(note)


def _check_case(
    case: EvaluationCase | None,
    answer: Answer | None,
    grades: Sequence[Grade],
    judge: str,
    out: Faults,
) -> int:
    """Check the verdicts of one case. Returns how many have no stored reply."""
    if case is None or answer is None:
        what = f"case {printable(grades[0].case_id)[:60]}: a gradable answer for its verdicts"
        out.add(GRADES, what, f"{len(grades)} verdicts without one")
        return 0
    checked = _Case(case, answer, grades, judge)
    return sum(checked.check(grade, out) for grade in grades)


class _Case:
    """The verdicts of one case, with the grader's replies in them."""

    def __init__(
        self, case: EvaluationCase, answer: Answer, grades: Sequence[Grade], judge: str
    ) -> None:
        self._id, self._answer = printable(case.case_id)[:60], answer
        self._keys = grade_keys(case, answer, judge)
        self._echoes = {
            criterion.id: echo_of(case, criterion) for criterion in case.criteria
        }
        # Rubric mode: criterion id → the verdict, or the reason for none, in each reply that names it.
        self._by_id: dict[str, list[Verdict | str]] = defaultdict(list)
        for grade in grades:
            if grade.mode is Mode.RUBRIC and _stored(grade):
                try:
                    read = read_rubric(
                        grade.raw, _ids(grade.raw), answer.response, self._echoes
                    )
                except Unusable as exc:
                    read = {grade.criterion_id: str(exc)}
                for criterion_id, one in read.items():
                    self._by_id[criterion_id].append(one)

    def check(self, grade: Grade, out: Faults) -> bool:
        """Check one verdict. Returns whether it has no stored reply."""
        what = f"case {self._id}, criterion {printable(grade.criterion_id)[:60]}"
        if grade.key != self._keys.get(grade.criterion_id):
            expected = "the key of its question, answer, criterion and grader"
            out.add(GRADES, f"{what}: {expected}", printable(grade.key)[:80])
        if grade.met is None:
            if not grade.reason:
                out.add(GRADES, f"{what}: a reason for being ungraded", "none")
            if (
                fault := _hidden_verdict(grade, self._answer, self._echoes)
            ) is not None:
                out.add(GRADES, f"{what}: an ungraded criterion", fault)
            return False
        if grade.quote.strip() and not quoted(grade.quote, self._answer.response):
            out.add(
                GRADES,
                f"{what}: the verdict in the grader's reply",
                "a quote that is not in the answer",
            )
        elif (
            grade.met
            and not grade.quote.strip()
            and not grade.whole
            and not _imported(grade)
        ):
            out.add(GRADES, f"{what}: a quote from the answer", "none")
        difference = self._difference(grade)
        if difference:
            out.add(GRADES, f"{what}: the verdict in the grader's reply", difference)
        return difference is None

    def _difference(self, grade: Grade) -> str | None:
        """How a verdict differs from the grader's reply: "" if it does not, None if there is no reply for it."""
        mine = Verdict(grade.met is True, grade.quote, grade.reasoning, grade.whole)
        read = self._read(grade)
        # A cached verdict may have been asked for under another criterion id.
        elsewhere = grade.origin is Origin.CACHE and any(
            mine in listed for listed in self._by_id.values()
        )
        if mine in read or elsewhere:
            return ""
        if not read or _imported(grade):
            return None
        if any(isinstance(one, Verdict) for one in read):
            return "another verdict, quote or reasoning"
        return f"a reply without a verdict: {read[0]}"

    def _read(self, grade: Grade) -> list[Verdict | str]:
        """What the replies say of a verdict's criterion: verdicts, or reasons for none."""
        if grade.mode is Mode.RUBRIC:
            # Criteria with the same text share a verdict and its replies.
            alike = [
                criterion_id
                for criterion_id, key in self._keys.items()
                if key == grade.key
            ]
            return [
                one
                for criterion_id in alike
                for one in self._by_id.get(criterion_id, ())
            ]
        if not _stored(grade):
            return []
        try:
            return [
                read_criterion(
                    grade.raw,
                    self._answer.response,
                    self._echoes.get(grade.criterion_id),
                )
            ]
        except Unusable as exc:
            return [str(exc)]


def _stored(grade: Grade) -> bool:
    """Whether the grader's reply is stored, and whole."""
    return 0 < len(grade.raw) < MOST_RAW


def _ids(raw: str) -> list[str]:
    found: dict[str, None] = {}
    for match in _ID.finditer(raw):
        with suppress(ValueError):
            found[json.loads(match[1], strict=False)] = None
    return list(found)


def _imported(grade: Grade) -> bool:
    """Whether a verdict has no reply of its own: imported files may contain neither quotes nor replies."""
    return grade.engine in (IMPORTED, SETTLED) or grade.origin is Origin.IMPORT


def _hidden_verdict(
    grade: Grade, answer: Answer, echoes: Mapping[str, Echo]
) -> str | None:
    """Describe a valid verdict in the reply of an ungraded criterion, or return None."""
    if not _stored(grade) or grade.reason.startswith(PASSED_OVER):
        return None
    try:
        if grade.mode is Mode.CRITERION:
            found = read_criterion(
                grade.raw, answer.response, echoes.get(grade.criterion_id)
            )
            return f"a reply with met: {found.met}"
        read = read_rubric(grade.raw, [grade.criterion_id], answer.response, echoes)[
            grade.criterion_id
        ]
    except Unusable:
        return None
    return f"a reply with met: {read.met}" if isinstance(read, Verdict) else None


def grader(state: Verification, out: Faults) -> None:
    """Check that the pinned grader alone gave all verdicts."""
    grades, want = (
        state.require_rows(state.grades, GRADES),
        require(state.info, BUNDLE).grader,
    )
    if list(want.answered_by) != sorted({grade.grader for grade in grades} - {""}):
        out.add(
            BUNDLE,
            "the graders named in the verdicts",
            printable(", ".join(want.answered_by))[:200],
        )
    # A reply by another model leaves a criterion ungraded.
    for name in sorted(
        {grade.grader for grade in grades if grade.met is not None} - {want.model}
    ):
        other = printable(name)[:100] or "an unnamed model"
        out.add(
            GRADES,
            f"verdicts by the pinned grader {want.model[:100]}",
            f"verdicts by {other}",
        )
    for name in ("engine", "model", "mode", "prompt", "judge"):
        value, got = (
            getattr(want, name),
            sorted({str(getattr(grade, name)) for grade in grades}),
        )
        if got != [value]:
            out.add(
                GRADES,
                f"the grader's {name} {value[:100]}",
                printable(", ".join(got))[:200],
            )
    if out.count or want.engine in (IMPORTED, SETTLED):
        return
    if load_prompt("medlive.evaluation", f"grader.{want.mode}").digest != want.prompt:
        state.add_note("the grader's prompt differs from this version's")
