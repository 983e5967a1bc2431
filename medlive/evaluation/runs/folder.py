"""The folder of a run: `create_run`, `open_run`, and `run.json`, which pins model, template and cases.

So a folder never becomes another run.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)

from medlive.build import code_version
from medlive.errors import BadInput, UsageError, first_fault
from medlive.evaluation.cases.selection import in_words
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase, Grade
from medlive.guard.bounds import RUN_INFO_BYTES
from medlive.integrity.digest import digest_bytes
from medlive.integrity.log import (
    exclusive,
    read_found,
    some,
    values_of,
    write_whole,
    writing,
)

from .templates import EVIDENCE, Evidence, Snippet

RESPONSES = "responses.jsonl"
GRADES = "grades.jsonl"
IMPORTED = "import"
"""The engine of a run whose answers came from a file."""

RAW = "raw"
"""The arm (way of asking) whose runs are asked in the threads' own words instead of the rewritten cases'."""
OPEN_BOOK = "open-book"
"""The arm whose runs have evidence before the question, and their template."""

_LOCK = ".run.lock"
_BEFORE_RUN_JSON = frozenset(("cases.jsonl", EVIDENCE))
"""Files that may exist without `run.json` if the lock file exists: creation was interrupted."""


class Frozen(BaseModel):
    """A document of a run's folder or a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


class TemplateUse(Frozen):
    """The pinned prompt template; for answers that came from a file the digest may be None."""

    name: str
    digest: str | None


class CasesUse(Frozen):
    """The cases of a run, from a `CaseSet`."""

    origin: str
    name: str
    digest: str
    """The snapshot's or the file's."""
    rows: str
    """The digest of the run folder's own `cases.jsonl`."""
    count: int = Field(ge=1)
    publishable: bool | None
    notes: tuple[str, ...]
    verified: bool | None = None
    """Whether the snapshot was verified when the run began."""
    selection: dict[str, Any] | None = None
    """Which part of the cases (`Selection.as_json`); None: all."""
    newer: str = Field(default="", exclude_if=lambda value: not value)
    """Only of earlier versions' runs: what that medlive did not know of the snapshot; now among `notes`."""


class EvidenceUse(Frozen):
    """The evidence of an open-book run."""

    index: str
    """The index's name where the run began."""
    retriever: str
    index_digest: str
    corpora: dict[str, str]
    """Corpus name → corpus digest."""
    top_k: int = Field(ge=1)
    undated: bool
    """Whether snippets without a date were let in."""
    rows: str
    """The digest of the run folder's own `evidence.jsonl`."""
    snippets: int = Field(ge=0)
    closed: int = Field(ge=0)
    """Cases without a snippet, asked as a closed book."""


class RunInfo(Frozen):
    """`run.json`: who answered what, with which prompt. Written once, but for an endpoint that never answered."""

    format: Literal["medlive-run"] = "medlive-run"
    format_version: Literal[1] = 1
    created_at: AwareDatetime
    code_version: str
    """Of medlive; with the commit where it is known: 0.1.0+g0123456789ab."""
    model: str
    endpoint: str | None
    """The base URL without credentials or query; None for answers from a file."""
    engine: str
    """"openai", "rules", or "import"."""
    parameters: dict[str, Any]
    template: TemplateUse
    cases: CasesUse
    snapshots: str | None = None
    """Where the snapshot lay, from the run's folder: a hint at its errata, and no part of what the run is."""
    asked_as: str | None = None
    """The model's id at the endpoint, where that is not `model`."""
    arm: str | None = None
    """How the model was asked: "closed", "open-book" or "raw"; None for answers from a file."""
    evidence: EvidenceUse | None = None

    @property
    def raw(self) -> bool:
        """Whether the model was asked in the threads' own words; older runs say so by the template's name."""
        return RAW in (self.arm, self.template.name)

    @property
    def open_book(self) -> bool:
        """Whether evidence stood before the questions, whatever the arm is called."""
        named = OPEN_BOOK in (self.arm, self.template.name)
        return named or self.evidence is not None


@dataclass(frozen=True)
class ModelUse:
    """Which model answers, and how it is asked."""

    model: str
    engine: str = "openai"
    endpoint: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    asked_as: str | None = None
    """The model's id at the endpoint; None: `model`."""
    arm: str | None = None
    """"raw"; None: as the template says, "open-book" or "closed"."""


@dataclass(frozen=True)
class RunFolder:
    """An opened and checked run folder."""

    path: Path
    info: RunInfo
    cases: tuple[EvaluationCase, ...]

    def answers(self) -> tuple[dict[str, Answer], list[str]]:
        """Return the latest answer by case, and notes on damaged rows and unknown cases."""
        notes: list[str] = []
        read = list(values_of(self.path / RESPONSES, Answer.from_row, notes))
        answers = {answer.case_id: answer for answer in read}
        for name in sorted(answers.keys() - {case.case_id for case in self.cases}):
            del answers[name]
            notes.append(f"{RESPONSES}: case {name!r} is not in the cases; left out")
        return answers, notes

    def snippets(self) -> Mapping[str, Sequence[Snippet]]:
        """The snippets of an open-book run by case; empty for a closed book."""
        evidence = self.evidence()
        return evidence.by_case if evidence else {}

    def evidence(self) -> Evidence | None:
        """The snippets of an open-book run, else None. Raises BadInput when they were changed."""
        if self.info.evidence is None:
            return None
        path = self.path / EVIDENCE
        data = read_found(path)
        if digest_bytes(data) != self.info.evidence.rows:
            raise BadInput(f"{path} was changed since the run began")
        return Evidence.read(data)


def grades_of(path: Path, notes: list[str]) -> Iterator[Grade]:
    """Yield all grades of a log in order; `notes` is complete at the end."""
    return values_of(path, Grade.from_row, notes)


def create_run(
    out: Path,
    cases: CaseSet,
    use: ModelUse,
    template: TemplateUse,
    created_at: datetime,
    evidence: tuple[Evidence, EvidenceUse] | None = None,
) -> RunFolder:
    """Create the run folder, or open it if it is the same run.

    The cases (`cases.jsonl`) and the snippets of an open-book run are copied into it, so that resuming, grading
    and scoring need no other file. Raises UsageError if there is no case, the folder contains another run or other
    files, or a parameter looks like a secret; DiskFull and BadInput if it cannot be written.
    """
    if not cases.cases:
        raise UsageError(f"{cases.name} has no case left to ask about")
    check_folder(out)
    if not (out / "run.json").exists():
        check_parameters(use.parameters)
    near = None
    if cases.snapshots:
        # Relative, so that it contains no home directory if they are near.
        real = os.path.realpath(cases.snapshots)
        near = Path(os.path.relpath(real, os.path.realpath(out))).as_posix()
    arm = use.arm
    if arm is None and use.engine != IMPORTED:
        arm = OPEN_BOOK if evidence else "closed"
    info = RunInfo(
        created_at=created_at.replace(microsecond=0),
        code_version=code_version(),
        template=template,
        cases=CasesUse.model_validate(cases),
        snapshots=near,
        evidence=evidence[1] if evidence else None,
        **asdict(replace(use, arm=arm)),
    )
    with writing(out):
        out.mkdir(
            parents=True,
            exist_ok=True,
        )
        with exclusive(out / _LOCK):
            if not (out / "run.json").exists():
                write_whole(out / "cases.jsonl", cases.data())
                if evidence:
                    write_whole(out / EVIDENCE, evidence[0].data())
                _write_info(out, info)
    existing = open_run(out)
    _require_same(existing, info)
    return existing


def _write_info(out: Path, info: RunInfo) -> None:
    text = json.dumps(
        info.model_dump(mode="json"),
        ensure_ascii=False,
        indent=2,
        sort_keys=True,
    )
    write_whole(out / "run.json", text.encode("utf-8", "backslashreplace") + b"\n")


def name_endpoint(run: RunFolder, endpoint: str | None) -> list[str]:
    """Record the endpoint in `run.json`, and return notes.

    An endpoint that never answered, such as a misspelled one, is replaced; otherwise `run.json` stays and a note
    says so. The caller must hold the lock of the answers' log. Raises DiskFull or BadInput if `run.json` cannot be
    written.
    """
    was = run.info.endpoint
    if endpoint is None or was == endpoint or run.info.engine == IMPORTED:
        return []
    states = {answer.state for answer in run.answers()[0].values()}
    if states - {AnswerState.FAILED}:
        return [
            f"{endpoint} is asked now; run.json names {was}, where earlier answers are from"
        ]
    with writing(run.path / "run.json"):
        _write_info(run.path, run.info.model_copy(update={"endpoint": endpoint}))
    return []


def check_folder(out: Path) -> None:
    """Raises UsageError if the folder is not a run folder and contains other files."""
    try:
        names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    except OSError as exc:
        raise BadInput(f"{out} cannot be read: {exc.strerror or exc}") from exc
    # Without the lock a file of that name is somebody's own, such as the cases that the run reads.
    ours = _BEFORE_RUN_JSON if _LOCK in names else frozenset[str]()
    foreign = sorted(name for name in names - ours if not name.startswith("."))
    if "run.json" not in names and foreign:
        raise UsageError(
            f"{out} is not a run folder: found {len(foreign)} unrelated files: {some(foreign)}",
            hint="name a new or empty folder, or a run's",
        )


def _require_same(existing: RunFolder, info: RunInfo) -> None:
    """Raises UsageError if the folder's run is not the requested one."""
    was = existing.info
    then, now = _identity(was), _identity(info)
    if was.engine == IMPORTED:
        # What was imported with its template named may be gone on with by asking the model.
        del now["model's id at the endpoint"], now["engine"]
    for name, value in now.items():
        if value != then[name]:
            before, after = f"{then[name]}"[:160], f"{value}"[:160]
            raise UsageError(
                f"{existing.path} is another run, with {name} {before}, not {after}",
                hint="give each model, template and set of cases its own folder; import answers with the --template "
                "and --parameters that they were asked with, to go on with them",
            )


def _identity(info: RunInfo) -> dict[str, object]:
    """What must be equal in two runs that are the same; endpoint, notes and verification need not be."""
    return {
        "model": info.model,
        "model's id at the endpoint": info.asked_as or info.model,
        "engine": info.engine,
        "parameters": info.parameters,
        "template": info.template,
        "selection of the cases": in_words(info.cases.selection),
        "digest of the cases": info.cases.digest,
        "rows of the cases": info.cases.rows,
    }


def read_info(path: Path) -> RunInfo:
    """Read `run.json` of a folder. Raises BadInput if it is not a run folder."""
    try:
        return RunInfo.model_validate_json(
            read_found(path / "run.json", RUN_INFO_BYTES)
        )
    except BadInput as exc:
        raise BadInput(
            f"{path} is not a run folder: {exc.message}",
            hint="give a folder that `medlive eval run` or `medlive eval import` made",
        ) from exc
    except ValidationError as exc:
        raise BadInput(f"{path / 'run.json'} is invalid: {first_fault(exc)}") from exc


def open_run(path: Path) -> RunFolder:
    """Open a run folder. Raises BadInput if it is not one, or its cases were changed."""
    info = read_info(path)
    file = path / "cases.jsonl"
    data = read_found(file)
    if digest_bytes(data) != info.cases.rows:
        raise BadInput(f"{file} was changed since the run began")
    try:
        return RunFolder(path, info, _cases(data))
    except (ValueError, RecursionError) as exc:
        raise BadInput(f"{file} cannot be read: {exc}") from exc


@lru_cache(maxsize=2)
def _cases(data: bytes) -> tuple[EvaluationCase, ...]:
    """Parse cases; runs of the same cases that are scored together share them."""
    rows = map(json.loads, filter(None, data.split(b"\n")))
    return tuple(map(EvaluationCase.from_row, rows))


_SECRET = re.compile(
    r"(?:^|[^a-z])(?:api[^a-z]?key|authorization|secret|password|passwd|credentials?|cookies?|headers|bearer"
    r"|access[^a-z]?key|(?:access|auth|api|refresh|session)[^a-z]?token)s?(?:$|[^a-z])"
)
"""Matches a parameter's name, in lower case, that looks like a secret's."""
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where a word begins in a name like apiKey."""


def leaves(
    value: Any,
    place: str = "",
) -> list[tuple[str, Any]]:
    """(name, value) of all that parameters hold, a name being `outer.inner[0]`."""
    named: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        dot = "." if place else ""
        named += [(f"{place}{dot}{name}", inner) for name, inner in value.items()]
    elif isinstance(value, list | tuple):
        named += [(f"{place}[{n}]", inner) for n, inner in enumerate(value)]
    else:
        return [(place, value)]
    return list(chain.from_iterable(leaves(inner, name) for name, inner in named))


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raises UsageError where a parameter looks like a secret: before it is written down."""
    for place, _ in leaves(parameters):
        if _SECRET.search(_HUMP.sub("_", place).lower()):
            raise UsageError(
                f"the parameter {place} looks like a secret, and run.json would hold it",
                hint="keys belong into the variable that --api-key-env names",
            )
