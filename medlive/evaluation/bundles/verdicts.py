"""The steps over verdicts: what each is about, what the grader's reply beside it says, and who the grader is."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from medlive import __version__
from medlive.evaluation.bundles.files import BUNDLE
from medlive.evaluation.bundles.sources import in_order
from medlive.evaluation.bundles.state import Held, known
from medlive.evaluation.grading.verdict import Verdict, quoted, read_criterion, read_rubric
from medlive.evaluation.model import Answer, CaseKeys, EvaluationCase, Grade, Mode, Origin
from medlive.evaluation.runs.folder import GRADES, IMPORTED, RESPONSES
from medlive.integrity.checks import Faults
from medlive.integrity.folder import printable
from medlive.llm.ask import MOST_RAW, Unusable
from medlive.llm.prompts import load_prompt

PASSED_OVER: Final = ("another model answered", "the reply was cut at the token limit", "the grader refused")
"""Why `Judge.read` takes no verdict from a reply whatever stands in it."""
_ID: Final = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class _Replies:
    """The replies of a case's verdicts in rubric mode, each read."""

    by_id: Mapping[str, Sequence[Verdict | str]]
    """Criterion id → what each reply that names it says."""
    any_id: frozenset[Verdict]
    """Every verdict in them, whatever it is about: one from a cache may have been asked for by another id."""


def verdicts(held: Held, out: Faults) -> None:
    """Every verdict is about a criterion and the answer as it stands here, and as its reply says."""
    grades, cases = held.held_rows(held.grades, GRADES), held.known_cases()
    info, answers = known(held.info, BUNDLE), {a.case_id: a for a in held.held_rows(held.answers, RESPONSES)}
    order = [(case.case_id, c.id) for case in cases for c in case.criteria]
    in_order(GRADES, [(g.case_id, g.criterion_id) for g in grades], order, "criterion", out)
    by_case: dict[str, list[Grade]] = defaultdict(list)
    for grade in grades:
        by_case[grade.case_id].append(grade)
    by_id = {case.case_id: case for case in cases}
    bare = 0
    for case_id, listed in by_case.items():
        case, answer = by_id.get(case_id), answers.get(case_id)
        if case is None or answer is None or not answer.gradable:
            what = f"case {printable(case_id)[:60]}: verdicts about an answer that can be graded"
            out.add(GRADES, what, f"{len(listed)} about none")
            continue
        bare += _of_case(case, answer, listed, info.grader.judge, out)
    if out.count and info.code_version != __version__:
        # Another medlive may read a reply otherwise.
        out.add(BUNDLE, f"medlive {__version__}, which read the replies here", printable(info.code_version)[:40])
    # A criterion of a gradable answer without a row counts as ungraded, and so do rows without a verdict.
    wanted = sum(len(c.criteria) for c in cases if c.case_id in answers and answers[c.case_id].gradable)
    if (open_ := wanted - sum(grade.met is not None for grade in grades)) > 0:
        held.told(f"{open_} of {wanted} criteria are ungraded")
    if bare:
        held.told(f"{bare} of {len(grades)} verdicts have no reply beside them that shows that a grader gave them")


def _of_case(case: EvaluationCase, answer: Answer, grades: Sequence[Grade], judge: str, out: Faults) -> int:
    """How many of a case's verdicts no reply bears out."""
    keys = CaseKeys.of(case).keys(answer, judge)
    replies = _replies(grades, answer)
    bare = 0
    for grade in grades:
        what = f"case {printable(case.case_id)[:60]}, criterion {printable(grade.criterion_id)[:60]}"
        if grade.key != keys.get(grade.criterion_id):
            out.add(
                GRADES, f"{what}: the key of its question, answer, criterion and grader", printable(grade.key)[:80]
            )
        if grade.met is None:
            if not grade.reason:
                out.add(GRADES, f"{what}: why it is ungraded", "nothing")
            if (fault := _hidden(grade, answer)) is not None:
                out.add(GRADES, f"{what}: no verdict, as it says", fault)
            continue
        if grade.quote.strip() and not quoted(grade.quote, answer.response):
            out.add(GRADES, f"{what}: what the grader's reply says", "a quote that is not in the answer")
        elif grade.met and not grade.quote.strip() and not _imported(grade):
            out.add(GRADES, f"{what}: words of the answer to show for it", "none")
        # Criteria of the same words share a verdict, and so what any reply says of one of them.
        alike = [cid for cid, key in keys.items() if key == grade.key]
        said = _said(grade, answer, replies, alike)
        if said is None:
            bare += 1
        elif said:
            out.add(GRADES, f"{what}: what the grader's reply says", said)
    return bare


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
    """Whether a verdict is of a file, which may hold neither quotes nor replies."""
    return grade.engine == IMPORTED or grade.origin is Origin.IMPORT


def _said(grade: Grade, answer: Answer, replies: _Replies, alike: Sequence[str]) -> str | None:
    """How a verdict differs from what was replied: "" in nothing, None where no reply is about it."""
    mine = Verdict(grade.met is True, grade.quote, grade.reasoning)
    if grade.mode is Mode.CRITERION:
        if not grade.raw or len(grade.raw) >= MOST_RAW or _imported(grade):
            return None
        try:
            return (
                "" if read_criterion(grade.raw, answer.response) == mine else "another verdict, quote or reasoning"
            )
        except Unusable as exc:
            return f"a reply that holds no verdict: {exc}"
    read = [one for cid in alike for one in replies.by_id.get(cid, ())]
    if mine in read or (grade.origin is Origin.CACHE and mine in replies.any_id):
        return ""
    if not read or _imported(grade):
        return None
    held = any(isinstance(one, Verdict) for one in read)
    return "another verdict, quote or reasoning" if held else f"a reply that holds none: {read[0]}"


def _hidden(grade: Grade, answer: Answer) -> str | None:
    """What verdict the reply of an ungraded criterion holds all the same; None: none that counts."""
    if not grade.raw or len(grade.raw) >= MOST_RAW or grade.reason.startswith(PASSED_OVER):
        return None
    try:
        if grade.mode is Mode.CRITERION:
            return f"a reply that says met: {read_criterion(grade.raw, answer.response).met}"
        read = read_rubric(grade.raw, [grade.criterion_id], answer.response)[grade.criterion_id]
    except Unusable:
        return None
    return f"a reply that says met: {read.met}" if isinstance(read, Verdict) else None


def grader(held: Held, out: Faults) -> None:
    """One grader gave all verdicts, and it is the pinned one."""
    grades, info = held.held_rows(held.grades, GRADES), known(held.info, BUNDLE)
    want = info.grader
    if list(want.answered_by) != sorted({grade.grader for grade in grades} - {""}):
        out.add(BUNDLE, "the graders that the verdicts name", printable(", ".join(want.answered_by))[:200])
    # A reply of another model leaves a criterion ungraded, and is no verdict.
    for name in sorted({grade.grader for grade in grades if grade.met is not None} - {want.model}):
        said = printable(name)[:100] or "a model without a name"
        out.add(GRADES, f"verdicts of the pinned grader {want.model[:100]}", f"some of {said}")
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
        held.told("the grader's prompt is another than this medlive's")
