"""Reads what the site shows (`read_content`): snapshots, errata, bundles as boards, and titles of passages."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.errors import (
    BadInput,
    CheckFailed,
    EvidenceUnavailable,
    IndexMissing,
    MedliveError,
)
from medlive.evaluation.agreement.humans import items_of
from medlive.evaluation.bundles.files import RUN, read_bundle
from medlive.evaluation.bundles.leaderboard import rank_bundles
from medlive.evaluation.bundles.verify import BundleReport, verify_bundle
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.model import CaseSet
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import ScoreTable
from medlive.evidence.index import read_index
from medlive.evidence.passage import Passage
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SUMS, read_small
from medlive.llm.registry import EMPTY, Registry
from medlive.publishing.publish import read_release
from medlive.publishing.target import FolderTarget
from medlive.report.model import spent_on
from medlive.rubric.model import Origin
from medlive.snapshot.contents import CHANGES, HOLDOUTS, read_ledger
from medlive.snapshot.errata import ERRATA, Errata, load_errata
from medlive.snapshot.load import Snapshot, open_snapshot
from medlive.snapshot.manifest import headroom_of
from medlive.snapshot.model import SnapshotCase, version_of

from .model import (
    HARD,
    WITHHELD,
    BoardEntry,
    Content,
    ModelEntry,
    Week,
    load_hard,
)

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

BUNDLES = "bundles"
"""The folder of entered bundles under MEDLIVE_HOME."""
WORST = 10
"""How many cases are listed as a model's worst."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The folders and files that a site is made from."""

    snapshots: Path
    """The folder of snapshots; each folder in it that holds a manifest is one."""
    bundles: Path | None = None
    """The folder of bundles, which end in .zip."""
    errata: Path | None = None
    """None: `errata.json` beside the snapshots, where there is one."""
    evidence: Path | None = None
    """The evidence index, for the titles of passages; None: their ids alone are shown."""
    registry: Registry = EMPTY
    """The models' knowledge cutoffs."""
    public_keys: "Sequence[PublicKey]" = ()
    allow_not_publishable: bool = False
    """Whether to show, marked on every page, what is not publishable."""
    leave_out_not_publishable: bool = False
    """Whether boards that are not publishable are left out, and listed, instead of refused."""
    checked: frozenset[str] = frozenset()
    """Items of grader checks that people rate blind now; bundles with one of these answers are left out."""
    versions: frozenset[str] | None = None
    """The snapshots that may be shown; None: all."""
    draws: int = 1000  # Of the bootstrap

    @property
    def hard_file(self) -> Path:
        """The file of each week's hard cases."""
        return self.snapshots / HARD


def read_content(inputs: Inputs) -> Content:
    """Verify and read what the site shows.

    Snapshots that fail to verify, and bundles that cannot be ranked, are left out and listed with the reason.

    Raises:
        CheckFailed: If something is not publishable and `allow_not_publishable` is not set.
        BadInput: If the errata, the registry or the file of hard cases cannot be read.
    """
    left_out: list[tuple[str, str]] = []
    snapshots = _snapshots(inputs, left_out)
    errata_file = inputs.errata
    if errata_file is None and (inputs.snapshots / ERRATA).is_file():
        errata_file = inputs.snapshots / ERRATA
    errata = load_errata(errata_file, is_named=True) if errata_file else Errata()
    cases = _cases(snapshots, errata)
    passages = {}
    if inputs.evidence is not None:
        try:
            passages = read_passages(
                inputs.evidence,
                cases.values(),
            )
        except EvidenceUnavailable as exc:
            left_out.append(("titles of passages", _why(exc, inputs.evidence)))
    reports = _reports(inputs, snapshots, errata_file, left_out)
    boards = _boards(inputs, reports, cases, left_out)
    reasons: dict[str, None] = {}
    for snapshot in snapshots:
        manifest = snapshot.manifest
        if not manifest.publishable:
            why = "; ".join(manifest.why_not) or "no reason given"
            reasons[f"snapshot {manifest.version}: {why}"] = None
    for board in boards:
        reasons |= dict.fromkeys(board.not_publishable)
    if reasons and not inputs.allow_not_publishable:
        raise CheckFailed(
            f"not publishable: {'; '.join(reasons)}",
            hint="leave it out, or build with --allow-not-publishable, which says so on every page",
        )
    return Content(
        weeks=[_week(inputs.snapshots, snapshot) for snapshot in snapshots],
        cases=cases,
        passages=passages,
        boards=boards,
        left_out=left_out,
        errata=errata,
        hard=load_hard(inputs.hard_file),
        not_publishable=tuple(reasons),
    )


def _why(error: MedliveError, path: Path) -> str:
    """What to say of a file that is not shown, without its place on this machine."""
    return error.message.replace(str(path), "it")[:300]


def _snapshots(
    inputs: Inputs,
    left_out: list[tuple[str, str]],
) -> list[Snapshot]:
    """The verified snapshots, the newest first."""
    snapshots = []
    for manifest in sorted(inputs.snapshots.glob("*/manifest.json")):
        folder = manifest.parent
        version = version_of(folder.name)
        if inputs.versions is not None and version not in inputs.versions:
            continue
        try:
            snapshots.append(open_snapshot(folder))
        except MedliveError as exc:
            left_out.append((folder.name, _why(exc, folder)))
    return sorted(
        snapshots,
        key=lambda release: release.version,
        reverse=True,
    )


def _cases(
    snapshots: Iterable[Snapshot],
    errata: Errata,
) -> dict[str, SnapshotCase]:
    """The latest revision of each case that was not withdrawn, without withdrawn criteria."""
    gone = {entry.case_id for entry in errata.standing if entry.criterion_id is None}
    cases: dict[str, SnapshotCase] = {}
    for snapshot in snapshots:
        # The id of a withdrawn criterion may be another's in a later snapshot.
        withdrawn = {entry.criterion_id for entry in errata.affecting(snapshot.version)}
        for case in snapshot:
            if case.case_id in gone or case.case_id in cases:
                continue
            kept = [c for c in case.criteria if c.criterion_id not in withdrawn]
            cases[case.case_id] = replace(
                case,
                criteria=tuple(kept),
            )
    return dict(sorted(cases.items()))


def _week(root: Path, snapshot: Snapshot) -> Week:
    """A snapshot's release, and what its ledgers say it changed."""
    sums = read_small(snapshot.path / SUMS)
    assert digest_bytes(sums) == snapshot.digest
    changed: dict[str, int] = {}
    for ledger in (CHANGES, HOLDOUTS):
        # What a damaged one does not say is shown as unknown.
        with suppress(ValueError, OSError):
            _, sections = read_ledger(snapshot.path, ledger)
            changed |= {name: len(entries) for name, entries in sections.items()}
    release = read_release(FolderTarget(root), snapshot.version, sums)
    return Week(release.manifest, release.files, changed)


def _reports(
    inputs: Inputs,
    snapshots: Sequence[Snapshot],
    errata_file: Path | None,
    left_out: list[tuple[str, str]],
) -> list[BundleReport]:
    """The verified bundles that may be ranked."""
    if inputs.bundles is None:
        return []
    by_version = {release.version: release for release in snapshots}
    sets: dict[str, CaseSet] = {}
    reports = []
    for path in sorted(inputs.bundles.glob("*.zip")):
        if path.name.startswith("."):
            continue
        try:
            version = _snapshot_of(path)
            if version not in by_version:
                raise BadInput(f"its snapshot {version} is not here")
            if version not in sets:
                sets[version] = from_snapshot(by_version[version])
            report = verify_bundle(
                path,
                public_keys=inputs.public_keys,
                snapshot=sets[version],
                errata_file=errata_file,
            )
            if _is_withdrawn(report):
                raise BadInput("every case of its snapshot was withdrawn")
            run = report.run if inputs.checked else None
            # Whether people check verdicts on its answers blind.
            if run and items_of(run.cases, run.answers).keys() & inputs.checked:
                # Its name would tell the raters whose answers they rate.
                left_out.append(("a bundle", WITHHELD))
            else:
                reports.append(report)
        except MedliveError as exc:
            left_out.append((path.name, _why(exc, path)))
    return reports


def _snapshot_of(bundle: Path) -> str:
    """The snapshot's version that a bundle names. Raises BadInput."""
    files, _ = read_bundle(bundle)
    try:
        return str(json.loads(files[RUN])["cases"]["name"])
    except (KeyError, TypeError, ValueError, RecursionError) as exc:
        raise BadInput("it cannot be read as a bundle") from exc


def _is_withdrawn(report: BundleReport) -> bool:
    """Whether no case of a bundle is left."""
    if report.run is None or report.withdrawn is None:
        return False
    gone = {*report.withdrawn.cases, *report.withdrawn.emptied}
    return gone.issuperset(case.case_id for case in report.run.cases)


def _boards(
    inputs: Inputs,
    reports: Sequence[BundleReport],
    cases: Mapping[str, SnapshotCase],
    left_out: list[tuple[str, str]],
) -> list[BoardEntry]:
    """The rankings of the bundles as boards; `cases` are those of the snapshots."""
    rankings, unranked = rank_bundles(
        reports,
        draws=inputs.draws,
        registry=inputs.registry,
        # What is not publishable is refused or marked of snapshots and boards together.
        allow=(Allow.NOT_PUBLISHABLE,),
    )
    left_out += [(report.path.name, why) for report, why in unranked]
    boards = []
    for place, ranking in enumerate(rankings, start=1):
        trust = {report.model: report.trust for report in ranking.ranked}
        # How much room the cases leave above an ordinary answer, where that is known.
        ordinary = Counter[float]()
        for own in ranking.table.models[0].run.cases:
            case = cases.get(own.case_id)
            if case is not None and case.ordinary is not None:
                ordinary[case.ordinary] += 1
        headroom = headroom_of(ordinary)
        notes = []
        if headroom.is_little:
            notes.append(
                "these rubrics leave little room above an ordinary answer: they hardly tell good models apart"
            )
        if headroom.words:
            notes.append(headroom.words)
        notes += ranking.notes
        board = board_of(
            ranking.table,
            slug=f"board-{place}",
            notes=notes,
            trust=trust,
        )
        if inputs.leave_out_not_publishable and board.not_publishable:
            left_out.append((board.title, "; ".join(board.not_publishable)))
        else:
            boards.append(board)
    return boards


def board_of(
    table: ScoreTable,
    *,
    slug: str,
    notes: Sequence[str] = (),
    trust: Mapping[str | None, str] | None = None,
) -> BoardEntry:
    """A board of runs on the same cases by the same grader.

    Args:
        table: Their scores, without what was withdrawn.
        slug: The board's name in addresses.
        notes: What to say below it.
        trust: Model → whether its bundle's signature proves its origin.
    """
    # Ranks are on cases that no model can have seen, if cutoffs are known.
    ranked = table.models if table.fresh is None else table.fresh.models
    standings = {model.label: model.standing for model in ranked}
    models = []
    for place, model in enumerate(table.models, start=1):
        run = model.run
        scored = [case for case in model.cases if case.score is not None]
        scored.sort(key=lambda case: (case.score, case.case_id))
        entry = ModelEntry(
            slug=f"m{place}",
            score=model,
            standing=standings.get(model.label),
            drop=table.drops.get(model.label),
            worst=tuple(scored[:WORST]),
            tokens=_tokens(run),
            trust=(trust or {}).get(run.info.model, ""),
        )
        models.append(entry)
    first = models[0].score.run
    info, grader = first.run.info, first.grader
    by = f"graded by {'nobody' if grader is None else grader.name}"
    template, use, snippets, index = info.template, info.evidence, "", ""
    digits = _short(template.digest or "unknown")
    if use is not None:
        snippets = f" · {use.top_k} snippets a question"
        index = f" of {_short(use.index_digest)}"
    overridden = [objection.why for objection in table.overridden]
    return BoardEntry(
        slug=slug,
        title=f"{info.cases.name} · {by} · template {template.name}{snippets}",
        conditions=f"{by} · {template.name} ({digits}){snippets}{index}",
        table=table,
        models=tuple(models),
        cases=first.run.cases,
        notes=tuple(dict.fromkeys((*overridden, *notes, *table.warnings))),
    )


def _short(digest: str) -> str:
    """The first digits of a digest, by which people tell two apart."""
    return digest.removeprefix("sha256:")[:8]


def _tokens(run: GradedRun) -> tuple[float, float] | None:
    """The tokens of prompts and answers; None where an answer lacks a count."""
    asked, answered = spent_on(run, "input_tokens"), spent_on(run, "output_tokens")
    return None if asked is None or answered is None else (asked, answered)


def read_passages(
    index: Path,
    cases: Iterable[SnapshotCase],
) -> dict[str, Passage]:
    """Return the passages that criteria name, by id, of those that an evidence index holds.

    Args:
        index: The index's folder; nothing is read where there is none.
        cases: The cases that are shown.

    Raises:
        EvidenceUnavailable: If the index is damaged or of another version.
    """
    wanted = set()
    for case in cases:
        for criterion in case.criteria:
            if criterion.origin == Origin.EVIDENCE:
                wanted.add(criterion.source)
    try:
        opened = read_index(index)
    except IndexMissing:
        return {}
    opened.check(passages=True)
    return {passage.id: passage for passage in opened.open_store().find(wanted)}
