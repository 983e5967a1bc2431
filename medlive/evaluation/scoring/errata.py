"""Errata of scored runs: find withdrawn cases and criteria, and remove them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from medlive.digest import digest_bytes
from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.runs.folder import RunFolder
from medlive.snapshot.errata import ERRATA, Errata, Erratum, load_errata

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_NAMED: Final = 10
"""How many ids a warning names."""


class ErrataMode(StrEnum):
    """How errata are handled."""

    WARN = "warn"
    """Warn about the affected cases and criteria, and score them."""
    APPLY = "apply"
    """Leave the affected cases and criteria out."""
    IGNORE = "ignore"
    """Score them without a warning; recorded in the JSON output."""


@dataclass(frozen=True, slots=True)
class FoundErrata:
    """The errata that apply to a run."""

    path: Path | None
    """None if no errata were found."""
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
    """The parts of one run that errata affect."""

    version: str
    """The snapshot's version, or the name of the file that the cases came from."""
    found: FoundErrata
    cases: tuple[str, ...] = ()
    """Withdrawn cases, in the run's order."""
    criteria: tuple[tuple[str, str], ...] = ()
    """Withdrawn criteria of other cases, as (case id, criterion id), in the run's order."""
    emptied: tuple[str, ...] = ()
    """Cases left without a criterion with positive points."""
    unclear: tuple[str, ...] = ()
    """Cases with a withdrawn criterion that cannot be identified: a file of cases has no criterion ids."""

    @property
    def concerned(self) -> bool:
        """Whether errata affect the run."""
        return bool(self.cases or self.criteria or self.unclear)

    def row(self) -> dict[str, Any]:
        """Return the JSON form; the file is given by name and digest, its path is private."""
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
    """How errata were handled, for each run in scoring order."""

    mode: ErrataMode
    runs: tuple[RunErrata, ...]

    def without(self, place: int, run: RunFolder) -> RunFolder:
        """Return the run at that position as it is scored: unchanged, or without what was withdrawn."""
        return without(run, self.runs[place]) if self.mode is ErrataMode.APPLY else run

    def warnings(self, labels: Sequence[str]) -> list[str]:
        """Return the warnings for each labelled run; none where errata are ignored."""
        if self.mode is ErrataMode.IGNORE:
            return []
        found = []
        for label, run in zip(labels, self.runs, strict=True):
            if run.concerned:
                found += _applied(label, run) if self.mode is ErrataMode.APPLY else _warned(label, run)
            elif self.mode is ErrataMode.APPLY and run.found.path is None:
                found.append(f"{label}: no errata of {run.version} were found, none are applied")
        return found


@dataclass(slots=True)
class ErrataSearch:
    """Where to look for errata; each file is read once."""

    file: Path | None = None
    """The only file to use."""
    home: Path | None = None
    """The folder of snapshots to use where there are no errata beside the run's own snapshot."""
    public_key: "PublicKey | None" = None
    """Errata must be signed by this key."""
    lenient: bool = False
    """Whether an unusable file is noted as a problem instead of raised as an error."""
    _read: dict[Path, FoundErrata] = field(default_factory=dict)

    def find(self, run: RunFolder) -> FoundErrata:
        """Find the errata for a run: `file`, else `errata.json` beside its snapshot, else in `home`.

        Raises:
            BadInput: If the file is missing or does not contain errata.
            CheckFailed: If the file is not signed by the key.
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
            self._read[place] = self._parse(path)
        return self._read[place]

    def _parse(self, path: Path) -> FoundErrata:
        key = None if self.public_key is None else self.public_key.id_text()
        try:
            errata = load_errata(path, public_key=self.public_key)
            return FoundErrata(path, errata, digest_bytes(path.read_bytes()), key)
        except (BadInput, CheckFailed) as exc:
            if self.lenient:
                return FoundErrata(path, Errata(), problem=exc.message.replace(str(path), path.name))
            raise


def snapshots_of(run: RunFolder) -> Path | None:
    """The folder of the run's snapshot as recorded in the run; it may no longer exist."""
    hint = run.info.snapshots
    return None if hint is None else run.path / hint


def use_errata(runs: Sequence[RunFolder], mode: ErrataMode, search: ErrataSearch) -> ErrataUse:
    """Find what errata affect in runs that are scored together.

    The errata found for any run apply to all of them, and a case withdrawn for one run is withdrawn for all, so
    that runs of the same cases stay comparable.
    """
    found = [search.find(run) for run in runs]
    entries = list(dict.fromkeys(entry for one in found for entry in one.errata.entries))
    withdrawn = {
        entry.case_id for run in runs for entry in entries if entry.criterion_id is None and _is_about(entry, run)
    }
    return ErrataUse(
        mode, tuple(_affected(run, one, entries, withdrawn) for run, one in zip(runs, found, strict=True))
    )


def _is_about(entry: Erratum, run: RunFolder) -> bool:
    """Whether an entry is about the run's snapshot; a file of cases has no version, so any entry may apply."""
    return run.info.cases.origin != "snapshot" or run.info.cases.name in entry.snapshots


def _affected(run: RunFolder, found: FoundErrata, entries: Iterable[Erratum], withdrawn: set[str]) -> RunErrata:
    named: dict[str, set[str]] = {}
    for entry in entries:
        if entry.criterion_id is not None and _is_about(entry, run):
            named.setdefault(entry.case_id, set()).add(entry.criterion_id)
    cases, criteria, emptied, unclear = [], [], [], []
    for case in run.cases:
        if case.case_id in withdrawn:
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
    """Return the run without its withdrawn cases and criteria. Raises CheckFailed when no case is left."""
    withdrawn = set(errata.criteria)
    affected = {case_id for case_id, _ in withdrawn}
    kept = tuple(
        replace(case, criteria=tuple(c for c in case.criteria if (case.case_id, c.id) not in withdrawn))
        if case.case_id in affected
        else case
        for case in run.cases
        if case.case_id not in {*errata.cases, *errata.emptied}
    )
    if not kept:
        raise CheckFailed(
            f"every case of {run.path} was withdrawn: nothing is left to score",
            hint="evaluate on a later snapshot",
        )
    return replace(run, cases=kept)


def _warned(label: str, run: RunErrata) -> list[str]:
    parts = []
    if run.cases:
        parts.append(f"{_counted(len(run.cases), 'case')} ({_some(run.cases)})")
    if run.criteria:
        parts.append(f"{_criteria(run)} ({_some([criterion_id for _, criterion_id in run.criteria])})")
    warning = (
        f"{label}: withdrawn since {run.version} was frozen: {' and '.join(parts)}; --errata apply leaves them out"
    )
    return [*([warning] if parts else []), *_unclear(label, run)]


def _applied(label: str, run: RunErrata) -> list[str]:
    parts = []
    if run.cases:
        parts.append(f"without {_counted(len(run.cases), 'withdrawn case')}")
    if run.criteria:
        parts.append(f"without {_criteria(run, 'withdrawn ')}")
    if run.emptied:
        parts.append(f"without {_counted(len(run.emptied), 'case')} left without a positive criterion")
    warning = f"{label}: errata of {run.version} applied: {', '.join(parts)}"
    return [*([warning] if parts else []), *_unclear(label, run)]


def _unclear(label: str, run: RunErrata) -> list[str]:
    if not run.unclear:
        return []
    return [
        f"{label}: {_counted(len(run.unclear), 'case')} ({_some(run.unclear)}) have a withdrawn criterion that "
        f"cannot be identified in {run.version}; run on the snapshot's folder instead"
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
