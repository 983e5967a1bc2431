"""A leaderboard entry: one graded run as a bundle that somebody else verifies and scores again.

The cases are not in it: they are in the snapshot that it names, and it holds their digests. What it holds has one
spelling, so the same run makes the same bytes, and no byte of it can change unnoticed (docs/leaderboard.md).
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from medlive import __version__
from medlive.digest import canonical_json, digest_bytes, digest_json
from medlive.errors import UsageError
from medlive.evaluation.bundles.files import (
    BOOK,
    BUNDLE,
    CASES,
    RUN,
    SCORES,
    pretty,
    published_row,
    spelt,
    sums_of,
    trusted_comment,
)
from medlive.evaluation.bundles.public import public_answer, public_grade, public_info
from medlive.evaluation.model import Answer, EvaluationCase, Grade
from medlive.evaluation.runs.folder import GRADES, RESPONSES, CasesUse, RunFolder, RunInfo, TemplateUse
from medlive.evaluation.scoring.errata import ErrataMode, FoundErrata, RunErrata, without
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.score import Estimate, score_runs
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.snapshot.errata import Errata
from medlive.snapshot.identity import canary_of

if TYPE_CHECKING:
    from medlive.integrity.signing import SecretKey

UNTRUSTED_COMMENT: Final = "signature of a medlive bundle"
MOST_DRAWS: Final = 10_000
DIGITS: Final = 6
"""Decimal places of a figure in `scores.json`: those that another machine's arithmetic does not change."""
_NOWHERE: Final = Path(os.devnull, "bundle")
"""A bundle is scored by what it holds: no file that lies in a run's folder besides may have a say."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GraderUse(_Frozen):
    """Who graded, as `graded.Grader`."""

    engine: str
    model: str
    answered_by: tuple[str, ...]
    mode: str
    prompt: str
    judge: str


class SigningUse(_Frozen):
    """The key that the bundle says it is signed with."""

    key_id: str
    public_key: str


class ErrataUse(_Frozen):
    """What was done about errata: the mode, and `RunErrata.row`."""

    mode: ErrataMode
    version: str
    file: Annotated[str, Field(pattern=r"^[^/\\\\]*$")] | None
    """The name of the errata's file."""
    digest: str | None
    checked_with: str | None
    problem: str | None
    withdrawn_cases: tuple[str, ...]
    withdrawn_criteria: tuple[dict[Literal["case_id", "criterion_id"], str], ...]
    cases_left_without_positive_criterion: tuple[str, ...]
    cases_with_unclear_criteria: tuple[str, ...]


class FileUse(_Frozen):
    """One file of the bundle."""

    bytes: Annotated[int, Field(ge=0)]
    digest: str


class BundleInfo(_Frozen):
    """`bundle.json`: what the bundle is of, and its files but for itself and those that sign it."""

    format: Literal["medlive-bundle"] = "medlive-bundle"
    format_version: Literal[1] = 1
    code_version: str
    numpy: str
    """The version whose random numbers the intervals were drawn with."""
    model: str
    template: TemplateUse
    parameters: dict[str, Any]
    cases: CasesUse
    grader: GraderUse
    answers: bool
    """Whether answers and grades are in it."""
    canary: str | None
    """The snapshot's, as in every row of answers and verdicts; None: the cases are of a file without one."""
    signing: SigningUse | None
    files: dict[str, FileUse]


def make_bundle(
    run: GradedRun,
    *,
    answers: bool = True,
    draws: int = 1000,
    seed: int = 0,
    errata: tuple[ErrataMode, RunErrata] | None = None,
    key: "SecretKey | None" = None,
) -> dict[str, bytes]:
    """The files of a run's bundle, by name; the same for the same run, options and key.

    `answers`: with answers and grades, so that others can score and grade again. `errata`: what was done about
    them and what they concern. Raises UsageError when nothing is graded, of a raw run, or when `draws` is out of
    range, CheckFailed when errata leave no case.
    """
    if run.grader is None:
        raise UsageError(f"{run.run.path}: nothing is graded", hint="medlive eval grade comes first")
    if run.run.info.raw:
        raise UsageError(f"{run.run.path}: asked with the threads' own words, which are in no snapshot: no entry")
    if not 1 <= draws <= MOST_DRAWS:
        raise UsageError(f"a bundle's intervals are of 1 to {MOST_DRAWS} draws, not {draws}")
    rows = bundled_rows(run)
    told = None if errata is None else {"mode": errata[0].value, **errata[1].row()}
    lean = bundled_run(run.run.info, run.run.cases, *rows)
    if lean.grader is None:
        raise UsageError(f"{run.run.path}: no verdict is about an answer as it is now")
    if not any(met is not None for verdicts in (lean.met or {}).values() for met in verdicts.values()):
        raise UsageError(f"{run.run.path}: every criterion is ungraded", hint="medlive eval grade asks again")
    info = public_info(run.run.info)
    canary = canary_of_cases(info)
    files = {
        RUN: pretty(info.model_dump(mode="json")),
        CASES: pretty({"cases": [[case.case_id, case_digest(case)] for case in run.run.cases]}),
        SCORES: pretty(bundle_scores(lean, told, draws, seed)),
    }
    if answers:
        files[RESPONSES] = b"".join(spelt(published_row(answer, canary)) for answer in rows[0])
        files[GRADES] = b"".join(spelt(published_row(grade, canary)) for grade in rows[1])
        if (book := run.run.evidence()) is not None:
            files[BOOK] = book.data()
    public = None if key is None else key.public
    files[BUNDLE] = pretty(
        BundleInfo(
            code_version=__version__,
            numpy=np.__version__,
            model=info.model,
            template=info.template,
            parameters=info.parameters,
            cases=info.cases,
            grader=GraderUse(**asdict(lean.grader)),
            answers=answers,
            canary=canary,
            signing=None if public is None else SigningUse(key_id=public.id_text(), public_key=public.line()),
            files={n: FileUse(bytes=len(d), digest=digest_bytes(d)) for n, d in sorted(files.items())},
        ).model_dump(mode="json")
    )
    files[SUMS] = sums_of(files)
    if key is not None:
        from medlive.integrity.signing import sign

        comment = trusted_comment(files[BUNDLE])
        files[SIGNATURE] = sign(files[SUMS], key, comment, UNTRUSTED_COMMENT).encode("ascii")
    return dict(sorted(files.items()))


def canary_of_cases(info: RunInfo) -> str | None:
    """The canary of the snapshot that the cases are of; None where they are of a file."""
    return canary_of(info.cases.name) if info.cases.origin == "snapshot" else None


def bundled_rows(run: GradedRun) -> tuple[list[Answer], list[Grade]]:
    """The latest answer of each case and the verdicts that count, in the order of cases and criteria."""
    cases = run.run.cases
    answers = [public_answer(run.answers[case.case_id]) for case in cases if case.case_id in run.answers]
    graded = [(case, run.grades[case.case_id]) for case in cases if case.case_id in run.grades]
    # A verdict that was found again under its key may have been written about another case of the same words.
    grades = [
        replace(public_grade(grades[c.id]), case_id=case.case_id, criterion_id=c.id)
        for case, grades in graded
        for c in case.criteria
        if c.id in grades
    ]
    return answers, grades


def bundled_run(
    info: RunInfo, cases: tuple[EvaluationCase, ...], answers: list[Answer], grades: list[Grade]
) -> GradedRun:
    """A run that holds those answers and grades and nothing else: what is scored, here and by whoever verifies."""
    met: dict[str, dict[str, bool | None]] = {}
    book: dict[str, dict[str, Grade]] = {}
    for grade in grades:
        met.setdefault(grade.case_id, {})[grade.criterion_id] = grade.met
        book.setdefault(grade.case_id, {})[grade.criterion_id] = grade
    grader = None
    if grades:
        one, named = grades[0], sorted({grade.grader for grade in grades} - {""})
        grader = Grader(one.engine, one.model, tuple(named), one.mode.value, one.prompt, one.judge)
    return GradedRun(
        RunFolder(_NOWHERE, info, cases), info.model, {a.case_id: a for a in answers}, book, grader, (), met
    )


def bundle_scores(run: GradedRun, errata: Mapping[str, Any] | None, draws: int, seed: int) -> dict[str, Any]:
    """`scores.json`: both metrics with intervals, bounds and rates, rounded to DIGITS places.

    `errata` is what the bundle says of them; where it says "apply", what it names is left out. Raises CheckFailed
    when that leaves no case, and KeyError or TypeError for what is no such row.
    """
    if errata is not None and errata["mode"] == ErrataMode.APPLY.value:
        run = replace(run, run=without(run.run, named_errata(run.run.cases, errata)))
    found: dict[str, Any] = {}
    for metric in Metric:
        table = score_runs([run], metric=metric, draws=draws, seed=seed)
        (model,) = table.models
        found[metric.value] = {
            "overall": _estimate(model.overall),
            "slices": [{"kind": s.kind, "value": s.value, **_estimate(s.estimate)} for s in model.slices],
            "table": table.tsv(),
        }
    scores: dict[str, Any] = _printed(
        {
            "format": "medlive-bundle-scores",
            "format_version": 1,
            "bootstrap": {"draws": draws, "seed": seed, "level": 0.95},
            "errata": None if errata is None else dict(errata),
            "rates": {**asdict(model.rates), "shares": model.rates.shares},
            "errors_by_axis": [{**asdict(axis), "rate": axis.rate} for axis in model.axes],
            "warnings": list(table.warnings),
            **found,
        }
    )
    return scores


def named_errata(cases: tuple[EvaluationCase, ...], row: Mapping[str, Any]) -> RunErrata:
    """The errata that a bundle names; which cases they leave without a positive criterion is worked out anew."""
    gone = {str(case_id) for case_id in row["withdrawn_cases"]}
    taken = {(str(one["case_id"]), str(one["criterion_id"])) for one in row["withdrawn_criteria"]}
    emptied = [
        case.case_id
        for case in cases
        if case.positive_points > 0
        and not any(c.points > 0 and (case.case_id, c.id) not in taken for c in case.criteria)
    ]
    return RunErrata("", FoundErrata(None, Errata()), tuple(sorted(gone)), tuple(sorted(taken)), tuple(emptied))


def _estimate(one: Estimate) -> dict[str, Any]:
    return {
        "n": one.n, "mean": one.mean, "ci_low": one.low, "ci_high": one.high, "least": one.least,
        "most": one.most, "bounds_over": one.of,
    }  # fmt: skip


def _printed(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0  # no "-0.0"
    if isinstance(value, Mapping):
        return {key: _printed(item) for key, item in value.items()}
    return [_printed(item) for item in value] if isinstance(value, list | tuple) else value


def case_digest(case: EvaluationCase) -> str:
    """The digest of a case's row in a run's `cases.jsonl`."""
    return digest_json(case.row())


def rows_of(cases: tuple[EvaluationCase, ...]) -> bytes:
    """A run's `cases.jsonl`."""
    rows = "".join(canonical_json(case.row()) + "\n" for case in cases)
    return rows.encode("utf-8", "backslashreplace")


def rows_digest(cases: tuple[EvaluationCase, ...]) -> str:
    """The digest of a run's `cases.jsonl` (`CasesUse.rows`)."""
    return digest_bytes(rows_of(cases))
