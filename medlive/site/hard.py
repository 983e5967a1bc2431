"""The hard cases of each week, chosen by other models than the one that is scored, and fixed for good.

Source: docs/scale.md, "Hard cases". The file `hard.json` lies beside the snapshots and is part of the site.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from medlive.errors import BadInput, UsageError
from medlive.evaluation.runs.folder import write_whole
from medlive.integrity.digest import canonical_json

HARD: Final = "hard.json"


@dataclass(frozen=True, slots=True)
class HardWeek:
    """One week's hard cases: a third of its cases."""

    cases: tuple[str, ...]
    """For every model that had no part in the choice."""
    by_others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each model that had: as all the others chose."""

    def cases_for(self, model: str) -> tuple[str, ...]:
        """The cases on which a model is scored."""
        return self.by_others.get(model, self.cases)


HardWeeks = dict[str, dict[str, HardWeek]]
"""Title of a scale → week → its hard cases."""
_FILE: Final = TypeAdapter(HardWeeks)


def load_hard(path: Path) -> HardWeeks:
    """The weeks that are fixed; none where there is no file. Raises BadInput for a damaged one."""
    if not path.is_file():
        return {}
    try:
        return _FILE.validate_json(path.read_bytes())
    except (OSError, ValidationError) as exc:
        raise BadInput(
            f"{path} cannot be read as a file of hard cases",
            hint="fetch it again from the site (data/hard.json); without it they would be chosen again",
        ) from exc


def hard_bytes(weeks: HardWeeks) -> bytes:
    """The file of these weeks; the same weeks make the same bytes."""
    return canonical_json(_FILE.dump_python(weeks, mode="json")).encode("utf-8")


def fix_hard(path: Path, data: bytes) -> None:
    """Keep what `hard_bytes` made, unless it lies there or holds no week.

    Raises:
        UsageError: If it cannot be written.
    """
    if data == b"{}" or (path.is_file() and path.read_bytes() == data):
        return
    try:
        write_whole(path, data)
    except OSError as exc:
        raise UsageError(
            f"the hard cases cannot be fixed: {path}: {exc.strerror}",
            hint="name a file that can be written with --hard",
        ) from exc
