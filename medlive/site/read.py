"""Read what the site shows. The one module here that asks `medlive.evaluation`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.digest import digest_bytes
from medlive.errors import CheckFailed, EvidenceUnavailable, MedliveError
from medlive.evaluation.asking.registry import EMPTY, Registry
from medlive.evaluation.bundles.files import BUNDLE, read_bundle
from medlive.evaluation.bundles.leaderboard import (
    MOST_UNSCORED,
    Ranking,
    rank_bundles,
)
from medlive.evaluation.bundles.verify import BundleReport, verify_bundle
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.cases.selection import day_of
from medlive.evaluation.model import ADVICE, CaseSet, EvaluationCase
from medlive.evaluation.scoring.errata import ErrataMode
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import (
    Estimate,
    GradedRun,
    ModelScore,
    ScoreTable,
    score_runs,
)
from medlive.evidence.passage import Passage
from medlive.integrity.folder import SUMS, read_small
from medlive.publishing.publish import read_release
from medlive.publishing.target import FolderTarget
from medlive.site.evidence import read_passages
from medlive.site.model import (
    AxisRate,
    BoardCase,
    BoardCriterion,
    BoardEntry,
    Content,
    Figure,
    ModelEntry,
    SliceFigure,
    Week,
)
from medlive.snapshot.errata import ERRATA, Errata, load_errata
from medlive.snapshot.identity import folder_name
from medlive.snapshot.ledgers import CHANGES, HOLDOUTS, LedgerFault, read_ledger
from medlive.snapshot.load import Snapshot, open_snapshot
from medlive.snapshot.model import SnapshotCase
from medlive.statistics.bootstrap import Standing

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

BUNDLES: Final = "bundles"
"""The folder of entered bundles under MEDLIVE_HOME."""
_ALLOWED: Final = (Allow.NOT_PUBLISHABLE,)
"""`read_content` itself refuses or marks what is not publishable, of snapshots and boards together."""
WORST: Final = 10
"""Cases listed as a model's worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The folders and files that a site is made from."""

    snapshots: Path
    """The folder of snapshots; each folder in it that holds a manifest is one."""
    bundles: Path | None = None
    """The folder of bundles: .zip files and folders."""
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
    versions: frozenset[str] | None = None
    """The snapshots that may be shown; None: all."""
    most_unscored: float = MOST_UNSCORED
    """The highest share of cases without a score that a ranked bundle may have."""
    draws: int = 1000
    seed: int = 0


def read_content(inputs: Inputs) -> Content:
    """Verify and read what the site shows.

    Snapshots that fail to verify, and bundles that cannot be ranked, are left out and listed with the reason.

    Raises:
        CheckFailed: If something is not publishable and `allow_not_publishable` is not set.
        BadInput: If the errata or the registry cannot be read.
    """
    left_out: list[tuple[str, str]] = []
    snapshots = _snapshots(inputs, left_out)
    errata_file = inputs.errata or inputs.snapshots / ERRATA
    known = inputs.errata is not None or errata_file.is_file()
    errata = load_errata(errata_file, given=True) if known else Errata()
    reports = _reports(inputs, snapshots, errata_file if known else None, left_out)
    board = rank_bundles(
        reports,
        draws=inputs.draws,
        seed=inputs.seed,
        errata=ErrataMode.APPLY,
        most_unscored=inputs.most_unscored,
        allow=_ALLOWED,
    )
    left_out += [(report.path.name, why) for report, why in board.unranked]
    boards = []
    for place, ranking in enumerate(board.rankings, start=1):
        boards.append(_board(ranking, inputs, f"board-{place}"))
    if inputs.leave_out_not_publishable:
        for one in boards:
            if one.not_publishable:
                left_out.append((one.title, "; ".join(one.not_publishable)))
        boards = [one for one in boards if not one.not_publishable]
    cases = _cases(snapshots, errata)
    content = Content(
        weeks=[_week(inputs.snapshots, one) for one in snapshots],
        cases=cases,
        passages=_passages(inputs.evidence, cases.values(), snapshots, left_out),
        boards=boards,
        left_out=left_out,
        errata=errata,
    )
    return _checked(content, allowed=inputs.allow_not_publishable)


def _passages(
    index: Path | None,
    cases: Iterable[SnapshotCase],
    snapshots: Sequence[Snapshot],
    left_out: list[tuple[str, str]],
) -> dict[str, Passage]:
    try:
        return read_passages(index, cases, snapshots) if index else {}
    except EvidenceUnavailable as exc:
        why = exc.message.replace(str(index), "it")[:300]
        left_out.append(("titles of passages", why))
        return {}


def _board(ranking: Ranking, inputs: Inputs, slug: str) -> BoardEntry:
    """A ranking of bundles as a board of the site."""
    trust = {}
    for report in ranking.ranked:
        if report.run is not None:
            trust[report.run.run.info.model] = report.trust.value
    order = {report.path: place for place, report in enumerate(ranking.ranked)}
    runs = [model.run for model in ranking.table.models]
    runs.sort(key=lambda run: order[run.run.path])
    return board_of(
        runs,
        inputs.registry,
        slug=slug,
        notes=_notes(ranking),
        trust=trust,
        draws=inputs.draws,
        seed=inputs.seed,
    )


def _checked(content: Content, *, allowed: bool) -> Content:
    """The content with what must be said on every page. Raises CheckFailed where that is not allowed."""
    reasons: dict[str, None] = {}
    for week in content.weeks:
        if not week.publishable:
            why = "; ".join(week.why_not) or "no reason given"
            reasons[f"snapshot {week.version}: {why}"] = None
    for board in content.boards:
        reasons |= dict.fromkeys(board.not_publishable)
    if reasons and not allowed:
        raise CheckFailed(
            f"not publishable: {'; '.join(reasons)}",
            hint="leave it out, or build with --allow-not-publishable, which says so on every page",
        )
    return replace(content, not_publishable=tuple(reasons))


def _snapshots(inputs: Inputs, left_out: list[tuple[str, str]]) -> list[Snapshot]:
    """The verified snapshots, the newest first."""
    found = []
    shown = inputs.versions and set(map(folder_name, inputs.versions))
    for manifest in sorted(inputs.snapshots.glob("*/manifest.json")):
        folder = manifest.parent
        if shown is not None and folder.name not in shown:
            continue
        try:
            snapshot = open_snapshot(folder)
        except MedliveError as exc:
            left_out.append((folder.name, exc.message.replace(str(folder), "it")[:300]))
            continue
        found.append(snapshot)
    found.sort(key=lambda one: one.version, reverse=True)
    return found


def _reports(
    inputs: Inputs,
    snapshots: Sequence[Snapshot],
    errata_file: Path | None,
    left_out: list[tuple[str, str]],
) -> list[BundleReport]:
    if inputs.bundles is None or not inputs.bundles.is_dir():
        return []
    by_version = {one.version: one for one in snapshots}
    sets: dict[str, CaseSet] = {}
    reports = []
    for path in sorted(inputs.bundles.iterdir()):
        if path.name.startswith(".") or not (path.is_dir() or path.suffix == ".zip"):
            continue
        try:
            version = _snapshot_of(path)
            if not version:
                left_out.append((path.name, "it cannot be read as a bundle"))
                continue
            if version not in by_version:
                left_out.append((path.name, f"its snapshot {version} is not here"))
                continue
            if version not in sets:
                sets[version] = from_snapshot(by_version[version])
            report = verify_bundle(
                path,
                public_keys=inputs.public_keys,
                snapshot=sets[version],
                errata_file=errata_file,
            )
        except MedliveError as exc:
            left_out.append((path.name, exc.message.replace(str(path), "it")[:300]))
            continue
        if _all_withdrawn(report):
            left_out.append((path.name, "every case of its snapshot was withdrawn"))
        else:
            reports.append(report)
    return reports


def _snapshot_of(bundle: Path) -> str:
    """The snapshot's version that a bundle names; "" where it names none."""
    files, _ = read_bundle(bundle)
    try:
        return str(json.loads(files[BUNDLE])["cases"]["name"])
    except (KeyError, TypeError, ValueError):
        return ""


def _all_withdrawn(report: BundleReport) -> bool:
    if report.run is None or report.withdrawn is None:
        return False
    gone = {*report.withdrawn.cases, *report.withdrawn.emptied}
    return all(case.case_id in gone for case in report.run.run.cases)


def _notes(ranking: Ranking) -> tuple[str, ...]:
    return (*ranking.notes, *ranking.table.warnings)


def _week(root: Path, snapshot: Snapshot) -> Week:
    manifest = snapshot.manifest
    sums = read_small(snapshot.path / SUMS)
    assert digest_bytes(sums) == snapshot.digest
    changes = _entries(snapshot.path, CHANGES)
    held = _entries(snapshot.path, HOLDOUTS)
    return Week(
        version=snapshot.version,
        created=manifest.created_at.date().isoformat(),
        cases=manifest.counts.cases,
        criteria=manifest.counts.criteria,
        added=changes.get("added"),
        revised=changes.get("revised"),
        withdrawn=changes.get("withdrawn"),
        held_back=held.get("held"),
        cost=manifest.cost,
        publishable=manifest.publishable,
        why_not=manifest.why_not,
        signed=manifest.signing is not None,
        digest=snapshot.digest,
        release=read_release(FolderTarget(root), snapshot.version, sums),
        files=tuple(
            (name, entry.size, entry.sha256)
            for name, entry in sorted(manifest.files.items())
        ),
    )


def _entries(folder: Path, ledger: str) -> Mapping[str, int]:
    """How many entries each section of a ledger has; nothing where it cannot be read."""
    try:
        _, sections = read_ledger(folder, ledger)
    except (LedgerFault, OSError):
        return {}
    return {name: len(entries) for name, entries in sections.items()}


def _cases(snapshots: Iterable[Snapshot], errata: Errata) -> dict[str, SnapshotCase]:
    """The latest revision of each case that was not withdrawn, without withdrawn criteria."""
    cases: dict[str, SnapshotCase] = {}
    gone = {e.case_id for e in errata.standing if e.criterion_id is None}
    criteria = {e.criterion_id for e in errata.standing if e.criterion_id is not None}
    for snapshot in snapshots:
        for case in snapshot:
            if case.case_id in gone or case.case_id in cases:
                continue
            kept = tuple(c for c in case.criteria if c.criterion_id not in criteria)
            cases[case.case_id] = replace(case, criteria=kept)
    return dict(sorted(cases.items()))


def board_of(
    runs: Sequence[GradedRun],
    registry: Registry,
    *,
    slug: str,
    notes: Sequence[str] = (),
    trust: Mapping[str, str] | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> BoardEntry:
    """A board of runs on the same cases by the same grader.

    Args:
        runs: Without what was withdrawn, in the order in which they were given.
        registry: The models' cutoffs.
        slug: The board's name in addresses.
        notes: What to say below it.
        trust: Model → whether its bundle's signature proves its origin.
        draws: Bootstrap draws.
        seed: Their seed.
    """
    table = score_runs(runs, draws=draws, seed=seed, registry=registry, allow=_ALLOWED)
    overridden = tuple(objection.why for objection in table.overridden)
    first = runs[0]
    info, grader = first.run.info, first.grader
    warnings = tuple(dict.fromkeys((*overridden, *notes, *table.warnings)))
    evidence = info.evidence
    return BoardEntry(
        slug=slug,
        snapshot=info.cases.name,
        template=info.template.name,
        grader="nobody" if grader is None else f"{grader.model} ({grader.mode} mode)",
        evidence="" if evidence is None else f" · {evidence.top_k} snippets a question",
        draws=draws,
        seed=seed,
        models=_models(table, trust or {}),
        entered=table.labels,
        cases=tuple(_board_case(case) for case in first.run.cases),
        ranked_after=table.fresh.after.isoformat() if table.fresh else None,
        notes=warnings,
        not_publishable=overridden,
    )


def _board_case(case: EvaluationCase) -> BoardCase:
    return BoardCase(
        id=case.case_id,
        day=day_of(case),
        language=case.language or None,
        specialty=case.specialty,
        theme=case.theme,
        difficulty=case.difficulty,
        cluster=case.cluster,
        criteria=tuple(
            BoardCriterion(
                id=c.id, text=c.criterion, points=c.points, advice=c.origin == ADVICE
            )
            for c in case.criteria
        ),
    )


def _models(table: ScoreTable, trust: Mapping[str, str]) -> tuple[ModelEntry, ...]:
    standings = {model.label: model.standing for model in table.models}
    if table.fresh is not None:
        # Ranked is what no model can have seen.
        standings = {one.label: one.standing for one in table.fresh.models}
    models = []
    for place, model in enumerate(table.models, start=1):
        entry = _model(model, f"m{place}", standings.get(model.label))
        drop = table.drops.get(model.label)
        if drop is not None:
            n = drop.n_pre + drop.n_post
            figure = Figure(n, drop.difference, drop.low, drop.high, why="")
            entry = replace(entry, drop=figure)
        name = model.run.run.info.model
        models.append(replace(entry, trust=trust.get(name, "")))
    return tuple(models)


def _model(model: ModelScore, slug: str, standing: Standing | None) -> ModelEntry:
    run = model.run
    scored = [(c.case.case_id, c.score) for c in model.cases if c.score is not None]
    scored.sort(key=lambda one: (one[1], one[0]))
    return ModelEntry(
        name=model.label,
        slug=slug,
        cutoff=None if model.cutoff is None else model.cutoff.day.isoformat(),
        overall=_figure(model.overall),
        paper=_figure(model.companions.paper),
        drop=None,
        group=None if standing is None else standing.group,
        rank_best=None if standing is None else standing.rank_best,
        rank_worst=None if standing is None else standing.rank_worst,
        slices=tuple(
            SliceFigure(s.kind, s.value, _figure(s.estimate), s.estimate.few)
            for s in model.slices
        ),
        axes=tuple(
            AxisRate(a.axis, a.n, a.rate, a.low, a.high, a.why) for a in model.axes
        ),
        worst=tuple(scored[:WORST]),
        unanswered=model.rates.unanswered,
        tokens=_tokens(run),
        trust="",
        answered=frozenset(a.case_id for a in run.answers.values() if a.gradable),
        verdicts={case.case_id: run.verdicts(case.case_id) for case in run.run.cases},
    )


def _figure(estimate: Estimate) -> Figure:
    return Figure(
        n=estimate.n,
        mean=estimate.mean,
        low=estimate.low,
        high=estimate.high,
        why=estimate.why,
    )


def _tokens(run: GradedRun) -> tuple[int, int] | None:
    """The tokens of prompts and answers; None where no answer has both counts."""
    asked, answered, known = 0, 0, False
    for answer in run.answers.values():
        prompt = answer.usage.get("input_tokens")
        completion = answer.usage.get("output_tokens")
        if isinstance(prompt, int) and isinstance(completion, int):
            asked, answered, known = asked + prompt, answered + completion, True
    return (asked, answered) if known else None
