"""`medlive eval bundle`, `verify-bundle` and `leaderboard`: a graded run as others can check it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from medlive.cli.evaluation_options import MetricOption, RunArgument
from medlive.cli.evaluation_score import DrawsOption, ErrataFileOption, JudgeOption, SeedOption
from medlive.cli.output import JsonOption, print_json, print_table, say
from medlive.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from medlive.evaluation.bundle_verify import BundleReport
    from medlive.evaluation.errata import ErrataMode, RunErrata
    from medlive.evaluation.graded import GradedRun
    from medlive.evaluation.leaderboard import Leaderboard
    from medlive.evaluation.model import CaseSet
    from medlive.snapshot.signing import PublicKey

PublicKeyFile = Annotated[
    Path | None,
    typer.Option(
        "--public-key",
        metavar="FILE",
        help="The key that must have signed it; without one, the key that it names, which proves no origin.",
    ),
]
SnapshotOption = Annotated[
    Path | None,
    typer.Option("--snapshot", metavar="PATH", help="The snapshot, or file of cases [the version it names]."),
]


def bundle(
    run_dir: RunArgument,
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="A file that ends in .zip, or a folder.")],
    signing_key: Annotated[
        Path | None,
        typer.Option(
            "--signing-key", metavar="FILE", help="minisign's secret key [as MEDLIVE_SIGNING_KEY_FILE says]."
        ),
    ] = None,
    with_answers: Annotated[
        bool,
        typer.Option(
            "--with-answers/--without-answers", help="Answers and verdicts, so that others can score again."
        ),
    ] = True,
    judge: JudgeOption = None,
    errata: Annotated[
        str, typer.Option("--errata", help="Of what was withdrawn since: warn, apply (leave it out) or ignore.")
    ] = "warn",
    errata_file: ErrataFileOption = None,
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Write a graded run as a bundle: run.json, scores, digests, answers and verdicts, signed if there is a key.

    The same run and key make the same bytes. The cases are not in it; they are in the snapshot that it names.
    """
    from medlive.evaluation.bundle import make_bundle, write_bundle
    from medlive.evaluation.graded import load_graded
    from medlive.snapshot.signing import load_signing_key

    key = load_signing_key(os.environ, signing_key)
    run = load_graded(run_dir, judge=judge)
    for note in run.notes:
        say(f"{run_dir}: {note}")
    found = _errata(run, errata, errata_file)
    files = make_bundle(run, answers=with_answers, draws=draws, seed=seed, errata=found, key=key)
    write_bundle(files, out)
    if as_json:
        print_json(
            {"path": out, "signed": None if key is None else key.public.id_text(), "answers": with_answers,
             "files": {name: len(data) for name, data in files.items()}}
        )  # fmt: skip
    else:
        print_table(["file", "bytes"], [[name, len(data)] for name, data in files.items()])
    say(f"written: {out}")
    if run.grader is not None and any(name != run.grader.model for name in run.grader.answered_by):
        say(f"Not all verdicts are by the pinned grader {run.grader.model}: verify-bundle refuses that.")
    if key is None:
        say("It is not signed: nothing will prove whose it is. --signing-key signs it.")


def _errata(run: "GradedRun", mode: str, file: Path | None) -> "tuple[ErrataMode, RunErrata]":
    from medlive.evaluation.errata import ErrataMode, ErrataSearch, use_errata
    from medlive.service.paths import snapshots_path

    if mode not in set(ErrataMode):
        raise UsageError(f"--errata {mode}: choose {' or '.join(ErrataMode)}")
    chosen = ErrataMode(mode)
    from medlive.config import load_settings

    home = snapshots_path(load_settings().settings)
    use = use_errata([run.run], chosen, ErrataSearch(file, home, lenient=chosen is ErrataMode.IGNORE))
    for said in use.told([run.label]):
        say(said)
    return chosen, use.runs[0]


def verify_bundle(
    path: Annotated[Path, typer.Argument(help="A bundle: a .zip file or a folder.")],
    public_key: PublicKeyFile = None,
    snapshot: SnapshotOption = None,
    errata_file: ErrataFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a bundle and score it again, writing nothing; exit status 1 when a step fails."""
    from medlive.snapshot.public_key import public_key_of

    report = _verified(path, public_key_of(public_key), snapshot, errata_file)
    if as_json:
        print_json(_report_row(report))
    else:
        print_table(
            ["step", "what", "state", "finding"],
            [
                [s.number, s.name, s.state.value, "; ".join(map(str, s.findings)) or s.why or None]
                for s in report.steps
            ],
        )
    if not report.ok:
        raise CheckFailed(f"{path.name} does not verify")
    say(f"{path.name} verifies" + ("" if report.complete else ", but steps were skipped"))
    say(f"signature: {report.trust.value}")


def leaderboard(
    bundles: Annotated[list[Path], typer.Argument(help="Bundles: .zip files or folders.")],
    snapshot: SnapshotOption = None,
    public_key: PublicKeyFile = None,
    errata_file: ErrataFileOption = None,
    metric: MetricOption = "paper",
    draws: DrawsOption = 1000,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Rank bundles of one snapshot and grader after verifying each; the others stand apart with why."""
    from medlive.cli.evaluation_score import print_scores
    from medlive.evaluation.cases import load_cases
    from medlive.evaluation.leaderboard import rank_bundles
    from medlive.evaluation.metrics import Metric
    from medlive.snapshot.public_key import public_key_of

    if metric not in set(Metric):
        raise UsageError(f"--metric {metric}: choose {' or '.join(Metric)}")
    key = public_key_of(public_key)
    cases = None if snapshot is None else load_cases(snapshot)
    reports = [_verified(path, key, cases, errata_file) for path in bundles]
    found = rank_bundles(reports, metric=Metric(metric), draws=draws, seed=seed)
    if as_json:
        print_json(_leaderboard_row(found))
    elif found.table is not None:
        print_scores(found.table)
        print_table(
            ["bundle", "model", "signature", "key"],
            [[r.path.name, r.info.model, r.trust.value, _key_of(r)] for r in found.ranked if r.info is not None],
        )
    if found.apart and not as_json:
        print_table(
            ["not ranked", "model", "why"],
            [[r.path.name, r.info.model if r.info else None, why] for r, why in found.apart],
        )
    if found.left_out.concerned:
        say(
            f"left out for all as withdrawn: {len(found.left_out.cases)} cases and "
            f"{len(found.left_out.criteria)} criteria"
        )
    if found.table is None:
        raise CheckFailed("no bundle can be ranked")


def _verified(
    path: Path, key: "PublicKey | None", snapshot: "Path | CaseSet | None", errata_file: Path | None
) -> "BundleReport":
    from medlive.evaluation.bundle_verify import verify_bundle as verify

    return verify(path, public_key=key, snapshot=snapshot, errata_file=errata_file)


def _key_of(report: "BundleReport") -> str | None:
    return report.info.signing.key_id if report.info and report.info.signing else None


def _report_row(report: "BundleReport") -> dict[str, Any]:
    return {
        "path": report.path, "ok": report.ok, "complete": report.complete, "trust": report.trust.value,
        "model": report.info.model if report.info else None,
        "steps": [
            {"number": s.number, "name": s.name, "state": s.state.value, "why": s.why, "faults": s.faults,
             "findings": [{"file": f.file, "expected": f.expected, "got": f.got} for f in s.findings]}
            for s in report.steps
        ],
    }  # fmt: skip


def _leaderboard_row(found: "Leaderboard") -> dict[str, Any]:
    from medlive.report.tables import scores_json

    return {
        "format": "medlive-leaderboard",
        "format_version": 1,
        "bundles": [
            {"path": r.path, "model": r.info.model, "trust": r.trust.value, "key_id": _key_of(r),
             "bundle": r.info.files["scores.json"].digest}
            for r in found.ranked
            if r.info is not None
        ],
        "apart": [{"path": r.path, "model": r.info.model if r.info else None, "why": w} for r, w in found.apart],
        "left_out": {"cases": list(found.left_out.cases), "criteria": [list(c) for c in found.left_out.criteria]},
        "scores": None if found.table is None else scores_json(found.table),
    }  # fmt: skip
