"""`medlive eval bundle`, `verify-bundle` and `leaderboard`: a graded run as others can check it."""

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from medlive.cli.options import PublicKeysOption, SnapshotOption
from medlive.cli.output import (
    Grid,
    Result,
    Shown,
    describe_report,
    fields_of,
    say,
    table_of,
)
from medlive.errors import CheckFailed, UsageError
from medlive.evaluation.bundles import verify
from medlive.evaluation.bundles.bundle import NONE_LEFT_OUT, find_secret, make_bundle
from medlive.evaluation.bundles.files import write_bundle
from medlive.evaluation.bundles.leaderboard import Ranking, Unranked, rank_bundles
from medlive.evaluation.bundles.verify import BundleReport
from medlive.evaluation.cases.load import load_cases
from medlive.evaluation.cases.selection import in_words
from medlive.evaluation.scoring.errata import ErrataMode, use_errata
from medlive.evaluation.scoring.refusals import check_figures, marked
from medlive.guard.printable import printable
from medlive.instance.loading import read_settings
from medlive.instance.paths import snapshots_path
from medlive.integrity.signing import load_signing_key
from medlive.report.tables import scores_json

from .options import (
    AllowOption,
    DrawsOption,
    ErrataFileOption,
    ErrataOption,
    JudgeOption,
    MetricOption,
    RunArgument,
    load_runs,
)
from .tables import describe_scores

UNPROVEN = 4
"""The exit status where nothing failed and not everything is shown: no signature, or steps that were skipped."""


def bundle(
    run_dir: RunArgument,
    *,
    out: Path,
    signing_key: Path | None = None,
    judge: JudgeOption = None,
    allow: AllowOption = None,
    errata: ErrataOption = ErrataMode.WARN,
    errata_file: ErrataFileOption = None,
    draws: DrawsOption = 1000,
) -> Result:
    """Write a graded run as a bundle: its folder with figures and digests, signed if there is a key.

    The same run and key make the same bytes. The cases are not in it; they are in the snapshot that it names.

    Args:
        out: The archive, a .zip.
        signing_key: The key to sign with [MEDLIVE_SIGNING_KEY…].
    """
    key = load_signing_key(os.environ, signing_key)
    (run,) = load_runs([run_dir], judge)
    left_out = NONE_LEFT_OUT
    if errata is not ErrataMode.IGNORE:
        home = snapshots_path(read_settings())
        use = use_errata([run.run], errata, file=errata_file, home=home)
        for note in use.warnings([run.label]):
            say(note)
        if errata is ErrataMode.APPLY:
            left_out = use.runs[0]
    files = make_bundle(
        run,
        draws=draws,
        left_out=left_out,
        key=key,
        allow=allow or (),
    )
    if (secret := find_secret(files, os.environ)) is not None:
        raise UsageError(
            f"{secret[0]} holds the value of {secret[1]}, and a bundle would publish it"
        )
    write_bundle(files, out)
    sizes = {name: len(data) for name, data in files.items()}
    value = {"path": out, "signed": key and key.public.id_text(), "files": sizes}
    notes = [f"written: {out}"]
    if run.grader is not None and {*run.grader.answered_by} - {run.grader.model}:
        notes.append(
            f"Not all verdicts are by the pinned grader {run.grader.model}: verify-bundle refuses that."
        )
    if key is None:
        notes.append("Unsigned: its origin cannot be verified. --signing-key signs it.")
    return Result(
        value,
        [Grid(["file", "bytes"], sizes.items())],
        notes,
    )


def verify_bundle(
    path: Path,
    public_key: PublicKeysOption = None,
    snapshot: SnapshotOption = None,
    errata_file: ErrataFileOption = None,
    to_run: Path | None = None,
    allow: AllowOption = None,
) -> Result:
    """Verify a bundle and score it again, writing nothing unless --to-run says where.

    Exit status 0: every step passed and it is signed; 1: a step failed, or its figures would mislead; 4: none
    failed, but it is unsigned or steps were skipped. With --public-key a bundle that none of the keys signed fails.

    Args:
        path: The bundle, a .zip.
        to_run: Write the verified bundle into this folder as a run.
    """
    report = verify.verify_bundle(
        path,
        public_keys=public_key or (),
        snapshot=snapshot,
        errata_file=errata_file,
    )
    result = describe_report(report, ("model",))
    assert isinstance(result.value, dict)
    result.value["key_id"] = _key_of(report)
    if result.failure:
        return result
    try:
        overridden = check_figures([report.run] if report.run else [], allow or ())
    except CheckFailed as misleading:
        return result._replace(notes=(), failure=misleading)
    notes = [marked(note, overridden) for note in result.notes]
    if to_run is not None:
        verify.unbundle(report, to_run)
        notes.append(f"written: {to_run}")
    failure = None if report.complete else typer.Exit(UNPROVEN)
    return result._replace(notes=notes, failure=failure)


def leaderboard(
    bundles: list[Path],
    snapshot: SnapshotOption = None,
    public_key: PublicKeysOption = None,
    metric: MetricOption = None,
    allow: AllowOption = None,
    *,
    errata_file: ErrataFileOption = None,
    draws: DrawsOption = 1000,
) -> Result:
    """Rank bundles after verifying each: those of one snapshot, template and grader together, each model once.

    The others are listed apart, with the reason. Exit status 1 where none can be ranked; 4 where one that is ranked is
    unsigned.

    Args:
        bundles: The bundles to rank.
    """
    cases = None if snapshot is None else load_cases(snapshot)
    reports = []
    for path in bundles:
        report = verify.verify_bundle(
            path,
            public_keys=public_key or (),
            snapshot=cases,
            errata_file=errata_file,
        )
        reports.append(report)
    rankings, unranked = rank_bundles(
        reports,
        metric=metric,
        draws=draws,
        allow=allow or (),
    )
    failure: BaseException | None = None
    notes, rows = [], []
    if not rankings:
        failure = CheckFailed("no bundle can be ranked")
    if len(rankings) > 1:
        notes.append(
            f"{len(rankings)} rankings: scores of different rankings are not to be compared"
        )
    for ranking in rankings:
        notes += [*ranking.table.warnings, *ranking.notes]
        if any(report.trust == "not signed" for report in ranking.ranked):
            failure = typer.Exit(UNPROVEN)
        run = ranking.table.models[0].run
        info = run.info
        pinned = fields_of(run.grader, ("engine", "model", "mode", "prompt", "judge"))
        conditions = {
            "cases": info.cases,
            "template": info.template,
            "evidence": info.evidence,
            "grader": pinned,
        }
        entries = []
        for report in ranking.ranked:
            about = {"key_id": _key_of(report), "bundle": report.digest}
            entries.append(fields_of(report, ("path", "model", "trust")) | about)
        row = {
            "conditions": conditions,
            "bundles": entries,
            "scores": scores_json(ranking.table),
        }
        rows.append(row)
    apart = []
    for report, why in unranked:
        apart.append({"path": report.path, "model": report.model, "why": why})
    value = {"rankings": rows, "apart": apart}
    return Result(value, _describe(rankings, unranked), notes, failure)


def _describe(rankings: Sequence[Ranking], unranked: Unranked) -> Shown:
    """Each ranking with its conditions and scores, then the bundles that are not ranked."""
    for ranking in rankings:
        run = ranking.table.models[0].run
        info, cases = run.info, run.info.cases
        assert run.grader is not None
        yield (
            f"{cases.name}, {cases.count} cases ({in_words(cases.selection)}); template "
            f"{info.template.name}; graded by {run.grader.model} in {run.grader.mode} mode"
        )
        yield from describe_scores(ranking.table)
        yield table_of(ranking.ranked, ("path", "model", "trust"), "bundles")
    rows = []
    for report, why in unranked:
        rows.append([report.path.name, printable(report.model or "")[:100], why])
    yield Grid(["not ranked", "model", "why"], rows)


def _key_of(report: BundleReport) -> str | None:
    return report.info.signing.key_id if report.info and report.info.signing else None
