"""`medlive eval bundle`, `verify-bundle` and `leaderboard`: a graded run as others can check it."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

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
    attributes,
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
    from medlive.evaluation.scoring.errata import ErrataMode, RunErrata
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
    out: Annotated[
        Path, Option(metavar="PATH", help="A file that ends in .zip, or a folder.")
    ],
    signing_key: Annotated[
        Path | None, Option(metavar="FILE", help="The key [MEDLIVE_SIGNING_KEY…].")
    ] = None,
    with_answers: Annotated[
        bool,
        Option(
            "--with-answers/--without-answers", help="Include answers and verdicts."
        ),
    ] = True,
    protocols: Annotated[
        Path | None, Option(metavar="PATH", help="Include what protocol all found.")
    ] = None,
    judge: JudgeOption = None,
    *,
    errata: Errata,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Write a graded run as a bundle: run.json, scores, digests, answers and verdicts, signed if there is a key.

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
    found = _errata(run, errata)
    how: dict[str, Any] = {
        "draws": draws,
        "seed": seed,
        "protocols": protocols,
        "key": key,
    }
    files = make_bundle(run, answers=with_answers, errata=found, **how)
    if (secret := find_secret(files, os.environ)) is not None:
        raise UsageError(
            f"{secret[0]} holds the value of {secret[1]}, and a bundle would publish it"
        )
    write_bundle(files, out)
    sizes = {name: len(data) for name, data in files.items()}
    value = {
        "path": out,
        "signed": key and key.public.id_text(),
        "answers": with_answers,
        "files": sizes,
    }
    show = partial(print_table, ["file", "bytes"], sizes.items())
    print_result(value, as_json, show, notes=[f"written: {out}"])
    if run.grader is not None and any(
        name != run.grader.model for name in run.grader.answered_by
    ):
        say(
            f"Not all verdicts are by the pinned grader {run.grader.model}: verify-bundle refuses that."
        )
    if key is None:
        say("Unsigned: its origin cannot be verified. --signing-key signs it.")


def _errata(run: "GradedRun", given: Errata) -> "tuple[ErrataMode, RunErrata]":
    from medlive.evaluation.scoring.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.service.paths import snapshots_path

    chosen = one_of("--errata", ErrataMode, given.errata)
    home = snapshots_path(read_settings())
    use = use_errata(
        [run.run],
        chosen,
        ErrataSearch(given.errata_file, home, lenient=chosen is ErrataMode.IGNORE),
    )
    for note in use.warnings([run.label]):
        say(note)
    return chosen, use.runs[0]


def verify_bundle(
    path: Annotated[Path, Argument(help="A bundle: a .zip file or a folder.")],
    public_key: PublicKeyFiles = None,
    snapshot: SnapshotOption = None,
    errata_file: ErrataFileOption = None,
    to_run: Annotated[
        Path | None,
        Option(metavar="PATH", help="Write it there as a run, once verified."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a bundle and score it again, writing nothing unless --to-run says where.

    Exit status 0: every step passed and it is signed; 1: a step failed; 4: none failed, but it is unsigned or
    steps were skipped. With --public-key a bundle that none of the keys signed fails.
    """
    from medlive.evaluation.bundles.verify import unbundle
    from medlive.evaluation.bundles.verify import verify_bundle as verify

    keys, place = _keys(public_key), _place(snapshot)
    report = verify(path, public_keys=keys, snapshot=place, errata_file=errata_file)
    failure = None if report.ok else CheckFailed(f"{path.name} does not verify")
    print_result(
        _report_row(report),
        as_json,
        lambda: print_checks(report.steps, most=_MOST),
        failure=failure,
    )
    say(
        f"{path.name} verifies"
        + ("" if report.complete else ", but steps were skipped")
    )
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
    bundles: Annotated[list[Path], Argument(help="Bundles: .zip files or folders.")],
    snapshot: SnapshotOption = None,
    public_key: PublicKeyFiles = None,
    *,
    errata: Errata,
    most_unscored: Annotated[
        float, Option(min=0, max=1, help="Share of cases that may lack a score.")
    ] = 0.05,
    metric: MetricOption = "complete",
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

    chosen, mode = (
        one_of("--metric", Metric, metric),
        one_of("--errata", ErrataMode, errata.errata),
    )
    keys = _keys(public_key)
    place = _place(snapshot)
    cases = None if place is None else load_cases(place)
    given: dict[str, Any] = {
        "public_keys": keys,
        "snapshot": cases,
        "errata_file": errata.errata_file,
    }
    reports = [verify_bundle(path, **given) for path in bundles]
    found = rank_bundles(
        reports,
        metric=chosen,
        draws=draws,
        seed=seed,
        errata=mode,
        most_unscored=most_unscored,
        allow=read_allowed(allow),
    )
    print_result(_leaderboard_row(found), as_json, lambda: _print(found))
    if not found.rankings:
        raise CheckFailed("no bundle can be ranked")
    if any(
        r.trust is Trust.NOT_SIGNED
        for ranking in found.rankings
        for r in ranking.ranked
    ):
        raise typer.Exit(UNPROVEN)


def _print(found: "Leaderboard") -> None:
    from medlive.cli.evaluation.score import print_scores
    from medlive.printable import printable

    if len(found.rankings) > 1:
        say(
            f"{len(found.rankings)} rankings: scores of two are of other conditions, and not to be compared"
        )
    for ranking in found.rankings:
        row = _conditions_row(ranking)
        part = ", ".join(f"{k} {v}" for k, v in (row["selection"] or {}).items())
        echo(
            f"{row['snapshot']}, {row['cases']} cases{f' ({part})' if part else ''}; template "
            f"{row['template']['name']}; graded by {row['grader']['model']} in {row['grader']['mode']} mode"
        )
        print_scores(ranking.table)
        for warning in ranking.table.warnings:
            say(warning)
        print_table(
            ["bundle", "model", "signature", "key"],
            [
                [r.path.name, r.info.model, r.trust.value, _key_of(r)]
                for r in ranking.ranked
                if r.info
            ],
        )
        for note in ranking.notes:
            say(note)
    if found.unranked:
        print_table(
            ["not ranked", "model", "why"],
            [
                [printable(r.path.name), r.info and printable(r.info.model)[:100], why]
                for r, why in found.unranked
            ],
        )


def _keys(files: list[Path] | None) -> "list[PublicKey]":
    from medlive.integrity.signing import public_key_of

    return [key for file in files or () if (key := public_key_of(file)) is not None]


def _place(snapshot: str | None) -> Path | None:
    """Where the snapshot lies. Raises BadInput where there is nothing."""
    if snapshot is None:
        return None
    from medlive.service.paths import snapshot_folder

    return snapshot_folder(read_settings(), snapshot)


def _conditions_row(ranking: "Ranking") -> dict[str, Any]:
    info = ranking.table.models[0].run.run.info
    shared = ranking.conditions
    return attributes(
        info.cases, "snapshot=name snapshot_digest=digest cases=count selection"
    ) | {
        "cases_digest": shared.rows,
        "template": shared.template.model_dump(mode="json"),
        "evidence": info.evidence and info.evidence.model_dump(mode="json"),
        "grader": attributes(shared.grader, "engine model mode prompt judge"),
    }


def _key_of(report: "BundleReport") -> str | None:
    return report.info.signing.key_id if report.info and report.info.signing else None


def _report_row(report: "BundleReport") -> dict[str, Any]:
    info = report.info
    return attributes(report, "path ok complete proven trust") | {
        "key_id": _key_of(report),
        "model": info and info.model,
        "made_with": info and attributes(info, "medlive=code_version numpy"),
        "steps": [check_as_json(step) for step in report.steps],
    }


def _leaderboard_row(found: "Leaderboard") -> dict[str, Any]:
    from medlive.report.tables import scores_json

    return {
        "format": "medlive-leaderboard",
        "format_version": 1,
        "rankings": [
            {
                "conditions": _conditions_row(ranking),
                "bundles": [
                    attributes(r, "path model=info.model trust")
                    | {
                        "key_id": _key_of(r),
                        "bundle": r.info.files["scores.json"].digest,
                    }
                    for r in ranking.ranked
                    if r.info is not None
                ],
                "left_out": attributes(ranking.left_out, "cases criteria"),
                "notes": ranking.notes,
                "scores": scores_json(ranking.table),
            }
            for ranking in found.rankings
        ],
        "apart": [
            {"path": r.path, "model": r.info and r.info.model, "why": w}
            for r, w in found.unranked
        ],
    }
