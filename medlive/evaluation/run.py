"""The run folder, and asking a model about every case: append-only, continued where it stopped."""

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from medlive import __version__
from medlive.digest import canonical_json, digest_bytes
from medlive.errors import BadInput, DiskFull, EndpointUnavailable, UsageError
from medlive.evaluation.livemedbench import state_of
from medlive.evaluation.log import is_full, open_log, read_log
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.open_book import EVIDENCE, Evidence, OpenBook
from medlive.evaluation.pool import Health, for_each
from medlive.evaluation.templates import PromptTemplate, load_template
from medlive.llm.budget import Budget, BudgetSpent
from medlive.llm.engine import Finish, Reply, Usage
from medlive.snapshot.lock import exclusive

RESPONSES: Final = "responses.jsonl"
GRADES: Final = "grades.jsonl"
IMPORTED: Final = "import"
"""The engine of a run whose answers came from a file."""

_SAME_CASES: Final = ("origin", "name", "digest", "selection", "rows", "count")

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
    asked_as: str | None = None
    """The model's id at the endpoint, where that is not `model`."""
    arm: str | None = None
    """What sets this run apart from others of its model: "closed", "open-book", "raw", or any other word."""
    evidence: EvidenceUse | None = None


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
class Spending:
    """What a run may spend, and how a call's cost is reserved before it is made."""

    budget: Budget
    estimate: Callable[[Sequence[Mapping[str, str]]], Usage]


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


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to: every case counts under one state, `missing` ones were not asked."""

    path: Path
    cases: int
    asked: int
    """Calls made this time."""
    states: dict[AnswerState, int]
    notes: tuple[str, ...] = ()
    stopped: str | None = None
    """Which budget ended it; None: none did."""

    @property
    def missing(self) -> int:
        """Cases without any answer on record."""
        return self.cases - sum(self.states.values())


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
    parameters, arm or cases, DiskFull when there is no room for it.
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
        with exclusive(out / ".run.lock"):
            if not (out / "run.json").exists():
                write_whole(out / "cases.jsonl", rows)
                if evidence:
                    write_whole(out / EVIDENCE, evidence[1])
                text = json.dumps(info.model_dump(mode="json"), ensure_ascii=False, indent=2, sort_keys=True)
                write_whole(out / "run.json", text.encode("utf-8", "backslashreplace") + b"\n")
    except OSError as exc:
        if is_full(exc):
            raise DiskFull(f"no space is left for {out}", hint="make room and run this again") from exc
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    there = open_run(out)
    _same(there, info, arm=use.arm)
    return there


def _arm(use: ModelUse, open_book: bool) -> str | None:
    if use.engine == IMPORTED:
        return None
    return "open-book" if open_book else "closed"


def _same(there: RunFolder, info: RunInfo, *, arm: str | None) -> None:
    """Raises UsageError when the folder's run is not the one that is asked for."""
    was = there.info
    # The endpoint may move; what was odd in a file of cases, or was not verified, makes them no other cases.
    parts: list[tuple[str, object, object]] = [
        ("model", was.model, info.model),
        ("parameters", was.parameters, info.parameters),
    ]
    parts += [("template", was.template, info.template)]
    parts += [(f"cases' {n}", getattr(was.cases, n), getattr(info.cases, n)) for n in _SAME_CASES]
    if was.engine != IMPORTED:
        # What was imported with its template named may be gone on with by asking the model.
        parts.insert(1, ("engine", was.engine, info.engine))
    if arm is not None:
        parts.append(("arm", was.arm, arm))
    for name, then, now in parts:
        if then != now:
            hint = "give each model, template and set of cases its own folder"
            if was.engine == IMPORTED and info.engine != IMPORTED and name in ("template", "parameters"):
                hint = "import the answers with --template and --parameters as they were asked, to go on with them"
            raise UsageError(
                f"{there.path} is another run: its {name} is {_short(then)}, not {_short(now)}", hint=hint
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
    open_book: OpenBook | None = None,
    spending: Spending | None = None,
) -> RunResult:
    """Ask the model about every case that has no answer yet or whose answer failed or was empty.

    Each answer is on disk before the next call of its worker. A template that takes evidence needs `open_book`;
    its snippets are looked up once, before the folder is made. When a budget is spent, calls under way end and no
    other is made. Raises Locked when another process asks for the same folder, UsageError when the folder is
    another run, EndpointUnavailable when the endpoint seems dead, ConfigError when the model does not take a
    parameter, DiskFull; what was answered by then is kept.
    """
    prompt = load_template(template)
    run = await begin_run(cases, out, use=use, created_at=created_at, prompt=prompt, open_book=open_book)
    evidence = run.evidence()
    snippets = evidence.by_case if evidence else {}
    health = Health(concurrency)
    asked = 0
    stopped: list[str] = []

    async def said(messages: Sequence[Mapping[str, str]]) -> Reply:
        if spending is None:
            return await complete(messages)
        return await spending.budget.pay(spending.estimate(messages), lambda: complete(messages))

    with open_log(out / RESPONSES) as log:
        todo = unanswered(run)
        done = len(run.cases) - len(todo)
        if progress:
            progress(done, len(run.cases))

        async def ask(case: EvaluationCase) -> None:
            nonlocal done, asked
            if stopped:
                return
            try:
                answer = answer_of(case, await said(prompt.messages(case, snippets.get(case.case_id, ()))))
            except BudgetSpent as exc:
                stopped.append(exc.message)
                return
            except EndpointUnavailable as exc:
                asked += 1
                failed = Answer(case.case_id, AnswerState.FAILED, "", "error", "", reason=exc.message[:2000])
                log.add(failed.row())
                health.bad(exc)
            else:
                asked += 1
                health.good()
                log.add(answer.row())
            done += 1
            if progress:
                progress(done, len(run.cases))

        await for_each(todo, ask, concurrency)
    result = summarise(run, asked=asked)
    notes = [*result.notes, *_closed(run)]
    return replace(result, notes=tuple(notes), stopped=next(iter(stopped), None))


async def begin_run(
    cases: CaseSet,
    out: Path,
    *,
    use: ModelUse,
    created_at: datetime,
    prompt: PromptTemplate,
    open_book: OpenBook | None = None,
) -> RunFolder:
    """The run's folder, made where it is not there yet, with the snippets of an open book.

    Raises UsageError where the template takes evidence and none is given, or the other way round, or where the
    folder's snippets were looked up in another way; what create_run and the index raise.
    """
    if (prompt.without is not None) is not (open_book is not None):
        named = f"the template {prompt.name}"
        raise UsageError(f"{named} takes no evidence" if open_book else f"{named} needs an index of evidence")
    pinned = TemplateUse(name=prompt.name, digest=prompt.digest)
    if open_book is None or (out / "run.json").exists():
        run = create_run(out, cases, use, pinned, created_at)
        if open_book is not None:
            _same_book(run, open_book)
        return run
    evidence, identity = await open_book.look_up(cases.cases)
    data = evidence.data()
    book = EvidenceUse(
        index=open_book.index,
        retriever=identity.retriever,
        index_digest=identity.index_digest,
        corpora=dict(identity.corpora),
        top_k=open_book.top_k,
        undated=open_book.undated,
        rows=digest_bytes(data),
        snippets=sum(len(found) for found in evidence.by_case.values()),
        closed=len(evidence.why),
    )
    return create_run(out, cases, use, pinned, created_at, (book, data))


def _same_book(run: RunFolder, open_book: OpenBook) -> None:
    there = run.info.evidence
    for name in ("index", "top_k", "undated"):
        was, now = getattr(there, name, None), getattr(open_book, name)
        if was != now:
            raise UsageError(
                f"{run.path} is another run: the {name} of its evidence is {was!r}, not {now!r}",
                hint="give each way of looking up its own folder",
            )


def _closed(run: RunFolder) -> list[str]:
    there = run.info.evidence
    if there is None or not there.closed:
        return []
    return [
        f"{there.closed} of {len(run.cases)} cases have no snippet and are asked as a closed book ({EVIDENCE})"
    ]


def unanswered(run: RunFolder) -> list[EvaluationCase]:
    """The cases that a run asks about when it is started again: no answer yet, or a failed or an empty one."""
    answers, _ = run.answers()
    return [c for c in run.cases if c.case_id not in answers or _again(answers[c.case_id])]


def _again(answer: Answer) -> bool:
    return answer.state in (AnswerState.FAILED, AnswerState.EMPTY)


def answer_of(case: EvaluationCase, reply: Reply) -> Answer:
    """A reply as the answer to a case."""
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
    out: Path,
    cases: CaseSet,
    answers: Iterable[Answer],
    model: str,
    created_at: datetime,
    *,
    template: TemplateUse | None = None,
    parameters: Mapping[str, Any] | None = None,
    arm: str | None = None,
) -> RunResult:
    """Make a run folder of answers that came from elsewhere; importing the same ones again adds nothing.

    `template` and `parameters` are what they were asked with, where that is known. An answer on
    record is never put aside for a failed or an empty one.
    """
    use = ModelUse(model, IMPORTED, parameters=parameters or {}, arm=arm)
    run = create_run(out, cases, use, template or TemplateUse(name="unknown", digest=None), created_at)
    known = {case.case_id for case in run.cases}
    foreign: list[str] = []
    added = 0
    with open_log(out / RESPONSES) as log:
        there, _ = run.answers()
        for answer in answers:
            if answer.case_id not in known:
                foreign.append(f"case {answer.case_id!r} is not in the cases; left out")
                continue
            was = there.get(answer.case_id)
            if was != answer and not (was is not None and was.gradable and _again(answer)):
                log.add(answer.row())
                there[answer.case_id] = answer
                added += 1
    result = summarise(run, asked=added)
    return replace(result, notes=(*result.notes, *foreign))
