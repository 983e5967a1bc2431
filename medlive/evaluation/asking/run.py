"""Asking a model about every case of a run: continued where it stopped, a failure asked for again."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from medlive.digest import digest_bytes
from medlive.errors import EndpointUnavailable, UsageError
from medlive.evaluation.asking.open_book import OpenBook
from medlive.evaluation.asking.thinking import told_of_thinking
from medlive.evaluation.cases.livemedbench import state_of
from medlive.evaluation.log import open_log
from medlive.evaluation.model import Answer, AnswerState, CaseSet, EvaluationCase
from medlive.evaluation.runs.evidence import EVIDENCE
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RESPONSES,
    CasesUse,
    EvidenceUse,
    ModelUse,
    RunFolder,
    RunInfo,
    TemplateUse,
    check_folder,
    create_run,
    name_endpoint,
    open_run,
    write_whole,
)
from medlive.evaluation.runs.templates import PromptTemplate, load_template
from medlive.llm.ask import Caller, Complete
from medlive.llm.budget import Budget
from medlive.llm.engine import UNNAMED, Finish, Reply, Usage
from medlive.llm.pool import Progress, work_through

__all__ = [
    "GRADES", "IMPORTED", "RESPONSES", "CasesUse", "Complete", "EvidenceUse", "ModelUse", "RunFolder", "RunInfo",
    "RunResult", "Spending", "TemplateUse", "answer_of", "begin_run", "create_run", "failed", "import_answers",
    "open_run", "run_model", "summarise", "unanswered", "write_whole",
]  # fmt: skip

_REASONS: Final = 3
"""How many reasons, or models, are named; the others are counted."""

_VERSION: Final = re.compile(r"([-@:_.](v?\d[\w.-]*|latest))?")
"""What an endpoint may append to the name that it was asked under: a date or a number, no word such as "mini"."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a run may spend, and how a call's cost is reserved before it is made."""

    budget: Budget
    estimate: Callable[[Sequence[Mapping[str, str]]], Usage]


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
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of this time was answered (`Health.silence`)."""

    @property
    def missing(self) -> int:
        """Cases without any answer on record."""
        return self.cases - sum(self.states.values())


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
    caller = Caller(concurrency, spending.budget if spending else None)
    with open_log(out / RESPONSES) as log:
        todo = unanswered(run)
        moved = name_endpoint(run, use.endpoint) if todo else []

        async def ask(case: EvaluationCase) -> int:
            messages = prompt.messages(case, snippets.get(case.case_id, ()))
            estimate = spending.estimate(messages) if spending else Usage()
            try:
                reply = await caller.call(estimate, lambda: complete(messages))
            except EndpointUnavailable as exc:
                log.add(failed(case, exc.message).row())
                raise
            answer = answer_of(case, reply) if isinstance(reply, Reply) else failed(case, reply.message)
            log.add(answer.row())
            return 1

        done = len(run.cases) - len(todo)
        stopped = await work_through(todo, ask, concurrency, done=done, total=len(run.cases), progress=progress)
    result = summarise(run, asked=caller.calls)
    notes = [*result.notes, *moved, *_closed(run)]
    return replace(result, notes=tuple(notes), stopped=stopped, silence=caller.silence)


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
    check_folder(out)
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


def failed(case: EvaluationCase, why: str) -> Answer:
    """What stands for the answer to a case where none came."""
    return Answer(case.case_id, AnswerState.FAILED, "", "error", "", reason=why[:2000])


def answer_of(case: EvaluationCase, reply: Reply) -> Answer:
    """A reply as the answer to a case."""
    finish = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.REFUSAL: "refusal"}[reply.finish]
    return Answer(
        case_id=case.case_id,
        state=state_of(reply.text, finish),
        response=reply.text,
        finish_reason=finish,
        model=reply.model,
        usage=reply.usage.as_json(),
        thinking=reply.thinking,
    )


def summarise(run: RunFolder, asked: int = 0) -> RunResult:
    """How the answers on record stand; in the notes why some failed, and which other model the endpoint named."""
    answers, notes = run.answers()
    states = {state: sum(1 for a in answers.values() if a.state is state) for state in AnswerState}
    reasons = Counter(_reason(a) for a in answers.values() if a.state is AnswerState.FAILED)
    notes += [f"{n} failed: {why}" for why, n in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        notes.append(f"and {len(reasons) - _REASONS} other reasons ({RESPONSES} has them all)")
    cut = sum(1 for a in answers.values() if a.state is AnswerState.EMPTY and a.finish_reason == "length")
    if cut:
        notes.append(
            f"{cut} answers are empty because the token limit was spent, as on reasoning; "
            "a run with a higher one is another run"
        )
    notes += [*told_of_thinking(answers.values()), *_named(run, answers.values())]
    return RunResult(run.path, len(run.cases), asked, states, tuple(notes))


def _reason(answer: Answer) -> str:
    return " ".join(answer.reason.split())[:200] or "nothing says why"


def _named(run: RunFolder, answers: Iterable[Answer]) -> list[str]:
    """Which models answered, where the endpoint names more than one or not the one that was asked."""
    pinned = run.info.asked_as or run.info.model
    # An answer that came from a file has no usage, and names whom the import was told.
    named = Counter(a.model for a in answers if a.usage and a.model)
    none = named.pop(UNNAMED, 0)
    said = [f"{none} replies name no model: nothing shows which one answered"] if none else []
    if len(named) < 2 and all(_is_same(name, pinned) for name in named):
        return said
    if len(named) == 1 and all(_is_of(name, pinned) for name in named):
        ((version, n),) = named.items()
        return [
            f"{pinned} was asked, and {version} answered ({n}): who asks under that id pins the version",
            *said,
        ]
    told = ", ".join(f"{name} ({n})" for name, n in sorted(named.most_common(_REASONS)))
    more = " and others" if len(named) > _REASONS else ""
    return [f"{pinned} was asked; the endpoint names {told}{more}", *said]


def _is_same(named: str, asked: str) -> bool:
    """Whether a reply names the very model that was asked: with or without its vendor."""
    return named.rsplit("/", 1)[-1].casefold() == asked.rsplit("/", 1)[-1].casefold()


def _is_of(named: str, asked: str) -> bool:
    """Whether a reply names the model that was asked, or a version of it: with or without its vendor."""
    short, whole = (name.rsplit("/", 1)[-1].casefold() for name in (asked, named))
    return whole.startswith(short) and _VERSION.fullmatch(whole, len(short)) is not None


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
