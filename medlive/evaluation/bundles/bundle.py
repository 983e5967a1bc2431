"""Make a bundle (`make_bundle`): a graded run, with figures and digests, that others can verify and score again.

Keys, and addresses and paths of the machine that made it, are removed. The cases are not in it, but in the snapshot
that its `run.json` names. Everything has one form, so the same run gives the same bytes (docs/leaderboard.md).
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field

from medlive.build import code_version
from medlive.errors import UsageError
from medlive.evaluation.harm import READINGS, UNCHECKED, HarmRow, RunHarm
from medlive.evaluation.model import Answer, EvaluationCase, Grade
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    Frozen,
    RunFolder,
    RunInfo,
    check_parameters,
    leaves,
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

from .files import (
    BUNDLE,
    RUN,
    SCORES,
    checksums,
    encode_document,
    encode_figures,
    encode_rows,
    trusted_comment,
)

UNTRUSTED_COMMENT = "signature of a medlive bundle"
MOST_DRAWS = 10_000
_METRICS = (Metric.PUBLISHED, Metric.PAPER, Metric.COMPLETE)
"""The metrics of every bundle's figures; rates and errors are of the last, over criteria of every origin."""
NONE_LEFT_OUT = RunErrata(version="")
_NOWHERE = Path(os.devnull, "bundle")
"""The run folder of a bundle, which must not exist: only the bundle's content is scored."""

_SECRET_VARIABLE = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE
)
_LONG = 12
"""Shorter values could be found in a text by chance."""
_PRIVATE = re.compile(r"://[^/@\s]+@|\A(?:/[\w.-]+/|~/|[A-Za-z]:\\)")
"""A login in an address, or a path."""
_PATH = re.compile(r"(?:/|~/|[A-Za-z]:[\\/]|\\\\|\.{1,2}/)")
"""The beginning of a model's name that is a path."""
_NO_REPLY = {
    "endpoint: ": "endpoint: no reply came",
    "batch: ": "batch: no reply that counts",
}
"""Prefixes of failure reasons that may name machines, and their replacements."""
_MOST_USED = 1e15
"""Larger counts in a usage are left out."""
Row = TypeVar("Row", Answer, Grade, HarmRow)


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
    """What the figures leave out of other cases, as (case id, criterion id)."""
    signing: SigningUse | None


Logs = dict[str, list[Any]]
"""The rows of a bundle's logs by file: answers, grades, and readings for harm in the order of the cases, then the
controls."""


def make_bundle(
    run: GradedRun,
    *,
    draws: int = 1000,
    seed: int = 0,
    left_out: RunErrata = NONE_LEFT_OUT,
    key: SecretKey | None = None,
    allow: Collection[Allow] = (),
) -> dict[str, bytes]:
    """Make the files of a run's bundle, by name; the same bytes for the same run, options and key.

    Args:
        run: What is published.
        draws: Bootstrap draws, 1 to `MOST_DRAWS`.
        seed: Seed of the draws.
        left_out: What the figures leave out as withdrawn.
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
    if all(grade.met is None for grade in rows[GRADES]):
        raise UsageError(
            f"{run.run.path}: no criterion of a current answer has a verdict",
            hint="medlive eval grade comes first",
        )
    signing = None
    if key is not None:
        public = key.public
        signing = SigningUse(key_id=public.id_text(), public_key=public.line())
    about = BundleInfo(
        code_version=code_version(),
        numpy=np.__version__,
        canary=canary_of_cases(info),
        draws=draws,
        seed=seed,
        withdrawn_cases=left_out.cases,
        withdrawn_criteria=left_out.criteria,
        signing=signing,
    )
    bundled = bundled_run(info, run.cases, rows)
    evidence = run.run.evidence()
    files = run_files(info, rows, evidence.data() if evidence else None)
    files[SCORES] = encode_figures(bundle_scores(bundled, about))
    files[BUNDLE] = encode_document(about.model_dump(mode="json"))
    files[SUMS] = checksums(files)
    if key is not None:
        comment = trusted_comment(files[BUNDLE])
        signature = sign(
            files[SUMS],
            key,
            comment,
            UNTRUSTED_COMMENT,
        )
        files[SIGNATURE] = signature.encode("ascii")
    return files


def canary_of_cases(info: RunInfo) -> str | None:
    """The canary of the cases' snapshot; None for cases from a file."""
    return canary_of(info.cases.name) if info.cases.origin == "snapshot" else None


def bundled_rows(run: GradedRun) -> Logs:
    """The latest answer of each case and the current grades, in the order of cases and criteria; without what must
    not be published."""
    rows: Logs = {RESPONSES: [], GRADES: [], READINGS: []}
    for case in run.cases:
        if case.case_id in run.answers:
            rows[RESPONSES].append(run.answers[case.case_id])
        grades = run.grades.get(case.case_id, {})
        for criterion in case.criteria:
            if criterion.id in grades:
                # A grade reused by its key may have been written for another case with the same text.
                grade = replace(
                    grades[criterion.id],
                    case_id=case.case_id,
                    criterion_id=criterion.id,
                )
                rows[GRADES].append(grade)
        if (reading := run.harm_of(case.case_id)) is not None:
            rows[READINGS].append(replace(reading, case_id=case.case_id))
    if run.harm is not None:
        rows[READINGS].extend(run.harm.controls)
    return public_rows(rows)


def public_rows(logs: Logs) -> Logs:
    """The rows without what must not be published."""
    return {name: list(map(public_row, rows)) for name, rows in logs.items()}


def bundled_run(
    info: RunInfo,
    cases: tuple[EvaluationCase, ...],
    rows: Logs,
) -> GradedRun:
    """A run with exactly these answers and grades, as it is scored here and in verification."""
    by_case: dict[str, dict[str, Grade]] = {}
    for grade in rows[GRADES]:
        by_case.setdefault(grade.case_id, {})[grade.criterion_id] = grade
    grader = None
    if rows[GRADES]:
        first = rows[GRADES][0]
        grader = Grader(
            engine=first.engine,
            model=first.model,
            answered_by=tuple(sorted({grade.grader for grade in rows[GRADES]} - {""})),
            mode=first.mode,
            prompt=first.prompt,
            judge=first.judge,
        )
    return GradedRun(
        run=RunFolder(_NOWHERE, info, cases),
        label=info.model,
        answers={answer.case_id: answer for answer in rows[RESPONSES]},
        known_grades=by_case,
        grader=grader,
        notes=(),
        harm=RunHarm.from_rows(rows[READINGS]) if rows[READINGS] else None,
    )


def run_files(
    info: RunInfo,
    rows: Logs,
    evidence: bytes | None,
) -> dict[str, bytes]:
    """The files of a run's folder that a bundle holds, by name; all but the cases."""
    canary = canary_of_cases(info)
    files = {}
    for name, log in rows.items():
        if log or name != READINGS:
            files[name] = encode_rows(log, canary)
    if evidence is not None:
        files[EVIDENCE] = evidence
    # Last, since it makes a folder a run.
    files[RUN] = encode_document(info.model_dump(mode="json"))
    return files


def bundle_scores(run: GradedRun, about: BundleInfo) -> dict[str, Any]:
    """`scores.json`, without what the bundle leaves out: the figures of each metric with intervals and bounds, rates
    and errors by axis. Raises CheckFailed if no case is left."""
    left_out = errata_of(run.cases, about.withdrawn_cases, about.withdrawn_criteria)
    run = replace(run, run=without(run.run, left_out))
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
        slices = []
        for kind, values in model.slices.items():
            for value, estimate in values.items():
                row = {"kind": kind, "value": value, "estimate": estimate.row()}
                slices.append(row)
        scores[metric] = {
            "overall": model.overall.row(),
            "core": model.companions.core.row(),
            "slices": slices,
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
    """Errata that withdraw these cases and criteria, without a file."""
    known = set(criteria)
    return RunErrata(
        version="",
        cases=tuple(sorted(withdrawn)),
        criteria=tuple(sorted(known)),
        emptied=emptied_cases(cases, known),
    )


def public_info(info: RunInfo) -> RunInfo:
    """Remove the endpoint, the path to the snapshot, and paths in model names from `run.json`.

    Raises UsageError if a parameter looks like a secret or contains a login or a path: parameters define the run,
    so they cannot be removed.
    """
    check_parameters(info.parameters)
    for place, value in leaves(info.parameters):
        if isinstance(value, str) and _PRIVATE.search(value):
            raise UsageError(
                f"the parameter {place} contains a login or a path, and a bundle would publish it"
            )
    public = {
        "endpoint": None,
        "snapshots": None,
        "model": public_name(info.model),
        "asked_as": info.asked_as and public_name(info.asked_as),
    }
    return info.model_copy(update=public)


def public_row(row: Row) -> Row:
    """Remove from a row of a log machine names, an answer's thinking, and everything but numbers from the usage."""
    if isinstance(row, Answer):
        return replace(
            row,
            model=public_name(row.model),
            reason="no answer came" if row.reason else "",
            usage=_numbers(row.usage),
            thinking="",
        )
    if isinstance(row, Grade):
        return replace(
            row,
            reason=_public_reason(row.reason),
            grader=public_name(row.grader),
            model=public_name(row.model),
            usage=_numbers(row.usage),
        )
    return replace(
        row,
        missing=_public_reason(row.missing.removeprefix(UNCHECKED)),
        reader=public_name(row.reader),
        checker=public_name(row.checker),
    )


def _public_reason(reason: str) -> str:
    """A reason without what may name machines."""
    for prefix, text in _NO_REPLY.items():
        if reason.startswith(prefix):
            return text
    return reason


def _numbers(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The counts of a usage: numbers from 0 on, and None for unknown."""
    counts = {}
    for name, value in usage.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or (number and 0 <= value < _MOST_USED):
            counts[name] = value
    return counts


def public_name(model: str) -> str:
    """A model's name; the last part of a path, by which serving software may name models."""
    if not _PATH.match(model):
        return model
    return re.split(r"[\\/]", model.rstrip("\\/"))[-1] or model


def find_secret(
    files: Mapping[str, bytes],
    environ: Mapping[str, str],
) -> tuple[str, str] | None:
    """The first file with the value of a secret environment variable, and the variable's name; None if none."""
    secrets: dict[str, bytes] = {}
    for name, value in environ.items():
        if _SECRET_VARIABLE.search(name) and len(value) >= _LONG:
            secrets[name] = os.fsencode(value)
    for file, data in files.items():
        for name, secret in secrets.items():
            if secret in data:
                return file, name
    return None
