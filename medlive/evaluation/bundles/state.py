"""A bundle while it is verified: what lies there, and what the steps so far made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medlive.evaluation.bundles.bundle import BundleInfo, ErrataUse
from medlive.evaluation.model import Answer, CaseSet, EvaluationCase, Grade
from medlive.evaluation.runs.folder import RunInfo
from medlive.evaluation.scoring.errata import RunErrata
from medlive.integrity.checks import Faults, Skip, Trust

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

Known = TypeVar("Known")
Row = TypeVar("Row", Answer, Grade)


@dataclass
class Held:
    """What the steps look at and leave to one another; None is what could not be read, or not yet."""

    path: Path
    files: Mapping[str, bytes]
    odd: Faults
    public_keys: "Sequence[PublicKey]"
    snapshot: Path | CaseSet | None
    errata_file: Path | None
    trust: Trust = Trust.BROKEN
    note: str = ""
    failed: tuple[int, ...] = ()
    info: BundleInfo | None = None
    run: RunInfo | None = None
    scores: dict[str, Any] | None = None
    errata: ErrataUse | None = None
    """None also where the bundle says nothing of errata."""
    digests: list[list[str]] | None = None
    answers: list[Answer] | None = None
    grades: list[Grade] | None = None
    cases: tuple[EvaluationCase, ...] | None = None
    home: Path | None = None
    """Where errata may lie beside the snapshot."""
    withdrawn: RunErrata | None = None
    """What the errata that are known here concern of the cases."""
    again: dict[str, Any] | None = None
    """The scores as they come out here."""

    def need(self, name: str) -> bytes:
        """A file. Raises Skip where there is none."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def told(self, text: str) -> None:
        """Say that of the present step, although it passes."""
        self.note = f"{self.note}; {text}" if self.note else text

    def known_cases(self) -> tuple[EvaluationCase, ...]:
        """The snapshot's cases. Raises Skip where the snapshot is not here."""
        if self.cases is None:
            raise Skip("the cases are not known", allowed=True)
        return self.cases

    def held_rows(self, rows: list[Row] | None, name: str) -> list[Row]:
        """The rows of a log. Raises Skip for a bundle without answers."""
        if self.info is not None and not self.info.answers:
            raise Skip("the bundle was made without answers and grades", allowed=True)
        return known(rows, name)


def known(value: Known | None, name: str) -> Known:
    """What was read. Raises Skip where it could not be."""
    if value is None:
        raise Skip(f"{name} cannot be used")
    return value
