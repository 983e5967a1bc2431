"""Ask a model about every case of a run (`run_model`), say what that takes (`plan_run`), or import its answers.

A run continues where it stopped, and asks again where an answer failed or was empty.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from medlive.errors import EndpointUnavailable, UsageError
from medlive.evaluation.cases.livemedbench import state_of
from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CallsMade,
    CaseSet,
    EvaluationCase,
    Turn,
    in_context,
)
from medlive.evaluation.runs.folder import (
    IMPORTED,
    RESPONSES,
    ModelUse,
    RunFolder,
    TemplateUse,
    check_folder,
    create_run,
    name_endpoint,
)
from medlive.evaluation.runs.templates import (
    CLINICAL,
    EVIDENCE,
    PromptTemplate,
    Snippet,
    load_template,
)
from medlive.integrity.log import open_log, some
from medlive.llm.ask import Caller, Complete
from medlive.llm.budget import Budget
from medlive.llm.engine import Reply, Usage
from medlive.llm.pool import Progress, work_through
from medlive.llm.registry import Price

from .open_book import OpenBook
from .plan import Plan, plan_calls

_ASKED_AGAIN = (AnswerState.FAILED, AnswerState.EMPTY)
_REASONS = 3
"""How many reasons for failed answers are named; the others are counted."""
_TAG = "(?:think|thinking|thought|reasoning)>"
_THINKING = re.compile(
    rf"[\ufeff\s]*<{_TAG}|(?:(?!<{_TAG}).)*</{_TAG}", re.IGNORECASE | re.DOTALL
)
"""An answer that begins with a thinking block, or holds only the block's end tag."""
AN_ANSWER = 800
"""Tokens that a plan assumes of an answer."""


@dataclass(frozen=True, kw_only=True)
class RunResult(CallsMade):
    """The state of a run: each case with an answer on record counts under one state, the others are `missing`."""

    path: Path
    cases: int
    states: dict[AnswerState, int]

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
    template: str = CLINICAL,
    concurrency: int = 16,
    progress: Progress | None = None,
    open_book: OpenBook | None = None,
    budget: Budget | None = None,
    estimate: Callable[[Sequence[Mapping[str, str]]], Usage] = lambda _: Usage(),
) -> RunResult:
    """Ask the model about every case that has no answer yet or whose answer failed or was empty.

    Each answer is on disk before the next call of its worker. A template that takes evidence needs `open_book`;
    its snippets are looked up once, before the folder is made. `estimate` says what a call is reserved in the
    budget; when that is spent, calls under way end and no other is made. Raises Locked when another process asks
    for the same folder, UsageError when the folder is another run, EndpointUnavailable when the endpoint seems
    dead, ConfigError when the model does not take a parameter, DiskFull; what was answered by then is kept.
    """
    prompt = load_template(template)
    run = await begin_run(
        cases,
        out,
        use=use,
        created_at=created_at,
        prompt=prompt,
        open_book=open_book,
    )
    snippets = run.snippets()
    caller = Caller(concurrency, budget)
    with open_log(out / RESPONSES) as log:
        todo = unanswered(run)
        remarks = name_endpoint(run, use.endpoint) if todo else []
        answers, _ = run.answers()
        cases_by_id = {case.case_id: case for case in run.cases}

        async def ask(case: EvaluationCase) -> int:
            if (asked := in_context(case, cases_by_id, answers)) is None:
                return 0
            messages = prompt.messages(asked, snippets.get(case.case_id, ()))
            try:
                reserved = estimate(messages)
                reply = await caller.call(reserved, lambda: complete(messages))
            except EndpointUnavailable as exc:
                log.add(failed(case, exc.message).row())
                raise
            if isinstance(reply, Reply):
                answer = answer_of(case, reply)
            else:
                answer = failed(case, reply.message)
            log.add(answer.row())
            answers[case.case_id] = answer
            return 1

        stopped, total, left = None, len(run.cases), todo
        while left and stopped is None:
            # A case that continues another is asked after it.
            waiting = {case.case_id for case in left}
            ready = [case for case in left if case.after not in waiting]
            if not ready:  # Cases that continue each other
                break
            stopped = await work_through(
                ready,
                ask,
                concurrency,
                done=total - len(left),
                total=total,
                progress=progress,
            )
            left = [case for case in left if case.after in waiting]
    if (book := run.info.evidence) and book.closed:
        remarks.append(
            f"{book.closed} of {len(run.cases)} cases have no snippet and are asked as a closed book ({EVIDENCE})"
        )
    result = summarise(run, caller.calls, remarks)
    return replace(result, stopped=stopped, silence=caller.silence)


async def plan_run(
    cases: CaseSet,
    out: Path,
    *,
    use: ModelUse,
    created_at: datetime,
    template: str = CLINICAL,
    open_book: OpenBook | None = None,
    price: Price | None = None,
) -> Plan:
    """What `run_model` would ask, if no call had to be made twice; no folder is made.

    An open book's snippets are looked up where the folder does not hold them. An answer is taken to have AN_ANSWER
    tokens. Raises what run_model raises before it asks, but for parameters that look like secrets.
    """
    prompt = load_template(template)
    snippets: Mapping[str, Sequence[Snippet]] = {}
    todo: Sequence[EvaluationCase] = cases.cases
    if (out / "run.json").exists():
        run = await begin_run(
            cases,
            out,
            use=use,
            created_at=created_at,
            prompt=prompt,
            open_book=open_book,
        )
        snippets, todo = run.snippets(), unanswered(run)
    else:
        check_folder(out)
        if open_book is not None:
            snippets = (await open_book.look_up(cases.cases))[0].by_case

    calls = []
    for case in todo:
        messages = prompt.messages(case, snippets.get(case.case_id, ()))
        calls.append(("\n".join(message["content"] for message in messages), 1))
    return plan_calls(
        calls,
        price=price,
        output_tokens=AN_ANSWER,
    )


async def begin_run(
    cases: CaseSet,
    out: Path,
    *,
    use: ModelUse,
    created_at: datetime,
    prompt: PromptTemplate,
    open_book: OpenBook | None = None,
) -> RunFolder:
    """Create or open the run's folder, with the snippets of an open book.

    Raises UsageError where the template takes evidence and none is given, or the other way round, where it cannot
    ask a conversation, or where the folder's snippets were looked up in another way; what create_run and the index
    raise.
    """
    for case in cases.cases:
        if case.turns or case.after:
            prompt.messages(
                replace(case, turns=case.turns or (Turn("user", case.question),))
            )
    if (prompt.without is not None) is not (open_book is not None):
        evidence_is = "takes no" if open_book else "needs an index of"
        raise UsageError(f"the template {prompt.name} {evidence_is} evidence")
    pinned = TemplateUse.model_validate(prompt)
    evidence = None
    if open_book is not None and not (out / "run.json").exists():
        check_folder(out)
        evidence = await open_book.look_up(cases.cases)
    run = create_run(
        out,
        cases,
        use,
        pinned,
        created_at,
        evidence,
    )
    if open_book is not None:
        was = run.info.evidence
        wanted = (open_book.index, open_book.top_k, open_book.undated)
        if was is None or (was.index, was.top_k, was.undated) != wanted:
            raise UsageError(
                f"{run.path} is another run: its evidence was looked up in another way",
                hint="give each index, --top-k and --undated its own folder",
            )
    return run


def unanswered(run: RunFolder) -> list[EvaluationCase]:
    """The cases that a run asks about when it is started again: no answer yet, or a failed or an empty one."""
    answers, _ = run.answers()
    left = []
    for case in run.cases:
        answer = answers.get(case.case_id)
        if answer is None or answer.state in _ASKED_AGAIN:
            left.append(case)
    return left


def failed(case: EvaluationCase, why: str) -> Answer:
    """The row of a case for which no answer came."""
    return Answer(
        case.case_id,
        AnswerState.FAILED,
        "",
        "error",
        "",
        reason=why[:2000],
    )


def answer_of(case: EvaluationCase, reply: Reply) -> Answer:
    """A reply as the answer to a case."""
    finish = reply.finish.value
    return Answer(
        case_id=case.case_id,
        state=state_of(reply.text, finish),
        response=reply.text,
        finish_reason=finish,
        model=reply.model,
        usage=reply.usage.as_json(),
        thinking=reply.thinking,
    )


def summarise(run: RunFolder, asked: int, more: Iterable[str]) -> RunResult:
    """Count the answers on record by state, after `asked` calls.

    Notes say why answers failed and which other model the endpoint named, then `more`.
    """
    by_case, notes = run.answers()
    states = dict.fromkeys(AnswerState, 0)
    reasons: Counter[str] = Counter()
    cut = 0
    for answer in by_case.values():
        states[answer.state] += 1
        if answer.state is AnswerState.FAILED:
            reason = " ".join(answer.reason.split())[:200]
            reasons[reason or "no reason given"] += 1
        cut += answer.state is AnswerState.EMPTY and answer.finish_reason == "length"
    notes += [f"{n} failed: {why}" for why, n in reasons.most_common(_REASONS)]
    if (others := len(reasons) - _REASONS) > 0:
        notes.append(f"and {others} other reasons ({RESPONSES} has them all)")
    if cut:
        notes.append(
            f"{cut} answers are empty because the token limit was spent, as on reasoning; "
            "a run with a higher one is another run"
        )
    answers = list(by_case.values())
    notes += [*note_thinking(answers), *_note_models(run, answers), *more]
    answered = states[AnswerState.OK] + states[AnswerState.TRUNCATED]
    return RunResult(
        path=run.path,
        cases=len(run.cases),
        calls=asked,
        left=len(run.cases) - answered - states[AnswerState.REFUSED],
        states=states,
        notes=tuple(notes),
    )


def note_thinking(answers: Iterable[Answer]) -> list[str]:
    """A note on answers that begin with a thinking block, which is graded with them, if there are any."""
    n = 0
    for answer in answers:
        n += answer.gradable and _THINKING.match(answer.response) is not None
    note = f"{n} answers begin with a thinking block, which is graded with them: let the endpoint separate it"
    return [note] if n else []


def _note_models(run: RunFolder, answers: Iterable[Answer]) -> list[str]:
    """Which models answered, where the endpoint names another than the one that was asked, or none."""
    pinned = run.info.asked_as or run.info.model
    # An answer that came from a file has no usage, and names whom the import was told.
    named = {a.model for a in answers if a.usage and a.model}
    # A vendor before the name makes no other model.
    short = {name.rpartition("/")[2].casefold() for name in named}
    if short <= {pinned.rpartition("/")[2].casefold()}:
        return []
    return [f"{pinned} was asked; the endpoint names {some(sorted(named))}"]


def import_answers(
    out: Path,
    cases: CaseSet,
    answers: Iterable[Answer],
    model: str,
    created_at: datetime,
    *,
    template: TemplateUse | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> RunResult:
    """Make a run folder of answers that came from elsewhere; importing the same ones again adds nothing.

    `template` and `parameters` are what they were asked with, where that is known. A gradable answer on record is
    never replaced by a failed or an empty one.
    """
    use = ModelUse(
        model,
        IMPORTED,
        parameters=parameters or {},
    )
    template = template or TemplateUse(
        name="unknown",
        digest=None,
    )
    run = create_run(out, cases, use, template, created_at)
    case_ids = {case.case_id for case in run.cases}
    unknown: list[str] = []
    added = 0
    with open_log(out / RESPONSES) as log:
        known, _ = run.answers()
        for answer in answers:
            if answer.case_id not in case_ids:
                unknown.append(f"case {answer.case_id!r} is not in the cases; left out")
                continue
            was = known.get(answer.case_id)
            worse = was and was.gradable and answer.state in _ASKED_AGAIN
            if was != answer and not worse:
                log.add(answer.row())
                known[answer.case_id] = answer
                added += 1
    return summarise(run, added, unknown)
