"""Errata in a score: which cases and criteria of a run were withdrawn, and the run without them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.digest import digest_bytes
from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import RunFolder
from medlive.snapshot.errata import ERRATA, Errata, Erratum, load_errata

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_NAMED: Final = 10
"""How many ids a warning names."""


class ErrataMode(StrEnum):
    """What is done about errata."""

    WARN = "warn"
    """Say which cases and criteria are concerned; score them."""
    APPLY = "apply"
    """Leave them out."""
    IGNORE = "ignore"
    """Score them and say nothing; the JSON records it."""


@dataclass(frozen=True, slots=True)
class FoundErrata:
    """The errata that a run is held against."""

    path: Path | None
    """None: none were found."""
    errata: Errata
    """Empty where none were found or they could not be read."""
    digest: str | None = None
    """The digest of the file."""
    key: str | None = None
    """The id of the key whose signature was checked; None: no key was given."""
    problem: str | None = None
    """Why they could not be read; only where errata are ignored."""


@dataclass(frozen=True, slots=True)
class RunErrata:
    """What the errata concern of one run."""

    version: str
    """The snapshot's version, or the name of the file that the cases came from."""
    found: FoundErrata
    cases: tuple[str, ...] = ()
    """The cases that were withdrawn, in the run's order."""
    criteria: tuple[tuple[str, str], ...] = ()
    """(case, criterion) withdrawn from other cases, in the run's order."""
    emptied: tuple[str, ...] = ()
    """Cases that have no criterion with positive points without those."""
    unclear: tuple[str, ...] = ()
    """Cases with a withdrawn criterion that cannot be told: a file of cases without the criteria's ids."""

    @property
    def concerned(self) -> bool:
        """Whether anything of the run is."""
        return bool(self.cases or self.criteria or self.unclear)

    def row(self) -> dict[str, Any]:
        """As JSON; the file by its name and digest, since where it lay is nobody's business."""
        found = self.found
        return {
            "version": self.version,
            "file": None if found.path is None else found.path.name,
            "digest": found.digest,
            "checked_with": found.key,
            "problem": found.problem,
            "withdrawn_cases": list(self.cases),
            "withdrawn_criteria": [{"case_id": case, "criterion_id": c} for case, c in self.criteria],
            "cases_left_without_positive_criterion": list(self.emptied),
            "cases_with_unclear_criteria": list(self.unclear),
        }


@dataclass(frozen=True, slots=True)
class ErrataUse:
    """What was done about errata, run by run in the order the runs are scored in."""

    mode: ErrataMode
    runs: tuple[RunErrata, ...]

    def without(self, place: int, run: RunFolder) -> RunFolder:
        """The run at that place as it is scored: as it is, or without what was withdrawn."""
        return without(run, self.runs[place]) if self.mode is ErrataMode.APPLY else run

    def told(self, labels: Sequence[str]) -> list[str]:
        """What is to be said about each run, by its label; nothing where errata are ignored."""
        if self.mode is ErrataMode.IGNORE:
            return []
        told = []
        for label, run in zip(labels, self.runs, strict=True):
            if run.concerned:
                told += _applied(label, run) if self.mode is ErrataMode.APPLY else _warned(label, run)
            elif self.mode is ErrataMode.APPLY and run.found.path is None:
                told.append(f"{label}: no errata of {run.version} were found, none are applied")
        return told


@dataclass(slots=True)
class ErrataSearch:
    """Where errata are looked for: each file is read once."""

    file: Path | None = None
    """This one and no other."""
    home: Path | None = None
    """The folder of snapshots where a run's own has none beside it."""
    public_key: "PublicKey | None" = None
    """Errata must be signed by this key."""
    lenient: bool = False
    """Whether a file that cannot be used is none, with its problem noted, instead of an error."""
    _read: dict[Path, FoundErrata] = field(default_factory=dict)

    def find(self, run: RunFolder) -> FoundErrata:
        """The errata for a run: the named file, else `errata.json` beside its snapshot, else in `home`.

        Raises BadInput for a file that is named and missing, or holds no errata, and CheckFailed for one that the
        key did not sign.
        """
        if self.file is not None:
            return self._load(self.file)
        for folder in (snapshots_of(run), self.home):
            if folder is not None and (folder / ERRATA).is_file():
                return self._load(folder / ERRATA)
        return FoundErrata(None, Errata())

    def _load(self, path: Path) -> FoundErrata:
        place = path.absolute()
        if place not in self._read:
            self._read[place] = self._loaded(path)
        return self._read[place]

    def _loaded(self, path: Path) -> FoundErrata:
        key = None if self.public_key is None else self.public_key.id_text()
        try:
            errata = load_errata(path, public_key=self.public_key)
            return FoundErrata(path, errata, digest_bytes(path.read_bytes()), key)
        except (BadInput, CheckFailed) as exc:
            if self.lenient:
                return FoundErrata(path, Errata(), problem=exc.message.replace(str(path), path.name))
            raise


def snapshots_of(run: RunFolder) -> Path | None:
    """The folder in which the snapshot lies that the run was made on, as far as the run says; it may be gone."""
    hint = run.info.snapshots
    return None if hint is None else run.path / hint


def use_errata(runs: Sequence[RunFolder], mode: ErrataMode, search: ErrataSearch) -> ErrataUse:
    """What the errata concern of runs that are scored together.

    A run is held against every file that was found for any of them, and a case that was withdrawn for one run is
    withdrawn for all: runs of the same cases stay comparable whichever file lies beside which snapshot.
    """
    found = [search.find(run) for run in runs]
    entries = list(dict.fromkeys(entry for one in found for entry in one.errata.entries))
    gone = {
        entry.case_id for run in runs for entry in entries if entry.criterion_id is None and _is_about(entry, run)
    }
    return ErrataUse(
        mode, tuple(_concerned(run, one, entries, gone) for run, one in zip(runs, found, strict=True))
    )


def _is_about(entry: Erratum, run: RunFolder) -> bool:
    """Whether an entry is about the run's cases, if they hold what it names. A file of cases has no version: its
    ids, which are the same in every snapshot, tell."""
    return run.info.cases.origin != "snapshot" or run.info.cases.name in entry.snapshots


def _concerned(run: RunFolder, found: FoundErrata, entries: Iterable[Erratum], gone: set[str]) -> RunErrata:
    named: dict[str, set[str]] = {}
    for entry in entries:
        if entry.criterion_id is not None and _is_about(entry, run):
            named.setdefault(entry.case_id, set()).add(entry.criterion_id)
    cases, criteria, emptied, unclear = [], [], [], []
    for case in run.cases:
        if case.case_id in gone:
            cases.append(case.case_id)
            continue
        if case.case_id not in named:
            continue
        if run.info.cases.origin != "snapshot":
            unclear.append(case.case_id)
            continue
        taken = [c.id for c in case.criteria if c.id in named[case.case_id]]
        criteria += [(case.case_id, criterion_id) for criterion_id in taken]
        left = [c for c in case.criteria if c.id not in taken]
        if taken and case.positive_points > 0 and not any(c.points > 0 for c in left):
            emptied.append(case.case_id)
    return RunErrata(run.info.cases.name, found, tuple(cases), tuple(criteria), tuple(emptied), tuple(unclear))


def without(run: RunFolder, errata: RunErrata) -> RunFolder:
    """The run without the cases and criteria that the errata concern. Raises CheckFailed when no case is left."""
    gone = {*errata.cases, *errata.emptied}
    taken: dict[str, set[str]] = {}
    for case_id, criterion_id in errata.criteria:
        taken.setdefault(case_id, set()).add(criterion_id)
    kept = tuple(_lessened(case, taken) for case in run.cases if case.case_id not in gone)
    if not kept:
        raise CheckFailed(
            f"every case of {run.path} was withdrawn: nothing is left to score",
            hint="evaluate on a later snapshot",
        )
    return replace(run, cases=kept)


def _lessened(case: EvaluationCase, taken: Mapping[str, set[str]]) -> EvaluationCase:
    if case.case_id not in taken:
        return case
    return replace(case, criteria=tuple(c for c in case.criteria if c.id not in taken[case.case_id]))


def _warned(label: str, run: RunErrata) -> list[str]:
    parts = []
    if run.cases:
        parts.append(f"{_counted(len(run.cases), 'case')} ({_some(run.cases)})")
    if run.criteria:
        parts.append(f"{_criteria(run)} ({_some([criterion_id for _, criterion_id in run.criteria])})")
    said = (
        f"{label}: withdrawn since {run.version} was frozen: {' and '.join(parts)}; --errata apply leaves them out"
    )
    return [*([said] if parts else []), *_unclear(label, run)]


def _applied(label: str, run: RunErrata) -> list[str]:
    parts = []
    if run.cases:
        parts.append(f"without {_counted(len(run.cases), 'withdrawn case')}")
    if run.criteria:
        parts.append(f"without {_criteria(run, 'withdrawn ')}")
    if run.emptied:
        parts.append(f"without {_counted(len(run.emptied), 'case')} that had no positive criterion left then")
    said = f"{label}: errata of {run.version} applied: {', '.join(parts)}"
    return [*([said] if parts else []), *_unclear(label, run)]


def _unclear(label: str, run: RunErrata) -> list[str]:
    if not run.unclear:
        return []
    return [
        f"{label}: a criterion was withdrawn of {_counted(len(run.unclear), 'case')} ({_some(run.unclear)}), and "
        f"{run.version} does not tell which one it is; run on the snapshot's folder instead"
    ]


def _criteria(run: RunErrata, kind: str = "") -> str:
    cases = len({case_id for case_id, _ in run.criteria})
    word = "criterion" if len(run.criteria) == 1 else "criteria"
    return f"{len(run.criteria)} {kind}{word} of {_counted(cases, 'other case' if run.cases else 'case')}"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _some(ids: Sequence[str]) -> str:
    more = len(ids) - _NAMED
    return ", ".join(ids[:_NAMED]) + (f" and {more} more" if more > 0 else "")
