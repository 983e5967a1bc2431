"""Verification steps for verdicts: their keys, the grader's replies, and the grader."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final

from medlive.build import code_version
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
    by_case: dict[str, list[Grade]] = {case.case_id: [] for case in cases}
    for grade in grades:
        by_case.setdefault(grade.case_id, []).append(grade)
    answers = _answers_with_text(state)
    order: list[tuple[str, str]] = []
    wanted = unverifiable = 0
    for case in cases:
        order += [(case.case_id, criterion.id) for criterion in case.criteria]
        own, given = by_case[case.case_id], answers.get(case.case_id)
        if given is not None:
            wanted += len(case.criteria)
            checked = _Case(case, given, own, info.grader.judge)
            unverifiable += sum(checked.check(grade, out) for grade in own)
        elif own:
            what = f"case {printable(case.case_id)[:60]}: a gradable answer for its verdicts"
            out.add(GRADES, what, f"{len(own)} verdicts without one")
    names = [(grade.case_id, grade.criterion_id) for grade in grades]
    in_order(GRADES, names, order, "criterion", out)
    if out.count and info.code_version != code_version():
        # Another version of medlive may parse a reply differently.
        out.add(
            BUNDLE,
            f"medlive {code_version()}, which parsed the replies here",
            printable(info.code_version)[:40],
        )
    # A missing row counts as ungraded, like a row without a verdict.
    ungraded = wanted - sum(grade.met is not None for grade in grades)
    notes = {
        f"{ungraded} of {wanted} criteria are ungraded": ungraded,
        f"{unverifiable} of {len(grades)} verdicts have no stored reply to check them against": unverifiable,
    }
    for note, n in notes.items():
        if n > 0:
            state.add_note(note)


def _answers_with_text(state: Verification) -> dict[str, Answer]:
    rows = state.require_rows(state.answers, RESPONSES)
    return {answer.case_id: answer for answer in rows if answer.gradable}


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
        own = Verdict(grade.met is True, grade.quote, grade.reasoning, grade.whole)
        read = self._read(grade)
        if own in read:
            return ""
        # A cached verdict may have been asked for under another criterion id.
        if grade.origin is Origin.CACHE and own in chain(*self._by_id.values()):
            return ""
        if not read or _imported(grade):
            return None
        if any(isinstance(one, Verdict) for one in read):
            return "another verdict, quote or reasoning"
        return f"a reply without a verdict: {read[0]}"

    def _read(self, grade: Grade) -> list[Verdict | str]:
        """What the replies say of a verdict's criterion: verdicts, or reasons for none."""
        if grade.mode is Mode.RUBRIC:
            read: list[Verdict | str] = []
            for criterion_id, key in self._keys.items():
                # Criteria with the same text share a verdict and its replies.
                if key == grade.key:
                    read += self._by_id[criterion_id]
            return read
        if not _stored(grade):
            return []
        echo = self._echoes.get(grade.criterion_id)
        try:
            return [read_criterion(grade.raw, self._answer.response, echo)]
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
