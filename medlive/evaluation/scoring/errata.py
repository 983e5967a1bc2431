"""Errata of scored runs: find withdrawn cases and criteria (`use_errata`), and remove them (`without`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.errors import CheckFailed
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.folder import RunFolder
from medlive.integrity.digest import digest_bytes
from medlive.integrity.log import read_bytes, read_found, some
from medlive.snapshot.errata import ERRATA, Erratum, load_errata

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


class ErrataMode(StrEnum):
    """How errata are handled."""

    WARN = "warn"
    """Warn about the affected cases and criteria, and score them."""
    APPLY = "apply"
    """Leave the affected cases and criteria out."""
    IGNORE = "ignore"
    """Look for none."""


@dataclass(frozen=True)
class RunErrata:
    """The errata of a run, and the run's cases and criteria that they withdraw."""

    version: str
    """The snapshot's version, or the name of the file that the cases came from."""
    path: Path | None = None
    """None: no errata were found."""
    digest: str | None = None
    key: str | None = None
    """The id of the key whose signature was checked; None: no key was given."""
    cases: tuple[str, ...] = ()
    """Withdrawn cases, in the run's order."""
    criteria: tuple[tuple[str, str], ...] = ()
    """Withdrawn criteria of other cases, as (case id, criterion id), in the run's order."""
    emptied: tuple[str, ...] = ()
    """Cases left without a criterion with positive points."""

    @property
    def concerned(self) -> bool:
        """Whether errata affect the run."""
        return bool(self.cases or self.criteria)

    def warnings(self, *, apply: bool) -> Iterator[str]:
        """What errata mean for the run, whether they are applied or not; nothing where they do not affect it."""
        parts = []
        if self.cases:
            parts.append(f"{len(self.cases)} cases ({some(self.cases)})")
        if self.criteria:
            ids = [criterion_id for _, criterion_id in self.criteria]
            parts.append(f"{len(ids)} criteria ({some(ids)})")
        if self.emptied and apply:
            parts.append(f"{len(self.emptied)} cases left without a positive criterion")
        what = ", ".join(parts)
        if what and apply:
            yield f"errata of {self.version} applied: without {what}"
        elif what:
            yield f"withdrawn since {self.version} was frozen: {what}; --errata apply leaves them out"
        elif apply and self.path is None:
            yield f"no errata of {self.version} were found, none are applied"


@dataclass(frozen=True)
class ErrataUse:
    """How errata were handled, for each run in scoring order."""

    mode: ErrataMode
    runs: tuple[RunErrata, ...]

    def warnings(
        self,
        labels: Iterable[str],
    ) -> Iterator[str]:
        """The warnings for each labelled run."""
        apply = self.mode is ErrataMode.APPLY
        for label, run in zip(labels, self.runs, strict=True):
            for warning in run.warnings(apply=apply):
                yield f"{label}: {warning}"


def use_errata(
    runs: Sequence[RunFolder],
    mode: ErrataMode,
    *,
    file: Path | None = None,
    home: Path | None = None,
    public_key: "PublicKey | None" = None,
) -> ErrataUse:
    """Find what errata affect in runs that are scored together.

    The errata found for any run apply to all of them, and a case withdrawn for one run is withdrawn for all, so
    that runs of the same cases stay comparable. A criterion withdrawn from cases that came from a file, which has no
    ids of criteria, withdraws the whole case.

    Args:
        runs: The runs.
        mode: How errata are handled.
        file: The errata; None: `errata.json` beside each run's own snapshot, else in `home`.
        home: The folder of snapshots.
        public_key: The key that must have signed the errata.

    Raises:
        BadInput: If a file is missing or does not contain errata.
        CheckFailed: If a file is not signed by the key.
    """
    about_runs = []
    entries: dict[Erratum, None] = {}
    for run in runs:
        path = file or _errata_beside(run, home)
        about = RunErrata(run.info.cases.name, path)
        if path is not None:
            own = load_errata(
                path,
                public_key=public_key,
                is_named=bool(file),
            )
            data = read_bytes(path) if file else read_found(path)
            about = replace(
                about,
                digest=digest_bytes(data),
                key=None if public_key is None else public_key.id_text(),
            )
            entries |= dict.fromkeys(own.standing)
        about_runs.append(about)
    parts = affected_parts(runs, about_runs, list(entries))
    return ErrataUse(mode, tuple(parts))


def _errata_beside(
    run: RunFolder,
    home: Path | None,
) -> Path | None:
    """The errata file beside the run's own snapshot, else in `home`; None if there is none."""
    folders = [home]
    if run.info.snapshots is not None:
        folders.insert(0, run.path / run.info.snapshots)
    for folder in folders:
        if folder is not None and (folder / ERRATA).is_file():
            return folder / ERRATA
    return None


def affected_parts(
    runs: Sequence[RunFolder],
    about_runs: Sequence[RunErrata],
    entries: Sequence[Erratum],
) -> Iterator[RunErrata]:
    """Each run's errata, completed with the parts of it that `entries`, those of all runs, withdraw."""
    withdrawn: set[str] = set()
    by_run: list[set[tuple[str, str]]] = []
    for run in runs:
        named = set()
        for entry in entries:
            if run.info.cases.origin != "snapshot":
                # A file of cases has no version and no ids of criteria: any entry may apply, and to the whole case.
                withdrawn.add(entry.case_id)
            elif run.info.cases.name not in entry.snapshots:
                continue
            elif entry.criterion_id is None:
                withdrawn.add(entry.case_id)
            else:
                named.add((entry.case_id, entry.criterion_id))
        by_run.append(named)
    for run, about, named in zip(runs, about_runs, by_run, strict=True):
        gone: list[str] = []
        criteria: list[tuple[str, str]] = []
        kept: list[EvaluationCase] = []
        for case in run.cases:
            if case.case_id in withdrawn:
                gone.append(case.case_id)
                continue
            kept.append(case)
            places = ((case.case_id, criterion.id) for criterion in case.criteria)
            criteria += filter(named.__contains__, places)
        yield replace(
            about,
            cases=tuple(gone),
            criteria=tuple(criteria),
            emptied=emptied_cases(kept, named),
        )


def emptied_cases(
    cases: Iterable[EvaluationCase],
    criteria: set[tuple[str, str]],
) -> tuple[str, ...]:
    """The cases that these (case id, criterion id) leave without a criterion with positive points."""
    emptied = []
    for case in cases:
        left = _without_criteria(case, criteria)
        if left.positive_points <= 0 < case.positive_points:
            emptied.append(case.case_id)
    return tuple(emptied)


def _without_criteria(
    case: EvaluationCase,
    withdrawn: set[tuple[str, str]],
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
