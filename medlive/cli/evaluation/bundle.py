"""`medlive eval bundle`, `verify-bundle` and `leaderboard`: a graded run as others can check it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from medlive.cli.evaluation.options import (
    AllowOption,
    DrawsOption,
    Errata,
    ErrataFileOption,
    JudgeOption,
    MetricOption,
    RunArgument,
    SeedOption,
    read_allowed,
)
from medlive.cli.options import JsonOption, grouped, one_of, read_settings
from medlive.cli.output import (
    check_as_json,
    echo,
    print_checks,
    print_result,
    print_table,
    say,
)
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.bundles.leaderboard import Leaderboard, Ranking
    from medlive.evaluation.bundles.verify import BundleReport
    from medlive.evaluation.scoring.errata import RunErrata
    from medlive.evaluation.scoring.graded import GradedRun
    from medlive.integrity.signing import PublicKey

PublicKeyFiles = Annotated[
    list[Path] | None,
    Option(
        "--public-key",
        metavar="FILE",
        help="A key that must have signed it; repeatable.",
    ),
]
UNPROVEN: Final = 4
"""The exit status where nothing failed and not everything is shown: no signature, or steps that were skipped."""
SnapshotOption = Annotated[
    str | None, Option("--snapshot", metavar="PATH", help="The snapshot or cases.")
]


@grouped
def bundle(
    run_dir: RunArgument,
    out: Annotated[Path, Option(metavar="FILE", help="The archive, a .zip.")],
    signing_key: Annotated[
        Path | None, Option(metavar="FILE", help="The key [MEDLIVE_SIGNING_KEY…].")
    ] = None,
    judge: JudgeOption = None,
    *,
    errata: Errata,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a graded run as a bundle: its folder with figures and digests, signed if there is a key.

    The same run and key make the same bytes. The cases are not in it; they are in the snapshot that it names.
    """
    from medlive.evaluation.bundles.bundle import make_bundle
    from medlive.evaluation.bundles.files import write_bundle
    from medlive.evaluation.bundles.public import find_secret
    from medlive.evaluation.scoring.graded import load_graded
    from medlive.integrity.signing import load_signing_key

    key = load_signing_key(os.environ, signing_key)
    run = load_graded(run_dir, judge=judge)
    for note in run.notes:
        say(f"{run_dir}: {note}")
    files = make_bundle(
        run,
        draws=draws,
        seed=seed,
        left_out=_left_out(run, errata),
        key=key,
        allow=read_allowed(allow),
    )
    if (secret := find_secret(files, os.environ)) is not None:
        raise UsageError(
            f"{secret[0]} holds the value of {secret[1]}, and a bundle would publish it"
        )
    write_bundle(files, out)
    sizes = {name: len(data) for name, data in files.items()}
    value = {"path": out, "signed": key and key.public.id_text(), "files": sizes}
    print_result(
        value,
        as_json,
        lambda: print_table(["file", "bytes"], sizes.items()),
        notes=[f"written: {out}"],
    )
    if run.grader is not None and {*run.grader.answered_by} - {run.grader.model}:
        say(
            f"Not all verdicts are by the pinned grader {run.grader.model}: verify-bundle refuses that."
        )
    if key is None:
        say("Unsigned: its origin cannot be verified. --signing-key signs it.")


def _left_out(run: "GradedRun", options: Errata) -> "RunErrata | None":
    """What the figures leave out; None: nothing."""
    from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.instance.paths import snapshots_path

    mode = one_of("--errata", ErrataMode, options.errata)
    home = snapshots_path(read_settings())
    lenient = mode is ErrataMode.IGNORE
    search = ErrataSearch(options.errata_file, home, lenient=lenient)
    use = use_errata([run.run], mode, search)
    for note in use.warnings([run.label]):
        say(note)
    return use.runs[0] if mode is ErrataMode.APPLY else None


def verify_bundle(
    path: Annotated[Path, Argument(help="A bundle.")],
    public_key: PublicKeyFiles = None,
    snapshot: SnapshotOption = None,
    errata_file: ErrataFileOption = None,
    to_run: Annotated[
        Path | None,
        Option(metavar="PATH", help="Write it there as a run, once verified."),
    ] = None,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a bundle and score it again, writing nothing unless --to-run says where.

    Exit status 0: every step passed and it is signed; 1: a step failed, or its figures would mislead; 4: none
    failed, but it is unsigned or steps were skipped. With --public-key a bundle that none of the keys signed fails.
    """
    from medlive.evaluation.bundles.verify import unbundle
    from medlive.evaluation.bundles.verify import verify_bundle as verify
    from medlive.evaluation.scoring.refusals import check_figures, marked

    allowed = read_allowed(allow)
    report = verify(
        path,
        public_keys=_keys(public_key),
        snapshot=_place(snapshot),
        errata_file=errata_file,
    )
    print_result(
        _report_row(report),
        as_json,
        lambda: print_checks(report.steps, most=_MOST),
        failure=None if report.ok else CheckFailed(f"{path.name} does not verify"),
    )
    skipped = "" if report.complete else ", but steps were skipped"
    overridden = check_figures([report.run] if report.run else [], allowed)
    say(marked(f"{path.name} verifies{skipped}", overridden))
    say(_TRUST[report.trust.value])
    if to_run is not None:
        unbundle(report, to_run)
        say(f"written: {to_run}")
    if not report.proven:
        raise typer.Exit(UNPROVEN)


_MOST: Final = 5
"""Faults of a step that a table names; --json has the first twenty."""
_TRUST: Final = {
    "not signed": "Unsigned: its origin cannot be verified; whoever changed it could have updated every digest.",
    "integrity": "Signed with the key that it names itself, which proves no origin; give --public-key.",
    "origin": "Signed with a key that was given.",
    "broken": "Its signature could not be checked.",
}


@grouped
def leaderboard(
    bundles: Annotated[list[Path], Argument(help="Bundles.")],
    snapshot: SnapshotOption = None,
    public_key: PublicKeyFiles = None,
    *,
    errata: Errata,
    most_unscored: Annotated[
        float, Option(min=0, max=1, help="Share of cases that may lack a score.")
    ] = 0.05,
    metric: MetricOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    allow: AllowOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank bundles after verifying each: those of one snapshot, template and grader together, each model once.

    The others are listed apart, with the reason. Exit status 1 where none can be ranked; 4 where one that is ranked is
    unsigned.
    """
    from medlive.evaluation.bundles.leaderboard import rank_bundles
    from medlive.evaluation.bundles.verify import verify_bundle
    from medlive.evaluation.cases.load import load_cases
    from medlive.evaluation.scoring.errata import ErrataMode
    from medlive.evaluation.scoring.metrics import Metric
    from medlive.integrity.checks import Trust

    by = None if metric is None else one_of("--metric", Metric, metric)
    mode = one_of("--errata", ErrataMode, errata.errata)
    allowed = read_allowed(allow)
    keys = _keys(public_key)
    place = _place(snapshot)
    cases = None if place is None else load_cases(place)
    reports = []
    for path in bundles:
        report = verify_bundle(
            path, public_keys=keys, snapshot=cases, errata_file=errata.errata_file
        )
        reports.append(report)
    board = rank_bundles(
        reports,
        metric=by,
        draws=draws,
        seed=seed,
        errata=mode,
        most_unscored=most_unscored,
        allow=allowed,
    )
    print_result(_leaderboard_row(board), as_json, lambda: _print(board))
    if not board.rankings:
        raise CheckFailed("no bundle can be ranked")
    for ranking in board.rankings:
        if any(report.trust is Trust.NOT_SIGNED for report in ranking.ranked):
            raise typer.Exit(UNPROVEN)


def _print(board: "Leaderboard") -> None:
    from medlive.cli.evaluation.score import print_scores
    from medlive.evaluation.cases.selection import in_words
    from medlive.guard.printable import printable

    if len(board.rankings) > 1:
        say(
            f"{len(board.rankings)} rankings: scores of two are of other conditions, and not to be compared"
        )
    for ranking in board.rankings:
        cases = ranking.table.models[0].run.run.info.cases
        grader = ranking.conditions.grader
        echo(
            f"{cases.name}, {cases.count} cases ({in_words(cases.selection)}); template "
            f"{ranking.conditions.template.name}; graded by {grader.model} in {grader.mode} mode"
        )
        print_scores(ranking.table)
        for note in (*ranking.table.warnings, *ranking.notes):
            say(note)
        print_table(
            ["bundle", "model", "signature", "key"],
            [[r.path.name, r.model, r.trust.value, _key_of(r)] for r in ranking.ranked],
        )
    if board.unranked:
        rows = []
        for report, why in board.unranked:
            model = printable(report.model or "")[:100]
            rows.append([printable(report.path.name), model, why])
        print_table(["not ranked", "model", "why"], rows)


def _keys(files: list[Path] | None) -> "list[PublicKey]":
    from medlive.integrity.signing import public_key_of

    return [key for file in files or () if (key := public_key_of(file)) is not None]


def _place(snapshot: str | None) -> Path | None:
    """Where the snapshot lies. Raises BadInput where there is nothing."""
    if snapshot is None:
        return None
    from medlive.instance.paths import snapshot_folder

    return snapshot_folder(read_settings(), snapshot)


def _conditions_row(ranking: "Ranking") -> dict[str, object]:
    info = ranking.table.models[0].run.run.info
    grader = ranking.conditions.grader
    return {
        "snapshot": info.cases.name,
        "snapshot_digest": info.cases.digest,
        "cases": info.cases.count,
        "selection": info.cases.selection,
        "cases_digest": info.cases.rows,
        "template": info.template.model_dump(mode="json"),
        "evidence": info.evidence and info.evidence.model_dump(mode="json"),
        "grader": {
            "engine": grader.engine,
            "model": grader.model,
            "mode": grader.mode,
            "prompt": grader.prompt,
            "judge": grader.judge,
        },
    }


def _key_of(report: "BundleReport") -> str | None:
    return report.info.signing.key_id if report.info and report.info.signing else None


def _report_row(report: "BundleReport") -> dict[str, object]:
    info = report.info
    return {
        "path": report.path,
        "ok": report.ok,
        "complete": report.complete,
        "proven": report.proven,
        "trust": report.trust,
        "key_id": _key_of(report),
        "model": report.model,
        "made_with": info and {"medlive": info.code_version, "numpy": info.numpy},
        "steps": list(map(check_as_json, report.steps)),
    }


def _leaderboard_row(board: "Leaderboard") -> dict[str, object]:
    from medlive.report.tables import scores_json

    rankings, apart = [], []
    for ranking in board.rankings:
        bundles = []
        for report in ranking.ranked:
            about = {
                "path": report.path,
                "model": report.model,
                "trust": report.trust,
                "key_id": _key_of(report),
                "bundle": report.digest,
            }
            bundles.append(about)
        left_out = ranking.left_out
        row = {
            "conditions": _conditions_row(ranking),
            "bundles": bundles,
            "left_out": {"cases": left_out.cases, "criteria": left_out.criteria},
            "notes": ranking.notes,
            "scores": scores_json(ranking.table),
        }
        rankings.append(row)
    for report, why in board.unranked:
        apart.append({"path": report.path, "model": report.model, "why": why})
    return {
        "format": "medlive-leaderboard",
        "format_version": 1,
        "rankings": rankings,
        "apart": apart,
    }
