"""Make a bundle: a graded run's folder, with figures and digests, that others can verify and score again.

The cases are not in it, but in the snapshot that its `run.json` names. Everything has one form, so the same run gives
the same bytes (docs/leaderboard.md).
"""

import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field

from medlive.build import code_version
from medlive.errors import UsageError
from medlive.evaluation.bundles.files import (
    BUNDLE,
    RUN,
    SCORES,
    checksums,
    encode_document,
    encode_figures,
    encode_rows,
    trusted_comment,
)
from medlive.evaluation.bundles.public import (
    public_answer,
    public_grade,
    public_harm,
    public_info,
)
from medlive.evaluation.harm import READINGS, HarmRow, RunHarm
from medlive.evaluation.model import Answer, EvaluationCase, Grade
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    Frozen,
    RunFolder,
    RunInfo,
)
from medlive.evaluation.runs.templates import EVIDENCE
from medlive.evaluation.scoring.errata import (
    RunErrata,
    emptied_cases,
    without,
)
from medlive.evaluation.scoring.estimates import axis_rows
from medlive.evaluation.scoring.graded import GradedRun, Grader
from medlive.evaluation.scoring.metrics import Metric
from medlive.evaluation.scoring.refusals import EVERYTHING, Allow, check_figures
from medlive.evaluation.scoring.score import score_runs
from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.integrity.signing import SecretKey, sign
from medlive.snapshot.model import canary_of

UNTRUSTED_COMMENT: Final = "signature of a medlive bundle"
MOST_DRAWS: Final = 10_000
_METRICS: Final = (Metric.PUBLISHED, Metric.PAPER, Metric.COMPLETE)
"""Those that a bundle holds; rates and errors are of the last, over criteria of every origin."""
_NOWHERE: Final = Path(os.devnull, "bundle")
"""The run folder of a bundle, which must not exist: only the bundle's content is scored."""


class SigningUse(Frozen):
    """The key that the bundle claims to be signed with."""

    key_id: str
    public_key: str


class BundleInfo(Frozen):
    """`bundle.json`: how the figures were made. The run itself is in `run.json`, the digests in `SHA256SUMS`."""

    format: Literal["medlive-bundle"] = "medlive-bundle"
    format_version: Literal[2] = 2
    code_version: str
    """Of medlive; with the commit where it is known: 0.1.0+g0123456789ab."""
    numpy: str
    canary: str | None
    """The snapshot's, also in every row of answers and grades; None for cases from a file."""
    draws: int = Field(ge=1, le=MOST_DRAWS)
    seed: int = Field(ge=0, lt=2**63)
    withdrawn_cases: tuple[str, ...]
    """What the figures leave out, as errata say."""
    withdrawn_criteria: tuple[tuple[str, str], ...]
    """The same of other cases, as (case id, criterion id)."""
    signing: SigningUse | None


class BundledRows(NamedTuple):
    """The rows of a bundle's logs."""

    answers: list[Answer]
    grades: list[Grade]
    harm: list[HarmRow]
    """The readings in the order of the cases, then the controls."""


def make_bundle(
    run: GradedRun,
    *,
    draws: int = 1000,
    seed: int = 0,
    left_out: RunErrata | None = None,
    key: SecretKey | None = None,
    allow: Collection[Allow] = (),
) -> dict[str, bytes]:
    """Make the files of a run's bundle, by name; the same bytes for the same run, options and key.

    Args:
        run: What is published.
        draws: 1 to `MOST_DRAWS`.
        seed: Of the draws.
        left_out: What the figures leave out as withdrawn; None: nothing.
        key: Signs the bundle.
        allow: The objections to the figures that are overridden.

    Raises:
        CheckFailed: If the figures would mislead, and `allow` does not override it; or errata leave no case.
        UsageError: If nothing is graded, the run is raw, or `draws` is out of range.
    """
    if not 1 <= draws <= MOST_DRAWS:
        raise UsageError(f"expected 1 to {MOST_DRAWS} draws, got {draws}")
    check_figures([run], allow)
    info = public_info(run.info)
    rows = bundled_rows(run)
    if info.raw:
        raise UsageError(
            f"{run.run.path}: raw runs use the threads' own words, which cannot be published"
        )
    if all(grade.met is None for grade in rows.grades):
        raise UsageError(
            f"{run.run.path}: no criterion of a current answer has a verdict",
            hint="medlive eval grade comes first",
        )
    signing = None
    if key is not None:
        signing = SigningUse(
            key_id=key.public.id_text(),
            public_key=key.public.line(),
        )
    about = BundleInfo(
        code_version=code_version(),
        numpy=np.__version__,
        canary=canary_of_cases(info),
        draws=draws,
        seed=seed,
        withdrawn_cases=left_out.cases if left_out else (),
        withdrawn_criteria=left_out.criteria if left_out else (),
        signing=signing,
    )
    bundled = bundled_run(info, run.cases, rows)
    evidence = run.run.evidence()
    files = run_files(bundled, None if evidence is None else evidence.data())
    files[SCORES] = encode_figures(bundle_scores(scored_part(bundled, about), about))
    files[BUNDLE] = encode_document(about.model_dump(mode="json"))
    files[SUMS] = checksums(files)
    if key is not None:
        comment = trusted_comment(files[BUNDLE])
        signature = sign(files[SUMS], key, comment, UNTRUSTED_COMMENT)
        files[SIGNATURE] = signature.encode("ascii")
    return files


def canary_of_cases(info: RunInfo) -> str | None:
    """The canary of the cases' snapshot; None for cases from a file."""
    return canary_of(info.cases.name) if info.cases.origin == "snapshot" else None


def bundled_rows(run: GradedRun) -> BundledRows:
    """The latest answer of each case and the current grades, in the order of cases and criteria."""
    rows = BundledRows([], [], [])
    for case in run.cases:
        if case.case_id in run.answers:
            rows.answers.append(public_answer(run.answers[case.case_id]))
        grades = run.grades.get(case.case_id, {})
        for criterion in case.criteria:
            if criterion.id in grades:
                grade = public_grade(grades[criterion.id])
                # A grade reused by its key may have been written for another case with the same text.
                grade = replace(
                    grade,
                    case_id=case.case_id,
                    criterion_id=criterion.id,
                )
                rows.grades.append(grade)
        if (reading := run.harm_of(case.case_id)) is not None:
            rows.harm.append(public_harm(replace(reading, case_id=case.case_id)))
    if run.harm is not None:
        rows.harm.extend(map(public_harm, run.harm.controls))
    return rows


def bundled_run(
    info: RunInfo,
    cases: tuple[EvaluationCase, ...],
    rows: BundledRows,
) -> GradedRun:
    """A run with exactly these answers and grades, as it is scored here and in verification."""
    by_case: dict[str, dict[str, Grade]] = {}
    for grade in rows.grades:
        by_case.setdefault(grade.case_id, {})[grade.criterion_id] = grade
    grader = None
    if rows.grades:
        first = rows.grades[0]
        grader = Grader(
            engine=first.engine,
            model=first.model,
            answered_by=tuple(sorted({grade.grader for grade in rows.grades} - {""})),
            mode=first.mode,
            prompt=first.prompt,
            judge=first.judge,
        )
    return GradedRun(
        run=RunFolder(_NOWHERE, info, cases),
        label=info.model,
        answers={answer.case_id: answer for answer in rows.answers},
        grades=by_case,
        grader=grader,
        notes=(),
        harm=RunHarm.from_rows(rows.harm) if rows.harm else None,
    )


def run_files(run: GradedRun, evidence: bytes | None) -> dict[str, bytes]:
    """The files of a run's folder that a bundle holds, by name; all but the cases."""
    rows = bundled_rows(run)
    canary = canary_of_cases(run.info)
    files = {
        RESPONSES: encode_rows(rows.answers, canary),
        GRADES: encode_rows(rows.grades, canary),
    }
    if rows.harm:
        files[READINGS] = encode_rows(rows.harm, canary)
    if evidence is not None:
        files[EVIDENCE] = evidence
    # Last, since it makes a folder a run.
    files[RUN] = encode_document(run.info.model_dump(mode="json"))
    return files


def scored_part(run: GradedRun, about: BundleInfo) -> GradedRun:
    """The run without what the bundle leaves out. Raises CheckFailed if no case is left."""
    left_out = errata_of(run.cases, about.withdrawn_cases, about.withdrawn_criteria)
    return replace(run, run=without(run.run, left_out))


def bundle_scores(run: GradedRun, about: BundleInfo) -> dict[str, Any]:
    """`scores.json`: the figures of each metric with intervals and bounds, rates and errors by axis."""
    scores: dict[str, Any] = {}
    metrics = (Metric.SAFE, *_METRICS) if run.harm else _METRICS
    for metric in metrics:
        table = score_runs(
            [run],
            metric=metric,
            draws=about.draws,
            seed=about.seed,
            allow=EVERYTHING,
        )
        (model,) = table.models
        scores[metric] = {
            "overall": model.overall.row(),
            "core": model.companions.core.row(),
            "slices": [part.row() for part in model.slices],
            "warnings": table.warnings,
        }
    scores["rates"] = asdict(model.rates)
    if run.harm:
        scores["harm"] = model.harm.row()
    scores["errors_by_axis"] = axis_rows(model.axes)
    return scores


def errata_of(
    cases: tuple[EvaluationCase, ...],
    withdrawn: Iterable[str],
    criteria: Iterable[tuple[str, str]],
) -> RunErrata:
    """Errata of these cases and criteria, from no file."""
    known = set(criteria)
    return RunErrata(
        version="",
        cases=tuple(sorted(withdrawn)),
        criteria=tuple(sorted(known)),
        emptied=emptied_cases(cases, known),
    )
