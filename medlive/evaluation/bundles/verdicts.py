"""Verification steps for verdicts: their keys, the grader's replies, and the grader."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from medlive import __version__
from medlive.evaluation.bundles.files import BUNDLE
from medlive.evaluation.bundles.sources import in_order
from medlive.evaluation.bundles.state import Verification, require
from medlive.evaluation.grading.verdict import Verdict, quoted, read_criterion, read_rubric
from medlive.evaluation.model import Answer, CaseKeys, EvaluationCase, Grade, Mode, Origin
from medlive.evaluation.runs.folder import GRADES, IMPORTED, RESPONSES
from medlive.integrity.checks import Faults
from medlive.integrity.folder import printable
from medlive.llm.ask import MOST_RAW, Unusable
from medlive.llm.prompts import load_prompt

PASSED_OVER: Final = ("another model answered", "the reply was cut at the token limit", "the grader refused")
"""Reasons for which `Judge.read` rejects a reply regardless of its content."""
_DIFFERENT: Final = "another verdict, quote or reasoning"
_ID: Final = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class _Replies:
    """The parsed rubric-mode replies of one case."""

    by_id: Mapping[str, Sequence[Verdict | str]]
    """Criterion id → the verdict, or the reason for none, in each reply that names it."""
    any_id: frozenset[Verdict]
    """All verdicts in the replies; a cached verdict may have been asked for under another criterion id."""


def verdicts(state: Verification, out: Faults) -> None:
    """Check that every verdict matches its criterion, its answer and the grader's reply."""
    grades, cases = state.require_rows(state.grades, GRADES), state.require_cases()
    info, answers = (
        require(state.info, BUNDLE),
        {a.case_id: a for a in state.require_rows(state.answers, RESPONSES)},
    )
    order = [(case.case_id, c.id) for case in cases for c in case.criteria]
    in_order(GRADES, [(g.case_id, g.criterion_id) for g in grades], order, "criterion", out)
    by_case: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        by_case[grade.case_id].append(grade)
    by_id = {case.case_id: case for case in cases}
    unverifiable = 0
    for case_id, listed in by_case.items():
        case, answer = by_id.get(case_id), answers.get(case_id)
        if case is None or answer is None or not answer.gradable:
            what = f"case {printable(case_id)[:60]}: a gradable answer for its verdicts"
            out.add(GRADES, what, f"{len(listed)} verdicts without one")
            continue
        unverifiable += _check_case(case, answer, listed, info.grader.judge, out)
    if out.count and info.code_version != __version__:
        # Another version of medlive may parse a reply differently.
        out.add(BUNDLE, f"medlive {__version__}, which parsed the replies here", printable(info.code_version)[:40])
    # A missing row counts as ungraded, like a row without a verdict.
    wanted = sum(len(c.criteria) for c in cases if c.case_id in answers and answers[c.case_id].gradable)
    if (open_ := wanted - sum(grade.met is not None for grade in grades)) > 0:
        state.add_note(f"{open_} of {wanted} criteria are ungraded")
    if unverifiable:
        state.add_note(f"{unverifiable} of {len(grades)} verdicts have no stored reply to check them against")


def _check_case(case: EvaluationCase, answer: Answer, grades: Sequence[Grade], judge: str, out: Faults) -> int:
    """Check the verdicts of one case. Returns how many have no stored reply."""
    keys = CaseKeys.of(case).keys(answer, judge)
    replies = _replies(grades, answer)
    unverifiable = 0
    for grade in grades:
        what = f"case {printable(case.case_id)[:60]}, criterion {printable(grade.criterion_id)[:60]}"
        if grade.key != keys.get(grade.criterion_id):
            out.add(
                GRADES, f"{what}: the key of its question, answer, criterion and grader", printable(grade.key)[:80]
            )
        if grade.met is None:
            if not grade.reason:
                out.add(GRADES, f"{what}: a reason for being ungraded", "none")
            if (fault := _hidden_verdict(grade, answer)) is not None:
                out.add(GRADES, f"{what}: an ungraded criterion", fault)
            continue
        if grade.quote.strip() and not quoted(grade.quote, answer.response):
            out.add(GRADES, f"{what}: the verdict in the grader's reply", "a quote that is not in the answer")
        elif grade.met and not grade.quote.strip() and not _imported(grade):
            out.add(GRADES, f"{what}: a quote from the answer", "none")
        # Criteria with the same text share a verdict and its replies.
        alike = [cid for cid, key in keys.items() if key == grade.key]
        difference = _difference(grade, answer, replies, alike)
        if difference is None:
            unverifiable += 1
        elif difference:
            out.add(GRADES, f"{what}: the verdict in the grader's reply", difference)
    return unverifiable


def _replies(grades: Sequence[Grade], answer: Answer) -> _Replies:
    by_id: dict[str, list[Verdict | str]] = defaultdict(list)
    every: set[Verdict] = set()
    for grade in grades:
        if grade.mode is not Mode.RUBRIC or not grade.raw or len(grade.raw) >= MOST_RAW:
            continue
        named = _ids(grade.raw)
        try:
            for cid, read in read_rubric(grade.raw, named, answer.response).items():
                by_id[cid].append(read)
                if isinstance(read, Verdict):
                    every.add(read)
        except Unusable as exc:
            by_id[grade.criterion_id].append(str(exc))
    return _Replies(by_id, frozenset(every))


def _ids(raw: str) -> list[str]:
    found: dict[str, None] = {}
    for match in _ID.finditer(raw):
        try:
            found[json.loads(match[1], strict=False)] = None
        except ValueError:
            continue
    return list(found)


def _imported(grade: Grade) -> bool:
    """Whether a verdict was imported: imported files may contain neither quotes nor replies."""
    return grade.engine == IMPORTED or grade.origin is Origin.IMPORT


def _difference(grade: Grade, answer: Answer, replies: _Replies, alike: Sequence[str]) -> str | None:
    """How a verdict differs from the grader's reply: "" if it does not, None if there is no reply for it."""
    mine = Verdict(grade.met is True, grade.quote, grade.reasoning)
    if grade.mode is Mode.CRITERION:
        if not grade.raw or len(grade.raw) >= MOST_RAW or _imported(grade):
            return None
        try:
            return "" if read_criterion(grade.raw, answer.response) == mine else _DIFFERENT
        except Unusable as exc:
            return f"a reply without a verdict: {exc}"
    read = [one for cid in alike for one in replies.by_id.get(cid, ())]
    if mine in read or (grade.origin is Origin.CACHE and mine in replies.any_id):
        return ""
    if not read or _imported(grade):
        return None
    if any(isinstance(one, Verdict) for one in read):
        return _DIFFERENT
    return f"a reply without a verdict: {read[0]}"


def _hidden_verdict(grade: Grade, answer: Answer) -> str | None:
    """Describe a valid verdict in the reply of an ungraded criterion, or return None."""
    if not grade.raw or len(grade.raw) >= MOST_RAW or grade.reason.startswith(PASSED_OVER):
        return None
    try:
        if grade.mode is Mode.CRITERION:
            return f"a reply with met: {read_criterion(grade.raw, answer.response).met}"
        read = read_rubric(grade.raw, [grade.criterion_id], answer.response)[grade.criterion_id]
    except Unusable:
        return None
    return f"a reply with met: {read.met}" if isinstance(read, Verdict) else None


def grader(state: Verification, out: Faults) -> None:
    """Check that the pinned grader alone gave all verdicts."""
    grades, info = state.require_rows(state.grades, GRADES), require(state.info, BUNDLE)
    want = info.grader
    if list(want.answered_by) != sorted({grade.grader for grade in grades} - {""}):
        out.add(BUNDLE, "the graders named in the verdicts", printable(", ".join(want.answered_by))[:200])
    # A reply by another model leaves a criterion ungraded.
    for name in sorted({grade.grader for grade in grades if grade.met is not None} - {want.model}):
        other = printable(name)[:100] or "an unnamed model"
        out.add(GRADES, f"verdicts by the pinned grader {want.model[:100]}", f"verdicts by {other}")
    for name, got in (
        ("engine", {g.engine for g in grades}),
        ("model", {g.model for g in grades}),
        ("mode", {g.mode.value for g in grades}),
        ("prompt", {g.prompt for g in grades}),
        ("judge", {g.judge for g in grades}),
    ):
        if got != {getattr(want, name)}:
            out.add(
                GRADES, f"the grader's {name} {getattr(want, name)[:100]}", printable(", ".join(sorted(got)))[:200]
            )
    if (
        not out.count
        and want.engine != IMPORTED
        and load_prompt("medlive.evaluation", f"grader.{want.mode}").digest != want.prompt
    ):
        state.add_note("the grader's prompt differs from this version's")
