"""What a run's open calls would take, before any is made. Nothing is sent, and no folder is made."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from medlive.evaluation.asking.open_book import OpenBook
from medlive.evaluation.asking.plan import Call, Plan, Sample, plan_calls
from medlive.evaluation.asking.run import begin_run, unanswered
from medlive.evaluation.model import Answer, CaseSet, EvaluationCase
from medlive.evaluation.runs.evidence import Snippet
from medlive.evaluation.runs.folder import ModelUse, check_folder
from medlive.evaluation.runs.secrets import check_parameters
from medlive.evaluation.runs.templates import PromptTemplate, load_template
from medlive.llm.wire import Price

AN_ANSWER: Final = 800
"""Tokens of an answer where none is on record."""


async def plan_run(
    cases: CaseSet,
    out: Path,
    *,
    use: ModelUse,
    created_at: datetime,
    template: str = "livemedbench-v1",
    open_book: OpenBook | None = None,
    price: Price | None = None,
    concurrency: int = 16,
) -> Plan:
    """What `run_model` would ask, if no call had to be made twice.

    An open book's snippets are looked up where the folder does not hold them. An answer is taken to be as long as
    those on record, and no longer than the model's token limit. Raises what run_model raises before it asks.
    """
    prompt = load_template(template)
    answers: dict[str, Answer] = {}
    snippets: Mapping[str, Sequence[Snippet]] = {}
    todo: Sequence[EvaluationCase] = cases.cases
    if (out / "run.json").exists():
        run = await begin_run(
            cases, out, use=use, created_at=created_at, prompt=prompt, open_book=open_book
        )  # fmt: skip
        answers, _ = run.answers()
        evidence = run.evidence()
        snippets = evidence.by_case if evidence else {}
        todo = unanswered(run)
    else:
        check_folder(out)
        check_parameters(use.parameters)
        if open_book is not None:
            snippets = (await open_book.look_up(cases.cases))[0].by_case
    calls = [Call(case.language, _text(prompt, case, snippets)) for case in todo]
    limits = [use.parameters.get(name) for name in ("max_tokens", "max_completion_tokens")]
    limit = min((n for n in limits if isinstance(n, int) and n > 0), default=AN_ANSWER)
    record = [
        Sample(Call(case.language, _text(prompt, case, snippets)), answers[case.case_id].usage)
        for case in cases.cases
        if case.case_id in answers
    ]
    characters = sum(len(call.text) for call in calls)
    return plan_calls(
        calls,
        record,
        about={"cases": len(cases), "answered": len(cases) - len(calls), "characters": characters},
        price=price,
        concurrency=concurrency,
        output_tokens=min(AN_ANSWER, limit),
    )


def _text(prompt: PromptTemplate, case: EvaluationCase, snippets: Mapping[str, Sequence[Snippet]]) -> str:
    return "\n".join(m["content"] for m in prompt.messages(case, snippets.get(case.case_id, ())))
