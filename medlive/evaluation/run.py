"""The run folder, and asking a model about every case: append-only, continued where it stopped."""

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from medlive import __version__
from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, EndpointUnavailable, UsageError
from medlive.evaluation.livemedbench import state_of
from medlive.evaluation.log import open_log, read_log
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.pool import Health, for_each
from medlive.evaluation.templates import load_template
from medlive.llm.engine import Finish, Reply
from medlive.snapshot.lock import exclusive

RESPONSES: Final = "responses.jsonl"
GRADES: Final = "grades.jsonl"

Complete = Callable[[Sequence[Mapping[str, str]]], Awaitable[Reply]]
"""Asks the model: chat messages to a reply; raises EndpointUnavailable when none could be had."""

Progress = Callable[[int, int], None]
"""Told (done, of how many) now and then."""


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


class RunInfo(_Frozen):
    """`run.json`: who answered what, with which prompt. Written once."""

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


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Which model answers, and how it is asked."""

    model: str
    engine: str = "openai"
    endpoint: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run as it lies in its folder, opened and checked."""

    path: Path
    info: RunInfo
    cases: tuple[EvaluationCase, ...]

    def answers(self) -> tuple[dict[str, Answer], list[str]]:
        """The latest answer by case, and what in the log was no answer or belongs to no case."""
        lines = read_log(self.path / RESPONSES)
        notes = [f"{RESPONSES}:{number}: {why}" for number, why in lines.damaged]
        known = {case.case_id for case in self.cases}
        found: dict[str, Answer] = {}
        for row in lines.rows:
            try:
                answer = Answer.from_row(row)
            except (TypeError, KeyError, ValueError) as exc:
                notes.append(f"{RESPONSES}: no answer: {str(exc)[:120]}")
                continue
            if answer.case_id not in known:
                notes.append(f"{RESPONSES}: case {answer.case_id!r} is not in the cases; left out")
                continue
            found[answer.case_id] = answer
        return found, notes


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to: every case counts under one state, `missing` ones were not asked."""

    path: Path
    cases: int
    asked: int
    """Calls made this time."""
    states: dict[AnswerState, int]
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """Cases without any answer on record."""
        return self.cases - sum(self.states.values())


def create_run(out: Path, cases: CaseSet, use: ModelUse, template: TemplateUse, created_at: datetime) -> RunFolder:
    """Make the run folder, or open it when it is there and is the same run.

    The cases are copied into it (`cases.jsonl`), so that grading and scoring need no other file. Raises UsageError
    when the folder holds a run of another model, template, parameters or cases.
    """
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
        ),
        snapshots=_hint(cases.snapshots, out),
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
        with exclusive(out / ".run.lock"):
            if not (out / "run.json").exists():
                _write_whole(out / "cases.jsonl", rows)
                text = json.dumps(info.model_dump(mode="json"), ensure_ascii=False, indent=2, sort_keys=True)
                _write_whole(out / "run.json", text.encode("utf-8") + b"\n")
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    there = open_run(out)
    for name in ("model", "engine", "parameters", "template", "cases"):
        if (was := getattr(there.info, name)) != (now := getattr(info, name)):
            raise UsageError(
                f"{out} is another run: its {name} is {_short(was)}, not {_short(now)}",
                hint="give each model, template and set of cases its own folder",
            )
    return there


def _hint(snapshots: Path | None, out: Path) -> str | None:
    """The way from the run's folder to the snapshots': no name of a home directory where they lie close."""
    if snapshots is None:
        return None
    return Path(os.path.relpath(os.path.realpath(snapshots), os.path.realpath(out))).as_posix()


def _short(value: object) -> str:
    text = value.model_dump_json() if isinstance(value, BaseModel) else repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _write_whole(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)


def open_run(path: Path) -> RunFolder:
    """The run in a folder. Raises BadInput when it holds none, or when its cases are not those it began with."""
    try:
        info = RunInfo.model_validate_json((path / "run.json").read_bytes())
        data = (path / "cases.jsonl").read_bytes()
    except OSError as exc:
        raise BadInput(f"{path} holds no run: {exc.strerror or exc}") from exc
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(p) for p in first["loc"]) or "the whole"
        raise BadInput(f"{path / 'run.json'} is no run: {place}: {first['msg']}") from exc
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


async def run_model(
    cases: CaseSet,
    complete: Complete,
    out: Path,
    *,
    use: ModelUse,
    created_at: datetime,
    template: str = "livemedbench-v1",
    concurrency: int = 16,
    progress: Progress | None = None,
) -> RunResult:
    """Ask the model about every case that has no answer yet or whose answer failed or was empty.

    Each answer is on disk before the next call of its worker. Raises Locked when another process asks for the same
    folder, UsageError when the folder is another run, EndpointUnavailable when the endpoint seems dead; what was
    answered by then is kept.
    """
    prompt = load_template(template)
    pinned = TemplateUse(name=prompt.name, digest=prompt.digest)
    run = create_run(out, cases, use, pinned, created_at)
    health = Health(concurrency)
    with open_log(out / RESPONSES) as log:
        answers, _ = run.answers()
        todo = [c for c in run.cases if c.case_id not in answers or _again(answers[c.case_id])]
        done = len(run.cases) - len(todo)
        if progress:
            progress(done, len(run.cases))

        async def ask(case: EvaluationCase) -> None:
            nonlocal done
            try:
                answer = _answer(case, await complete(prompt.messages(case)))
            except EndpointUnavailable as exc:
                failed = Answer(case.case_id, AnswerState.FAILED, "", "error", "", reason=exc.message[:2000])
                log.add(failed.row())
                health.bad(exc)
            else:
                health.good()
                log.add(answer.row())
            done += 1
            if progress:
                progress(done, len(run.cases))

        await for_each(todo, ask, concurrency)
    return summarise(run, asked=len(todo))


def _again(answer: Answer) -> bool:
    return answer.state in (AnswerState.FAILED, AnswerState.EMPTY)


def _answer(case: EvaluationCase, reply: Reply) -> Answer:
    finish = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.REFUSAL: "refusal"}[reply.finish]
    return Answer(
        case_id=case.case_id,
        state=state_of(reply.text, finish),
        response=reply.text,
        finish_reason=finish,
        model=reply.model,
        usage=asdict(reply.usage),
    )


def summarise(run: RunFolder, asked: int = 0) -> RunResult:
    """How the answers on record stand."""
    answers, notes = run.answers()
    states = {state: sum(1 for a in answers.values() if a.state is state) for state in AnswerState}
    return RunResult(run.path, len(run.cases), asked, states, tuple(notes))


def import_answers(
    out: Path, cases: CaseSet, answers: Iterable[Answer], model: str, created_at: datetime
) -> RunResult:
    """Make a run folder of answers that came from elsewhere; importing the same ones again adds nothing."""
    use = ModelUse(model=model, engine="import")
    run = create_run(out, cases, use, TemplateUse(name="unknown", digest=None), created_at)
    known = {case.case_id for case in run.cases}
    foreign: list[str] = []
    added = 0
    with open_log(out / RESPONSES) as log:
        there, _ = run.answers()
        for answer in answers:
            if answer.case_id not in known:
                foreign.append(f"case {answer.case_id!r} is not in the cases; left out")
            elif there.get(answer.case_id) != answer:
                log.add(answer.row())
                added += 1
    result = summarise(run, asked=added)
    return RunResult(result.path, result.cases, added, result.states, (*result.notes, *foreign))
