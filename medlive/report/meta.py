"""`meta.json` of `medlive eval meta`, as a report reads it."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from medlive.errors import BadInput, UsageError, first_fault
from medlive.evaluation.agreement.meta import CaseLevel
from medlive.evaluation.scoring.refusals import Objection
from medlive.integrity.log import read_bytes
from medlive.statistics.raters import Reliability

Shape = TypeVar("Shape", bound=BaseModel)


class MetaGrader(BaseModel):
    """Who graded."""

    name: str
    engine: str
    judge: str
    """The digest of what makes the grader itself."""


class MetaFile(BaseModel):
    """What this report shows of a `meta.json`; fields that are added later are passed over."""

    format: Literal["medlive-meta"]
    format_version: Literal[1]
    run: dict[str, Any]
    """What was graded: model, cases."""
    grader: MetaGrader
    human: dict[str, Any] | None = None
    """Where people's verdicts come from."""
    criteria: Reliability | None = None
    cases: tuple[CaseLevel, ...] = ()
    notes: tuple[str, ...] = ()
    overridden: tuple[Objection, ...] = ()
    """What would mislead and was allowed, to be printed with the figures."""


def read_json(
    path: Path,
    shape: type[Shape],
    name: str,
) -> Shape:
    """A file as that model; `name` is what medlive calls such files. Raises BadInput."""
    try:
        return shape.model_validate_json(read_bytes(path))
    except ValidationError as exc:
        raise BadInput(
            f"{path} is not a {name} of medlive: {first_fault(exc)}"
        ) from exc


def read_meta(
    path: Path,
    judges: Collection[str] | None = None,
) -> MetaFile:
    """A `meta.json` of `medlive eval meta`, of one of these judges.

    Raises:
        BadInput: If the file is not one.
        UsageError: If it is of a judge that graded none of the runs.
    """
    meta = read_json(path, MetaFile, "meta.json")
    grader = meta.grader
    if judges is not None and grader.judge not in judges:
        known = ", ".join(sorted(judge[:19] for judge in judges)) or "nobody"
        raise UsageError(
            f"{path} is about {grader.name} ({grader.judge[:19]}), which graded none of the runs",
            hint=f"these runs were graded by {known}",
        )
    return meta
