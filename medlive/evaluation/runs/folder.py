"""The folder of a run: what it is about is pinned in `run.json`, written once, and never becomes another run."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from medlive import __version__
from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, DiskFull, UsageError
from medlive.evaluation.cases.selection import in_words
from medlive.evaluation.log import is_full, values_of
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.runs.evidence import EVIDENCE, Evidence
from medlive.evaluation.runs.secrets import check_parameters
from medlive.integrity.lock import exclusive

RESPONSES: Final = "responses.jsonl"
GRADES: Final = "grades.jsonl"
IMPORTED: Final = "import"
"""The engine of a run whose answers came from a file."""

RAW: Final = "raw"
"""The arm whose runs are asked in the threads' own words instead of the rewritten cases'."""
OPEN_BOOK: Final = "open-book"
"""The arm whose runs have evidence before the question, and how the names of their templates begin."""

_LOCK: Final = ".run.lock"
_BEFORE_IT_IS_ONE: Final = frozenset(("cases.jsonl", EVIDENCE))
"""What a folder may hold before `run.json` is there, beside the lock under which it was written."""
_SAME_CASES: Final = ("origin", "name", "digest", "selection", "rows", "count")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TemplateUse(_Frozen):
    """The pinned prompt template; None as digest for answers that came from a file."""

    name: str
    digest: str | None


class CasesUse(_Frozen):
    """The cases of a run."""

    origin: str
    name: str
    digest: str
    """The snapshot's or the file's."""
    rows: str
    """The digest of the run folder's own `cases.jsonl`."""
    count: Annotated[int, Field(ge=1)]
    publishable: bool | None
    notes: tuple[str, ...]
    verified: bool | None = None
    """Whether the snapshot was verified when the run began."""
    selection: dict[str, Any] | None = None
    """Which part of the cases (`Selection.as_json`); None: all."""


class EvidenceUse(_Frozen):
    """The evidence of an open-book run."""

    index: str
    """The index's name where the run began."""
    retriever: str
    index_digest: str
    corpora: dict[str, str]
    """Corpus name → corpus digest."""
    top_k: Annotated[int, Field(ge=1)]
    undated: bool
    """Whether snippets without a date were let in."""
    rows: str
    """The digest of the run folder's own `evidence.jsonl`."""
    snippets: Annotated[int, Field(ge=0)]
    closed: Annotated[int, Field(ge=0)]
    """Cases without a snippet, asked as a closed book."""


class RunInfo(_Frozen):
    """`run.json`: who answered what, with which prompt. Written once, but for an endpoint that never answered."""

    format: Literal["medlive-run"] = "medlive-run"
    format_version: Literal[1] = 1
    created_at: AwareDatetime
    code_version: str
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
    """What sets this run apart from others of its model: "closed", "open-book", "raw", or any other word."""
    evidence: EvidenceUse | None = None

    @property
    def raw(self) -> bool:
        """Whether the model was asked in the threads' own words: `arm` says so, or the template's name."""
        return RAW in (self.arm, self.template.name)

    @property
    def open_book(self) -> bool:
        """Whether evidence stood before the questions, whatever the arm is called."""
        named = self.arm == OPEN_BOOK or self.template.name.startswith(OPEN_BOOK)
        return named or self.evidence is not None


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Which model answers, and how it is asked."""

    model: str
    engine: str = "openai"
    endpoint: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    asked_as: str | None = None
    """The model's id at the endpoint; None: `model`."""
    arm: str | None = None
    """None: as the template says, "open-book" or "closed"."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run as it lies in its folder, opened and checked."""

    path: Path
    info: RunInfo
    cases: tuple[EvaluationCase, ...]

    def answers(self) -> tuple[dict[str, Answer], list[str]]:
        """The latest answer by case, and what in the log was no answer or belongs to no case."""
        notes: list[str] = []
        strangers: list[str] = []
        known = {case.case_id for case in self.cases}
        found: dict[str, Answer] = {}
        for answer in values_of(self.path / RESPONSES, Answer.from_row, notes):
            if answer.case_id in known:
                found[answer.case_id] = answer
            else:
                strangers.append(f"{RESPONSES}: case {answer.case_id!r} is not in the cases; left out")
        return found, notes + strangers

    def evidence(self) -> Evidence | None:
        """The snippets of an open-book run, else None. Raises BadInput when they were changed."""
        if self.info.evidence is None:
            return None
        path = self.path / EVIDENCE
        try:
            data = path.read_bytes()
        except OSError as exc:
            raise BadInput(f"{path} cannot be read: {exc.strerror or exc}") from exc
        if digest_bytes(data) != self.info.evidence.rows:
            raise BadInput(f"{path} was changed since the run began")
        return Evidence.read(data)


def create_run(
    out: Path,
    cases: CaseSet,
    use: ModelUse,
    template: TemplateUse,
    created_at: datetime,
    evidence: tuple[EvidenceUse, bytes] | None = None,
) -> RunFolder:
    """Make the run folder, or open it when it is there and is the same run.

    The cases are copied into it (`cases.jsonl`), and the snippets of an open-book run, so that going on, grading
    and scoring need no other file. Raises UsageError when the folder holds a run of another model, template,
    parameters, arm or cases, or something else than a run, and for parameters that name a secret; DiskFull when
    there is no room for it.
    """
    check_folder(out)
    if not (out / "run.json").exists():
        check_parameters(use.parameters)
    rows = "".join(canonical_json(case.row()) + "\n" for case in cases.cases).encode("utf-8", "backslashreplace")
    info = RunInfo(
        created_at=created_at.replace(microsecond=0),
        code_version=__version__,
        model=use.model,
        endpoint=use.endpoint,
        engine=use.engine,
        parameters=dict(use.parameters),
        template=template,
        cases=CasesUse(
            origin=cases.origin,
            name=cases.name,
            digest=cases.digest,
            rows=digest_bytes(rows),
            count=len(cases),
            publishable=cases.publishable,
            notes=cases.notes,
            verified=cases.verified,
            selection=dict(cases.selection) if cases.selection else None,
        ),
        snapshots=_hint(cases.snapshots, out),
        asked_as=use.asked_as,
        arm=use.arm or _arm(use, evidence is not None),
        evidence=evidence[0] if evidence else None,
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with exclusive(out / _LOCK):
            if not (out / "run.json").exists():
                write_whole(out / "cases.jsonl", rows)
                if evidence:
                    write_whole(out / EVIDENCE, evidence[1])
                _write_info(out, info)
    except OSError as exc:
        if is_full(exc):
            raise DiskFull(f"no space is left for {out}", hint="make room and run this again") from exc
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    there = open_run(out)
    _same(there, info, arm=use.arm)
    return there


def _write_info(out: Path, info: RunInfo) -> None:
    text = json.dumps(info.model_dump(mode="json"), ensure_ascii=False, indent=2, sort_keys=True)
    write_whole(out / "run.json", text.encode("utf-8", "backslashreplace") + b"\n")


def name_endpoint(run: RunFolder, endpoint: str | None) -> list[str]:
    """See that `run.json` names the endpoint that answers; what is to be said of it.

    An endpoint that never answered, as one that was misspelled, is not the run's: the next one takes its place.
    Where another answered before, `run.json` stays as it is, and the note says so. To be called by whoever holds
    the log of the answers. Raises DiskFull and BadInput where `run.json` cannot be written.
    """
    was = run.info.endpoint
    if endpoint is None or was == endpoint or run.info.engine == IMPORTED:
        return []
    if any(answer.state is not AnswerState.FAILED for answer in run.answers()[0].values()):
        return [f"{endpoint} is asked now; run.json names {was}, where earlier answers are from"]
    try:
        _write_info(run.path, run.info.model_copy(update={"endpoint": endpoint}))
    except OSError as exc:
        if is_full(exc):
            raise DiskFull(f"no space is left for {run.path}", hint="make room and run this again") from exc
        raise BadInput(f"{run.path / 'run.json'} cannot be written: {exc.strerror or exc}") from exc
    return []


def check_folder(out: Path) -> None:
    """Raises UsageError where files lie in a folder that holds no run: it is not made one among them."""
    try:
        there = {path.name for path in out.iterdir()} if out.is_dir() else set()
    except OSError as exc:
        raise BadInput(f"{out} cannot be read: {exc.strerror or exc}") from exc
    # Without the lock a file of that name is somebody's own, such as the cases that the run was told to read.
    ours = _BEFORE_IT_IS_ONE if _LOCK in there else frozenset[str]()
    foreign = sorted(name for name in there - ours if not name.startswith("."))
    if "run.json" not in there and foreign:
        told = ", ".join(foreign[:5]) + (" …" if len(foreign) > 5 else "")
        raise UsageError(
            f"{out} holds no run.json but other files: {told}", hint="name a folder that is new, empty, or a run's"
        )


def _arm(use: ModelUse, open_book: bool) -> str | None:
    if use.engine == IMPORTED:
        return None
    return OPEN_BOOK if open_book else "closed"


def _same(there: RunFolder, info: RunInfo, *, arm: str | None) -> None:
    """Raises UsageError when the folder's run is not the one that is asked for."""
    was = there.info
    # The endpoint may move; what was odd in a file of cases, or was not verified, makes them no other cases.
    parts: list[tuple[str, object, object]] = [
        ("model", was.model, info.model),
        ("parameters", was.parameters, info.parameters),
    ]
    parts += [("template", was.template, info.template)]
    # A file that was moved or renamed holds the same cases.
    named = _SAME_CASES if was.cases.digest != info.cases.digest else [n for n in _SAME_CASES if n != "name"]
    parts += [(f"cases' {n}", getattr(was.cases, n), getattr(info.cases, n)) for n in named]
    if was.engine != IMPORTED:
        # What was imported with its template named may be gone on with by asking the model.
        parts.insert(1, ("engine", was.engine, info.engine))
        at_endpoint = (was.asked_as or was.model, info.asked_as or info.model)
        parts.insert(1, ("model's id at the endpoint", *at_endpoint))
    if arm is not None or (RAW in (was.arm, info.arm) and was.cases.rows != info.cases.rows):
        parts.insert(1, ("arm", was.arm, info.arm))
    for name, then, now in parts:
        if then != now:
            hint = "give each model, template and set of cases its own folder"
            if was.engine == IMPORTED and info.engine != IMPORTED and name in ("template", "parameters"):
                hint = "import the answers with --template and --parameters as they were asked, to go on with them"
            elif was.engine == IMPORTED and name == "model":
                hint = f'its id at the endpoint goes under [candidates."{was.model}"] in models.toml'
            if name == "cases' selection":
                about, other = (in_words(one.cases.selection) for one in (was, info))
                raise UsageError(
                    f"{there.path} is another run: it asks about {about}, not about {other}", hint=hint
                )
            verb = "are" if name in ("parameters", "cases' rows") else "is"
            raise UsageError(
                f"{there.path} is another run: its {name} {verb} {_short(then)}, not {_short(now)}", hint=hint
            )


def _hint(snapshots: Path | None, out: Path) -> str | None:
    """The way from the run's folder to the snapshots': no name of a home directory where they lie close."""
    if snapshots is None:
        return None
    return Path(os.path.relpath(os.path.realpath(snapshots), os.path.realpath(out))).as_posix()


def _short(value: object) -> str:
    text = value.model_dump_json() if isinstance(value, BaseModel) else repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in its place whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def read_info(path: Path) -> RunInfo:
    """What `run.json` in a folder says. Raises BadInput when the folder holds no run."""
    try:
        return RunInfo.model_validate_json((path / "run.json").read_bytes())
    except OSError as exc:
        raise BadInput(f"{path} holds no run: {exc.strerror or exc}") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(p) for p in first["loc"]) or "the whole"
        raise BadInput(f"{path / 'run.json'} is no run: {place}: {first['msg']}") from exc


def open_run(path: Path) -> RunFolder:
    """The run in a folder. Raises BadInput when it holds none, or when its cases are not those it began with."""
    info = read_info(path)
    try:
        data = (path / "cases.jsonl").read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} holds no run: {exc.strerror or exc}") from exc
    if digest_bytes(data) != info.cases.rows:
        raise BadInput(f"{path / 'cases.jsonl'} was changed since the run began")
    try:
        cases = _cases(data)
    except (ValueError, TypeError, KeyError) as exc:
        raise BadInput(f"{path / 'cases.jsonl'} cannot be read: {exc}") from exc
    return RunFolder(path, info, cases)


@lru_cache(maxsize=2)
def _cases(data: bytes) -> tuple[EvaluationCase, ...]:
    """The cases of a file's bytes; runs of the same cases, scored together, share them."""
    return tuple(EvaluationCase.from_row(json.loads(row)) for row in data.split(b"\n") if row)
