"""Puts a protocol's questions to a judge: resumed where it stopped, within a budget, one log for all runs.

`NAME.jsonl` holds a finding a line. A question is found again by what its reply rests on, so a repeated run asks
for what is new and for what stayed ungraded.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from medlive.evaluation.asking.plan import Call, Plan, Sample, plan_calls, sent_text
from medlive.evaluation.log import open_log, values_of
from medlive.evaluation.model import CallsMade, kind_of
from medlive.evaluation.protocols.model import Finding, Findings, Material, Protocol, Question
from medlive.llm.ask import MOST_RAW, Asker, read_as
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity
from medlive.llm.pool import Progress, work_through
from medlive.llm.wire import Price

OUTPUT_A_QUESTION: Final = 120
"""Tokens of a reply, where none is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRun(CallsMade):
    """What asking came to."""

    path: Path
    """The log."""
    questions: int
    """That could be asked, those that build on earlier replies included."""
    settled: int
    reasons: Mapping[str, int]
    """Why questions are ungraded."""
    notes: tuple[str, ...]
    """Lines of the log that could not be parsed; what they held is asked for again."""


async def run_protocol(
    protocol: Protocol,
    material: Material,
    out: Path,
    engine: Engine,
    *,
    concurrency: int = 16,
    max_retries: int = 1,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> ProtocolRun:
    """Ask every question that has no reply yet by this engine, stage after stage.

    `out` is the folder of the log, made if missing. Arguments and errors are those of `grade_run`.
    """
    path = log_path(protocol, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    asker = Asker(
        engine, "judge", repairs=max_retries, concurrency=concurrency, allow_unpinned=allow_unpinned, budget=budget
    )
    asked: set[str] = set()
    stopped: str | None = None
    with open_log(path) as log:
        found, notes = read_findings(protocol, out, engine.identity, allow_unpinned=allow_unpinned)

        async def ask(question: Question) -> int:
            request = replace(question.request, round=question.request.round + found.unusable(question))
            asked.add(found.key(question))
            answer = await asker.ask(request, read_as(question.reply, request, question.check))
            last = answer.last
            finding = Finding(
                case_id=question.case_id, part=question.part, task=question.task, key=found.key(question),
                value=answer.value.model_dump(mode="json") if answer.value else None, reason=answer.reason,
                raw=last.text[:MOST_RAW] if last else "", grader=last.model if last else "",
                engine=engine.identity.engine, model=engine.identity.model, usage=answer.usage,
            )  # fmt: skip
            log.add(finding.row())
            found.put(finding)
            return 1

        while stopped is None:
            questions = _unique(protocol, material, found)
            todo = [q for key, q in questions.items() if key not in asked and not found.settled(q)]
            if not todo:
                break
            stopped = await work_through(
                todo, ask, concurrency, done=len(questions) - len(todo), total=len(questions), progress=progress
            )
    questions = _unique(protocol, material, found)
    left = [question for question in questions.values() if not found.settled(question)]
    reasons = Counter(_why(found.find(question)) for question in left)
    return ProtocolRun(
        path=path, questions=len(questions), settled=len(questions) - len(left), calls=asker.calls,
        reasons=dict(reasons.most_common()), notes=tuple(notes), stopped=stopped, silence=asker.silence,
    )  # fmt: skip


def plan_protocol(
    protocol: Protocol,
    material: Material,
    out: Path,
    identity: EngineIdentity,
    *,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> Plan:
    """What `run_protocol` would ask now, if no reply had to be asked for twice. Questions that build on replies
    which are not there yet are not counted."""
    found, _ = read_findings(protocol, out, identity, allow_unpinned=allow_unpinned)
    questions = _unique(protocol, material, found).values()
    calls = [(q, Call(str(q.inputs["language"]), sent_text(q.request))) for q in questions]
    todo = [call for question, call in calls if not found.settled(question)]
    record = [Sample(call, finding.usage) for question, call in calls if (finding := found.find(question))]
    return plan_calls(
        todo, record, about={"questions": len(calls), "answered": len(calls) - len(todo)}, price=price,
        concurrency=concurrency, output_tokens=OUTPUT_A_QUESTION,
    )  # fmt: skip


def log_path(protocol: Protocol, out: Path) -> Path:
    """Where a protocol's findings lie in a folder."""
    return out / f"{protocol.name}.jsonl"


def read_findings(
    protocol: Protocol, out: Path, identity: EngineIdentity, *, allow_unpinned: bool = False
) -> tuple[Findings, list[str]]:
    """What a log holds, and its lines that could not be parsed; a missing log holds nothing."""
    found, notes = Findings(identity, allow_unpinned=allow_unpinned), list[str]()
    for finding in values_of(log_path(protocol, out), Finding.from_row, notes):
        found.put(finding)
    return found, notes


def _unique(protocol: Protocol, material: Material, found: Findings) -> dict[str, Question]:
    """The protocol's questions by key: what two runs have in common is asked once."""
    return {found.key(question): question for question in protocol.questions(material, found)}


def _why(finding: Finding | None) -> str:
    if finding is None:
        return "not asked yet"
    return kind_of(finding.reason) if finding.value is None else "another model answered"
