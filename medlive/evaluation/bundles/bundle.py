"""Make a leaderboard entry: one graded run as a bundle that others can verify and score again.

A bundle contains the digests of its cases, not the cases, which are in the snapshot that it names. Its files are
in canonical form, so the same run gives the same bytes (docs/leaderboard.md).
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from medlive.build import code_version
from medlive.digest import digest_bytes, digest_json
from medlive.errors import UsageError
from medlive.evaluation.bundles.files import (
    BUNDLE,
    CASES,
    EVIDENCE_FILE,
    FINDINGS,
    PROTOCOLS,
    RUN,
    SCORES,
    checksums,
    encode_document,
    encode_row,
    encode_rows,
    rounded,
    trusted_comment,
)
from medlive.evaluation.bundles.protocols import bundled_protocols
from medlive.evaluation.bundles.public import public_answer, public_grade, public_info
from medlive.evaluation.model import Answer, EvaluationCase, Grade
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    CasesUse,
    RunFolder,
    RunInfo,
    TemplateUse,
)
from medlive.evaluation.scoring.errata import (
    ErrataMode,
    FoundErrata,
    RunErrata,
    emptied_cases,
    without,
)
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import EVERYTHING
from medlive.evaluation.scoring.score import Estimate, ScoreTable, score_runs
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.snapshot.errata import Errata
from medlive.snapshot.identity import canary_of

if TYPE_CHECKING:
    from medlive.integrity.signing import SecretKey

UNTRUSTED_COMMENT: Final = "signature of a medlive bundle"
MOST_DRAWS: Final = 10_000
SCORES_VERSION: Final = 4
"""The `format_version` of `scores.json`; version 1 had other intervals, version 2 no complete and no core score,
version 3 intervals of too few cases."""
_METRICS: Final = (Metric.COMPLETE, Metric.PAPER, Metric.PUBLISHED)
"""Those that a bundle holds; rates, errors and warnings are of the first, over criteria of every origin."""
_NOWHERE: Final = Path(os.devnull, "bundle")
"""The run folder of a bundle, which must not exist: only the bundle's content is scored."""


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SigningUse(_Frozen):
    """The key that the bundle claims to be signed with."""

    key_id: str
    public_key: str


class ErrataUse(_Frozen):
    """How errata were handled: the mode, and `RunErrata.row`."""

    mode: ErrataMode
    version: str
    file: Annotated[str, Field(pattern=r"^[^/\\\\]*$")] | None
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
    """`bundle.json`: the run, and all files except itself, the checksums and the signature."""

    format: Literal["medlive-bundle"] = "medlive-bundle"
    format_version: Literal[1] = 1
    code_version: str
    """Of medlive; with the commit where it is known: 0.1.0+g0123456789ab."""
    numpy: str
    model: str
    template: TemplateUse
    parameters: dict[str, Any]
    cases: CasesUse
    grader: Grader
    answers: bool
    canary: str | None
    """The snapshot's, also in every row of answers and grades; None for cases from a file."""
    signing: SigningUse | None
    files: dict[str, FileUse]


def make_bundle(
    run: GradedRun,
    *,
    answers: bool = True,
    draws: int = 1000,
    seed: int = 0,
    errata: tuple[ErrataMode, RunErrata] | None = None,
    protocols: Path | None = None,
    key: "SecretKey | None" = None,
) -> dict[str, bytes]:
    """Make the files of a run's bundle, by name; the same bytes for the same run, options and key.

    With `answers` it includes answers and grades, so that others can score and grade again; `draws` is 1 to
    `MOST_DRAWS`; `protocols` is the folder of `protocol all`, whose results about this run alone are included.

    Raises:
        UsageError: If nothing is graded, the run is raw, or `draws` is out of range.
        CheckFailed: If errata leave no case.
    """
    if not 1 <= draws <= MOST_DRAWS:
        raise UsageError(f"expected 1 to {MOST_DRAWS} draws, got {draws}")
    rows = bundled_rows(run)
    scored_run = bundled_run(run.run.info, run.run.cases, *rows)
    grader = _check_graded(run, scored_run, rows.grades)
    errata_row = None
    if errata is not None:
        errata_row = {"mode": errata[0].value, **errata[1].row()}
    info = public_info(run.run.info)
    canary = canary_of_cases(info)
    files = {
        RUN: encode_document(info.model_dump(mode="json")),
        CASES: encode_document({"cases": case_digests(run.run.cases)}),
        SCORES: encode_document(bundle_scores(scored_run, errata_row, draws, seed)),
    }
    if answers:
        files[RESPONSES] = encode_rows(rows.answers, canary)
        files[GRADES] = encode_rows(rows.grades, canary)
        if (evidence := run.run.evidence()) is not None:
            files[EVIDENCE_FILE] = evidence.data()
    if protocols is not None:
        if not answers:
            raise UsageError(
                "the results of protocols are verified by the answers, which are left out"
            )
        document, findings = bundled_protocols(
            scored_part(scored_run, errata_row), protocols
        )
        files[PROTOCOLS] = encode_document(document)
        files[FINDINGS] = encode_rows(findings, canary)
    signing = None
    if key is not None:
        signing = SigningUse(key_id=key.public.id_text(), public_key=key.public.line())
    bundle_info = describe_bundle(info, grader, answers, signing, files)
    files[BUNDLE] = encode_document(bundle_info.model_dump(mode="json"))
    files[SUMS] = checksums(files)
    if key is not None:
        from medlive.integrity.signing import sign

        comment = trusted_comment(files[BUNDLE])
        signature = sign(files[SUMS], key, comment, UNTRUSTED_COMMENT)
        files[SIGNATURE] = signature.encode("ascii")
    return dict(sorted(files.items()))


def describe_bundle(
    info: RunInfo,
    grader: Grader,
    answers: bool,
    signing: SigningUse | None,
    files: Mapping[str, bytes],
) -> BundleInfo:
    """What `bundle.json` says of a run and its other files."""
    uses = {}
    for name, data in sorted(files.items()):
        uses[name] = FileUse(bytes=len(data), digest=digest_bytes(data))
    return BundleInfo(
        code_version=code_version(),
        numpy=np.__version__,
        model=info.model,
        template=info.template,
        parameters=info.parameters,
        cases=info.cases,
        grader=grader,
        answers=answers,
        canary=canary_of_cases(info),
        signing=signing,
        files=uses,
    )


def _check_graded(run: GradedRun, bundled: GradedRun, grades: list[Grade]) -> Grader:
    """The grader of a run that may be published. Raises UsageError for others."""
    if run.grader is None:
        raise UsageError(
            f"{run.run.path}: nothing is graded", hint="medlive eval grade comes first"
        )
    if run.run.info.raw:
        raise UsageError(
            f"{run.run.path}: raw runs use the threads' own words, which cannot be published"
        )
    if bundled.grader is None:
        raise UsageError(f"{run.run.path}: no verdict matches a current answer")
    if all(grade.met is None for grade in grades):
        raise UsageError(
            f"{run.run.path}: every criterion is ungraded",
            hint="medlive eval grade asks again",
        )
    return bundled.grader


def canary_of_cases(info: RunInfo) -> str | None:
    """The canary of the cases' snapshot; None for cases from a file."""
    return canary_of(info.cases.name) if info.cases.origin == "snapshot" else None


class BundledRows(NamedTuple):
    """The rows of a bundle's logs."""

    answers: list[Answer]
    grades: list[Grade]


def bundled_rows(run: GradedRun) -> BundledRows:
    """The latest answer of each case and the current grades, in the order of cases and criteria."""
    rows = BundledRows([], [])
    for case in run.run.cases:
        if case.case_id in run.answers:
            rows.answers.append(public_answer(run.answers[case.case_id]))
        grades = run.grades.get(case.case_id, {})
        for criterion in case.criteria:
            if criterion.id in grades:
                grade = public_grade(grades[criterion.id])
                # A grade reused by its key may have been written for another case with the same text.
                rows.grades.append(
                    replace(grade, case_id=case.case_id, criterion_id=criterion.id)
                )
    return rows


def bundled_run(
    info: RunInfo,
    cases: tuple[EvaluationCase, ...],
    answers: list[Answer],
    grades: list[Grade],
) -> GradedRun:
    """A run with exactly these answers and grades, as it is scored here and in verification."""
    by_case: dict[str, dict[str, Grade]] = {}
    met: dict[str, dict[str, bool | None]] = {}
    for grade in grades:
        by_case.setdefault(grade.case_id, {})[grade.criterion_id] = grade
        met.setdefault(grade.case_id, {})[grade.criterion_id] = grade.met
    grader = None
    if grades:
        first = grades[0]
        grader = Grader(
            engine=first.engine,
            model=first.model,
            answered_by=tuple(sorted({grade.grader for grade in grades} - {""})),
            mode=first.mode.value,
            prompt=first.prompt,
            judge=first.judge,
        )
    return GradedRun(
        run=RunFolder(_NOWHERE, info, cases),
        label=info.model,
        answers={answer.case_id: answer for answer in answers},
        grades=by_case,
        grader=grader,
        notes=(),
        met=met,
    )


def scored_part(run: GradedRun, errata: Mapping[str, Any] | None) -> GradedRun:
    """The run without what a bundle's errata record leaves out. Raises KeyError, TypeError, CheckFailed."""
    if errata is None or errata["mode"] != ErrataMode.APPLY.value:
        return run
    return replace(run, run=without(run.run, errata_from_record(run.run.cases, errata)))


def bundle_scores(
    run: GradedRun, errata: Mapping[str, Any] | None, draws: int, seed: int
) -> dict[str, Any]:
    """Make `scores.json`: each metric with intervals, bounds and rates, rounded to `DIGITS` places.

    `run` is of `bundled_run`; with mode "apply" the cases and criteria in `errata` are left out.

    Raises:
        CheckFailed: If errata leave no case.
        KeyError, TypeError: If `errata` is not an errata record.
    """
    run = scored_part(run, errata)
    tables = {
        metric: score_runs(
            [run], metric=metric, draws=draws, seed=seed, allow=EVERYTHING
        )
        for metric in _METRICS
    }
    found = {metric.value: _metric_scores(table) for metric, table in tables.items()}
    whole = tables[Metric.COMPLETE]
    (model,) = whole.models
    # The published metric alone has warnings of its own, and is not computed with.
    warnings = dict.fromkeys((*whole.warnings, *tables[Metric.PUBLISHED].warnings))
    scores = {
        "format": "medlive-bundle-scores",
        "format_version": SCORES_VERSION,
        "bootstrap": {"draws": draws, "seed": seed, "level": 0.95},
        "errata": None if errata is None else dict(errata),
        "rates": {**asdict(model.rates), "shares": model.rates.shares},
        "errors_by_axis": [{**asdict(axis), "rate": axis.rate} for axis in model.axes],
        "warnings": list(warnings),
        "advice_only": whole.beside.advice_only,
        "characters": model.companions.characters,
    }
    return {name: rounded(value) for name, value in (scores | found).items()}


def _metric_scores(table: ScoreTable) -> dict[str, Any]:
    """One metric's part of `scores.json`; the core score is over the criteria that count under it."""
    (model,) = table.models
    slices = [
        {"kind": s.kind, "value": s.value, **_estimate(s.estimate)}
        for s in model.slices
    ]
    return {
        "overall": _estimate(model.overall),
        "core": _estimate(model.companions.core),
        "slices": slices,
        "table": table.tsv(),
    }


def errata_from_record(
    cases: tuple[EvaluationCase, ...], row: Mapping[str, Any]
) -> RunErrata:
    """The errata in a bundle's record; `emptied` is recomputed."""
    criteria = set()
    for withdrawn in row["withdrawn_criteria"]:
        criteria.add((str(withdrawn["case_id"]), str(withdrawn["criterion_id"])))
    return errata_of(cases, set(map(str, row["withdrawn_cases"])), criteria)


def errata_of(
    cases: tuple[EvaluationCase, ...],
    withdrawn: set[str],
    criteria: set[tuple[str, str]],
) -> RunErrata:
    """Errata of these cases and criteria, from no file."""
    emptied = emptied_cases(cases, criteria)
    return RunErrata(
        "",
        FoundErrata(None, Errata()),
        tuple(sorted(withdrawn)),
        tuple(sorted(criteria)),
        emptied,
    )


def _estimate(one: Estimate) -> dict[str, Any]:
    return {
        "n": one.n,
        "mean": one.mean,
        "ci_low": one.low,
        "ci_high": one.high,
        "least": one.least,
        "most": one.most,
        "bounds_over": one.of,
    }


def case_digests(cases: tuple[EvaluationCase, ...]) -> list[list[str]]:
    """`cases.json`: each case's id and the digest of its row in a run's `cases.jsonl`, in order."""
    return [[case.case_id, digest_json(case.row())] for case in cases]


def cases_jsonl(cases: tuple[EvaluationCase, ...]) -> bytes:
    """A run's `cases.jsonl`; its digest is `CasesUse.rows`."""
    return b"".join(encode_row(case.row()) for case in cases)
