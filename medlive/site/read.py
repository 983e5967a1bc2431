"""Read what the site shows."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from medlive.errors import BadInput, CheckFailed, EvidenceUnavailable, MedliveError
from medlive.evaluation.agreement.items import items_of
from medlive.evaluation.bundles.files import RUN, read_bundle
from medlive.evaluation.bundles.leaderboard import (
    MOST_UNSCORED,
    Ranking,
    rank_bundles,
)
from medlive.evaluation.bundles.verify import BundleReport, verify_bundle
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.model import AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.scoring.errata import ErrataMode
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.refusals import Allow
from medlive.evaluation.scoring.score import (
    ScoreTable,
    score_runs,
)
from medlive.evidence.passage import Passage
from medlive.integrity.digest import digest_bytes
from medlive.integrity.folder import SUMS, read_small
from medlive.llm.registry import EMPTY, Registry
from medlive.publishing.publish import read_release
from medlive.publishing.target import FolderTarget
from medlive.site.evidence import read_passages
from medlive.site.hard import HARD, load_hard
from medlive.site.model import WITHHELD, BoardEntry, Content, ModelEntry, Week
from medlive.snapshot.errata import ERRATA, Errata, load_errata
from medlive.snapshot.identity import folder_name
from medlive.snapshot.ledgers import CHANGES, HOLDOUTS, read_ledger
from medlive.snapshot.load import Snapshot, open_snapshot
from medlive.snapshot.manifest import headroom_of
from medlive.snapshot.model import SnapshotCase

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
    """The folder of bundles, which end in .zip."""
    errata: Path | None = None
    """None: `errata.json` beside the snapshots, where there is one."""
    hard: Path | None = None
    """The weeks' hard cases as they were chosen; None: `hard.json` beside the snapshots."""
    evidence: Path | None = None
    """The evidence index, for the titles of passages; None: their ids alone are shown."""
    registry: Registry = EMPTY
    """The models' knowledge cutoffs."""
    public_keys: "Sequence[PublicKey]" = ()
    allow_not_publishable: bool = False
    """Whether to show, marked on every page, what is not publishable."""
    leave_out_not_publishable: bool = False
    """Whether boards that are not publishable are left out, and listed, instead of refused."""
    checked: Collection[str] = frozenset()
    """Items of grader checks that people rate blind now; bundles with one of these answers are left out."""
    versions: frozenset[str] | None = None
    """The snapshots that may be shown; None: all."""
    most_unscored: float = MOST_UNSCORED
    """The highest share of cases without a score that a ranked bundle may have."""
    draws: int = 1000
    seed: int = 0

    @property
    def hard_file(self) -> Path:
        """Where the hard cases are kept."""
        return self.hard or self.snapshots / HARD


def read_content(inputs: Inputs) -> Content:
    """Verify and read what the site shows.

    Snapshots that fail to verify, and bundles that cannot be ranked, are left out and listed with the reason.

    Raises:
        CheckFailed: If something is not publishable and `allow_not_publishable` is not set.
        BadInput: If the errata, the registry or the file of hard cases cannot be read.
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
    cases = _cases(snapshots, errata)
    boards = []
    for place, ranking in enumerate(board.rankings, start=1):
        entry = _board(ranking, inputs, f"board-{place}", cases)
        if inputs.leave_out_not_publishable and entry.not_publishable:
            left_out.append((entry.title, "; ".join(entry.not_publishable)))
        else:
            boards.append(entry)
    content = Content(
        weeks=[_week(inputs.snapshots, snapshot) for snapshot in snapshots],
        cases=cases,
        passages=_passages(inputs.evidence, cases.values(), snapshots, left_out),
        boards=boards,
        left_out=left_out,
        errata=errata,
        hard=load_hard(inputs.hard_file),
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
        assert index is not None
        left_out.append(("titles of passages", _why(exc, index)))
        return {}


def _why(error: MedliveError, path: Path) -> str:
    """What to say of a file that is not shown, without its place on this machine."""
    return error.message.replace(str(path), "it")[:300]


def _board(
    ranking: Ranking, inputs: Inputs, slug: str, cases: Mapping[str, SnapshotCase]
) -> BoardEntry:
    """A ranking of bundles as a board of the site; `cases` are those of the snapshots."""
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
        notes=(
            *_headroom_notes(runs[0].run.cases, cases),
            *ranking.notes,
            *ranking.table.warnings,
        ),
        trust=trust,
        draws=inputs.draws,
        seed=inputs.seed,
    )


def _headroom_notes(
    asked: Iterable[EvaluationCase], cases: Mapping[str, SnapshotCase]
) -> Iterator[str]:
    """What an ordinary answer scores on a board's cases, and whether that is too much."""
    scores = Counter[float]()
    for case in asked:
        frozen = cases.get(case.case_id)
        if frozen is not None and frozen.ordinary is not None:
            scores[frozen.ordinary] += 1
    headroom = headroom_of(scores)
    if headroom.is_little:
        yield "these rubrics leave little room above an ordinary answer: they hardly tell good models apart"
    if headroom.words:
        yield headroom.words


def _checked(content: Content, *, allowed: bool) -> Content:
    """The content with what must be said on every page. Raises CheckFailed where that is not allowed."""
    reasons: dict[str, None] = {}
    for week in content.weeks:
        manifest = week.manifest
        if not manifest.publishable:
            why = "; ".join(manifest.why_not) or "no reason given"
            reasons[f"snapshot {manifest.version}: {why}"] = None
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
    snapshots = []
    shown = inputs.versions and set(map(folder_name, inputs.versions))
    for manifest in sorted(inputs.snapshots.glob("*/manifest.json")):
        folder = manifest.parent
        if shown is not None and folder.name not in shown:
            continue
        try:
            snapshot = open_snapshot(folder)
        except MedliveError as exc:
            left_out.append((folder.name, _why(exc, folder)))
            continue
        snapshots.append(snapshot)
    snapshots.sort(key=lambda release: release.version, reverse=True)
    return snapshots


def _reports(
    inputs: Inputs,
    snapshots: Sequence[Snapshot],
    errata_file: Path | None,
    left_out: list[tuple[str, str]],
) -> list[BundleReport]:
    if inputs.bundles is None or not inputs.bundles.is_dir():
        return []
    by_version = {release.version: release for release in snapshots}
    sets: dict[str, CaseSet] = {}
    reports = []
    for path in sorted(inputs.bundles.iterdir()):
        if path.name.startswith(".") or path.suffix != ".zip":
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
            if _all_withdrawn(report):
                raise BadInput("every case of its snapshot was withdrawn")
            if _checked_blind(report, inputs.checked):
                # Its name would tell the raters whose answers they rate.
                left_out.append(("a bundle", WITHHELD))
                continue
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


def _all_withdrawn(report: BundleReport) -> bool:
    if report.run is None or report.withdrawn is None:
        return False
    gone = {*report.withdrawn.cases, *report.withdrawn.emptied}
    return gone.issuperset(map(attrgetter("case_id"), report.run.run.cases))


def _checked_blind(report: BundleReport, checked: Collection[str]) -> bool:
    if report.run is None or not checked:
        return False
    items = items_of(report.run.run.cases, report.run.answers)
    return any(item.id in checked for item in items)


def _week(root: Path, snapshot: Snapshot) -> Week:
    sums = read_small(snapshot.path / SUMS)
    assert digest_bytes(sums) == snapshot.digest
    changed: dict[str, int] = {}
    for ledger in (CHANGES, HOLDOUTS):
        # What a damaged one does not say is shown as unknown.
        with suppress(ValueError, OSError):
            _, sections = read_ledger(snapshot.path, ledger)
            for name, entries in sections.items():
                changed[name] = len(entries)
    release = read_release(FolderTarget(root), snapshot.version, sums)
    return Week(snapshot.manifest, snapshot.digest, changed, release)


def _cases(snapshots: Iterable[Snapshot], errata: Errata) -> dict[str, SnapshotCase]:
    """The latest revision of each case that was not withdrawn, without withdrawn criteria."""
    cases: dict[str, SnapshotCase] = {}
    gone, criteria = set(), set()
    for erratum in errata.standing:
        if erratum.criterion_id is None:
            gone.add(erratum.case_id)
        else:
            criteria.add(erratum.criterion_id)
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
    first = runs[0]
    info, grader = first.run.info, first.grader
    by = "nobody" if grader is None else f"{grader.model} ({grader.mode} mode)"
    title = f"{info.cases.name} · graded by {by} · template {info.template.name}"
    if info.evidence is not None:
        title += f" · {info.evidence.top_k} snippets a question"
    overridden = map(attrgetter("why"), table.overridden)
    return BoardEntry(
        slug=slug,
        title=title,
        table=table,
        models=_models(table, trust or {}),
        cases=first.run.cases,
        notes=tuple(dict.fromkeys((*overridden, *notes, *table.warnings))),
    )


def _models(table: ScoreTable, trust: Mapping[str, str]) -> tuple[ModelEntry, ...]:
    # Ranked is what no model can have seen.
    ranked = table.models if table.fresh is None else table.fresh.models
    standings = {scored.label: scored.standing for scored in ranked}
    models = []
    for place, model in enumerate(table.models, start=1):
        run = model.run
        worst = [case for case in model.cases if case.score is not None]
        worst.sort(key=lambda scored: (scored.score, scored.case.case_id))
        answered = {a.case_id for a in run.answers.values() if a.gradable}
        entry = ModelEntry(
            slug=f"m{place}",
            score=model,
            standing=standings.get(model.label),
            drop=table.drops.get(model.label),
            worst=tuple(worst[:WORST]),
            tokens=_tokens(run),
            trust=trust.get(run.run.info.model, ""),
            answered=frozenset(answered),
            verdicts={c.case_id: run.verdicts(c.case_id) for c in run.run.cases},
        )
        models.append(entry)
    return tuple(models)


def _tokens(run: GradedRun) -> tuple[int, int] | None:
    """The tokens of prompts and answers; None where an answer lacks a count: a part would pass for the whole."""
    asked, answered = 0, 0
    for answer in run.answers.values():
        prompt = answer.usage.get("input_tokens")
        completion = answer.usage.get("output_tokens")
        if isinstance(prompt, int) and isinstance(completion, int):
            asked, answered = asked + prompt, answered + completion
        elif answer.state is not AnswerState.FAILED:
            return None
    return asked, answered
