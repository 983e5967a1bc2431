"""The state of a bundle's verification, shared by its steps."""

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
class Verification:
    """What the steps read and produce; None where it could not be read, or not yet."""

    path: Path
    files: Mapping[str, bytes]
    packing_faults: Faults
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
    """None also if the bundle does not mention errata."""
    digests: list[list[str]] | None = None
    answers: list[Answer] | None = None
    grades: list[Grade] | None = None
    cases: tuple[EvaluationCase, ...] | None = None
    snapshots_folder: Path | None = None
    """The folder beside the snapshot that may contain errata."""
    withdrawn: RunErrata | None = None
    """What locally known errata affect."""
    recomputed: dict[str, Any] | None = None
    """The scores as recomputed here."""

    def require_file(self, name: str) -> bytes:
        """Return the content of a file. Raises Skip if it is missing."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def add_note(self, text: str) -> None:
        """Add a note to the current step, which may still pass."""
        self.note = f"{self.note}; {text}" if self.note else text

    def require_cases(self) -> tuple[EvaluationCase, ...]:
        """Return the snapshot's cases. Raises Skip if the snapshot is not available."""
        if self.cases is None:
            raise Skip("the cases are not available", allowed=True)
        return self.cases

    def require_rows(self, rows: list[Row] | None, name: str) -> list[Row]:
        """Return the rows of a log. Raises Skip if the bundle was made without answers."""
        if self.info is not None and not self.info.answers:
            raise Skip("the bundle was made without answers and grades", allowed=True)
        return require(rows, name)


def require(value: Known | None, name: str) -> Known:
    """Return the value. Raises Skip if it could not be read."""
    if value is None:
        raise Skip(f"{name} could not be read")
    return value
