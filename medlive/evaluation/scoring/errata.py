"""Errata of scored runs: find withdrawn cases and criteria, and remove them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medlive.errors import BadInput, CheckFailed
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import RunFolder
from medlive.integrity.digest import digest_bytes
from medlive.integrity.log import read_bytes, read_found, some
from medlive.snapshot.errata import ERRATA, Errata, Erratum, load_errata

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


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
    errata: Errata
    """Empty where none were found or they could not be read."""
    digest: str | None = None
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
        errata = self.found
        return {
            "version": self.version,
            "file": None if errata.path is None else errata.path.name,
            "digest": errata.digest,
            "checked_with": errata.key,
            "problem": errata.problem,
            "withdrawn_cases": list(self.cases),
            "withdrawn_criteria": [
                {"case_id": case, "criterion_id": c} for case, c in self.criteria
            ],
            "cases_left_without_positive_criterion": list(self.emptied),
            "cases_with_unclear_criteria": list(self.unclear),
        }


@dataclass(frozen=True, slots=True)
class ErrataUse:
    """How errata were handled, for each run in scoring order."""

    mode: ErrataMode
    runs: tuple[RunErrata, ...]

    def warnings(self, labels: Sequence[str]) -> list[str]:
        """Return the warnings for each labelled run; none where errata are ignored."""
        if self.mode is ErrataMode.IGNORE:
            return []
        apply = self.mode is ErrataMode.APPLY
        warnings = []
        for label, run in zip(labels, self.runs, strict=True):
            warnings += _warnings(label, run, apply=apply)
            if apply and not run.concerned and run.found.path is None:
                warnings.append(
                    f"{label}: no errata of {run.version} were found, none are applied"
                )
        return warnings


@dataclass(frozen=True, slots=True)
class ErrataSearch:
    """Where to look for errata."""

    file: Path | None = None
    home: Path | None = None
    """The folder of snapshots to use where there are no errata beside the run's own snapshot."""
    public_key: "PublicKey | None" = None
    """Errata must be signed by this key."""
    lenient: bool = False
    """Whether an unusable file is noted as a problem instead of raised as an error."""

    def find(self, run: RunFolder) -> FoundErrata:
        """Find the errata for a run: `file`, else `errata.json` beside its snapshot, else in `home`.

        Raises:
            BadInput: If the file is missing or does not contain errata.
            CheckFailed: If the file is not signed by the key.
        """
        folders = [self.home]
        if run.info.snapshots is not None:
            folders.insert(0, run.path / run.info.snapshots)
        path = self.file
        for folder in folders:
            if path is None and folder is not None and (folder / ERRATA).is_file():
                path = folder / ERRATA
        if path is None:
            return FoundErrata(None, Errata())
        is_named = self.file is not None
        try:
            errata = load_errata(path, public_key=self.public_key, is_named=is_named)
            data = read_bytes(path) if is_named else read_found(path)
        except (BadInput, CheckFailed) as exc:
            if not self.lenient:
                raise
            problem = exc.message.replace(str(path), path.name)
            return FoundErrata(path, Errata(), problem=problem)
        key = None if self.public_key is None else self.public_key.id_text()
        return FoundErrata(path, errata, digest_bytes(data), key)


def use_errata(
    runs: Sequence[RunFolder], mode: ErrataMode, search: ErrataSearch
) -> ErrataUse:
    """Find what errata affect in runs that are scored together.

    The errata found for any run apply to all of them, and a case withdrawn for one run is withdrawn for all, so
    that runs of the same cases stay comparable.
    """
    found = [search.find(run) for run in runs]
    unique: dict[Erratum, None] = {}
    for errata in found:
        unique |= dict.fromkeys(errata.errata.standing)
    withdrawn = set()
    for run in runs:
        for entry in unique:
            if entry.criterion_id is None and _is_about(entry, run):
                withdrawn.add(entry.case_id)
    affected = []
    for run, errata in zip(runs, found, strict=True):
        affected.append(_affected(run, errata, unique, withdrawn))
    return ErrataUse(mode, tuple(affected))


def _is_about(entry: Erratum, run: RunFolder) -> bool:
    """Whether an entry is about the run's snapshot; a file of cases has no version, so any entry may apply."""
    return run.info.cases.origin != "snapshot" or run.info.cases.name in entry.snapshots


def _affected(
    run: RunFolder, found: FoundErrata, entries: Iterable[Erratum], withdrawn: set[str]
) -> RunErrata:
    named: set[tuple[str, str]] = set()
    for entry in entries:
        if entry.criterion_id is not None and _is_about(entry, run):
            named.add((entry.case_id, entry.criterion_id))
    kept = [case for case in run.cases if case.case_id not in withdrawn]
    affected = RunErrata(
        version=run.info.cases.name,
        found=found,
        cases=tuple(c.case_id for c in run.cases if c.case_id in withdrawn),
    )
    if run.info.cases.origin != "snapshot":
        doubtful = dict(named)
        unclear = tuple(c.case_id for c in kept if c.case_id in doubtful)
        return replace(affected, unclear=unclear)
    criteria = []
    for case in kept:
        for criterion in case.criteria:
            if (case.case_id, criterion.id) in named:
                criteria.append((case.case_id, criterion.id))
    emptied = emptied_cases(kept, set(criteria))
    return replace(affected, criteria=tuple(criteria), emptied=emptied)


def emptied_cases(
    cases: Iterable[EvaluationCase], criteria: set[tuple[str, str]]
) -> tuple[str, ...]:
    """The cases that these (case id, criterion id) leave without a criterion with positive points."""
    emptied = []
    for case in cases:
        left = _without_criteria(case, criteria)
        if left.positive_points <= 0 < case.positive_points:
            emptied.append(case.case_id)
    return tuple(emptied)


def _without_criteria(
    case: EvaluationCase, withdrawn: set[tuple[str, str]]
) -> EvaluationCase:
    return case.with_criteria(lambda c: (case.case_id, c.id) not in withdrawn)


def without(run: RunFolder, errata: RunErrata) -> RunFolder:
    """Return the run without its withdrawn cases and criteria. Raises CheckFailed when no case is left."""
    left_out = {*errata.cases, *errata.emptied}
    kept = [case for case in run.cases if case.case_id not in left_out]
    if not kept:
        raise CheckFailed(
            f"every case of {run.path} was withdrawn: nothing is left to score",
            hint="evaluate on a later snapshot",
        )
    withdrawn = set(errata.criteria)
    cases = tuple(_without_criteria(case, withdrawn) for case in kept)
    return replace(run, cases=cases)


def _warnings(label: str, run: RunErrata, *, apply: bool) -> list[str]:
    """What errata mean for a run, whether they are applied or not; nothing where they do not affect it."""
    parts = []
    if run.cases:
        named = "" if apply else f" ({some(run.cases)})"
        parts.append(f"{len(run.cases)} case(s){named}")
    if run.criteria:
        ids = [criterion_id for _, criterion_id in run.criteria]
        named = "" if apply else f" ({some(ids)})"
        others = f"{len(dict(run.criteria))} other case(s)"
        parts.append(f"{len(ids)} criteria of {others}{named}")
    if run.emptied and apply:
        parts.append(f"{len(run.emptied)} case(s) left without a positive criterion")
    warnings = []
    if parts and apply:
        warnings.append(
            f"{label}: errata of {run.version} applied: without {', '.join(parts)}"
        )
    elif parts:
        what = " and ".join(parts)
        warnings.append(
            f"{label}: withdrawn since {run.version} was frozen: {what}; --errata apply leaves them out"
        )
    if run.unclear:
        warnings.append(
            f"{label}: {len(run.unclear)} case(s) ({some(run.unclear)}) have a withdrawn criterion "
            f"that cannot be identified in {run.version}; run on the snapshot's folder instead"
        )
    return warnings
