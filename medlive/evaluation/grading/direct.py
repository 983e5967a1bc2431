"""The baseline that a rubric is measured against: a model asked for one score of each answer as a whole.

`direct.jsonl` beside the grades is its log; scoring never reads it. The judge sees question and answer, no
rubric and no physician's advice (LiveMedBench §4.2; docs/method.md §3).
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from medlive.digest import digest_json, digest_text
from medlive.errors import UsageError
from medlive.evaluation.asking.plan import Call, Plan, Sample, plan_calls, sent_text
from medlive.evaluation.grading.statements import words_before
from medlive.evaluation.grading.verdict import Reasoning, doubt
from medlive.evaluation.log import open_log, values_of
from medlive.evaluation.model import Answer, CallsMade, EvaluationCase, LogRow, gradable
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.scoring.graded import fullest
from medlive.llm.ask import MOST_RAW, Asker, Unusable, read_as
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, EngineIdentity, Reply, Request
from medlive.llm.pool import Progress, work_through
from medlive.llm.prompts import load_prompt
from medlive.llm.wire import Price

DIRECT: Final = "direct.jsonl"
TASK: Final = "grader.direct"
OUTPUT_A_SCORE: Final = 90
"""Tokens of a score with its reasoning, where none is on record."""
_SCORED: Final = re.compile(r"\bscore\b[^\w:=]*+[:=]\W*+([01](?:\.\d+)?)", re.IGNORECASE)


class DirectReply(BaseModel):
    """`grader.direct`: one score of an answer. Inputs: language, question (narrative, blank line, query), answer.
    `score` is a JSON number from 0 to 1."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reasoning: Reasoning
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class DirectScore(LogRow):
    """The score of one answer, as a line of `direct.jsonl`."""

    case_id: str
    key: str
    """The digest of all that the score rests on: question, answer and judge."""
    score: float | None
    """None is no score, with its reason."""
    reasoning: str
    reason: str
    raw: str
    """The judge's reply, cut at 20,000 characters."""
    grader: str
    """The model as the reply names it; "" where no reply came."""
    engine: str
    model: str
    """The pinned model that was asked."""
    prompt: str
    judge: str
    """The digest of engine, model, parameters and prompt."""
    usage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """The score from its JSON. Raises TypeError, KeyError or ValueError if it is not one."""
        found = super(DirectScore, cls).from_row(row)
        if found.score is not None and (isinstance(found.score, bool) or not 0 <= found.score <= 1):
            raise ValueError("score is neither a number from 0 to 1 nor null")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectResult(CallsMade):
    """What judging came to."""

    path: Path
    answers: int
    """That can be judged."""
    scored: int
    reasons: Mapping[str, int]
    """Why answers have no score."""
    notes: tuple[str, ...]
    """Lines of the log that could not be parsed; what they held is asked for again."""


@dataclass(frozen=True, slots=True)
class DirectScores:
    """The scores of one direct judge about the answers as they are now."""

    judge: str
    model: str
    scores: Mapping[str, float | None]
    """By case; None: asked without a score."""
    notes: tuple[str, ...]
    """Lines of the log that could not be parsed."""


async def judge_direct(
    run_dir: Path,
    engine: Engine,
    *,
    concurrency: int = 16,
    max_retries: int = 1,
    allow_unpinned: bool = False,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> DirectResult:
    """Ask for a score of every answer that can be judged and has none by this engine and prompt.

    Arguments and errors are those of `grade_run`; UsageError also for an engine that has no such task.
    """
    who, judge = engine.identity, judge_digest(engine.identity)
    asker = Asker(
        engine, "judge", repairs=max_retries, concurrency=concurrency, allow_unpinned=allow_unpinned, budget=budget
    )
    with open_log(open_run(run_dir).path / DIRECT) as log:
        items, notes = _items(run_dir, who)
        todo = [item for item in items if not item.settled(who, allow_unpinned)]

        async def ask(item: _Item) -> int:
            request = direct_request(item.case, item.answer, item.unusable)
            asked = await asker.ask(request, lambda reply: _read(reply, request))
            read, last = asked.value, asked.last
            item.score = DirectScore(
                case_id=item.case.case_id, key=item.key, score=read.score if read else None,
                reasoning=read.reasoning if read else "", reason=asked.reason,
                raw=last.text[:MOST_RAW] if last else "", grader=last.model if last else "", engine=who.engine,
                model=who.model, prompt=request.prompt.digest, judge=judge, usage=asked.usage,
            )  # fmt: skip
            log.add(item.score.row())
            return 1

        done = len(items) - len(todo)
        stopped = await work_through(todo, ask, concurrency, done=done, total=len(items), progress=progress)
    left = [item.score for item in items if not item.settled(who, allow_unpinned)]
    reasons = Counter(
        "not asked yet" if score is None else score.reason.split(":")[0] or "another model answered"
        for score in left
    )
    return DirectResult(
        path=run_dir, answers=len(items), scored=len(items) - len(left), calls=asker.calls,
        reasons=dict(reasons.most_common()), notes=tuple(notes), stopped=stopped, silence=asker.silence,
    )  # fmt: skip


def plan_direct(
    run_dir: Path,
    identity: EngineIdentity,
    *,
    concurrency: int = 16,
    allow_unpinned: bool = False,
    price: Price | None = None,
) -> Plan:
    """What `judge_direct` would ask, if no reply had to be asked for twice. Raises UsageError for an engine that
    has no such task."""
    items, _ = _items(run_dir, identity)
    calls = [(item, Call(item.case.language, sent_text(direct_request(item.case, item.answer)))) for item in items]
    todo = [call for item, call in calls if not item.settled(identity, allow_unpinned)]
    return plan_calls(
        todo, [Sample(call, item.score.usage) for item, call in calls if item.score],
        about={"answers": len(items), "scored": len(items) - len(todo)}, price=price, concurrency=concurrency,
        output_tokens=OUTPUT_A_SCORE,
    )  # fmt: skip


@dataclass(slots=True)
class _Item:
    """An answer that can be judged, and what is on record about it."""

    case: EvaluationCase
    answer: Answer
    key: str
    score: DirectScore | None
    """The newest row."""
    unusable: int
    """Replies that held no score."""

    def settled(self, identity: EngineIdentity, allow_unpinned: bool) -> bool:
        """Whether there is a score, by a model that counts."""
        one = self.score
        return one is not None and one.score is not None and identity.accepts(one.grader, allow_unpinned)


def _items(run_dir: Path, identity: EngineIdentity) -> tuple[list[_Item], list[str]]:
    """A run's answers that can be judged, and the lines of the log that could not be parsed."""
    if identity.engine == "rules":
        raise UsageError(
            "the rules engine gives no score of a whole answer", hint="name a model: --grader and --base-url"
        )
    run, judge, notes = open_run(run_dir), judge_digest(identity), list[str]()
    mine = [score for score in _scores(run_dir, notes) if score.judge == judge]
    latest = {score.key: score for score in mine}
    unusable = Counter(score.key for score in mine if score.score is None and score.grader)
    found = []
    for case, answer in gradable(run.cases, run.answers()[0]):
        key = score_key(case, answer, judge)
        found.append(_Item(case, answer, key, latest.get(key), unusable[key]))
    return found, notes


def direct_request(case: EvaluationCase, answer: Answer, round_: int = 0) -> Request:
    """What is asked about an answer."""
    inputs = {"language": case.language, "question": case.question, "answer": answer.response}
    return Request(TASK, load_prompt("medlive.evaluation", TASK), inputs, _SCHEMA, round=round_)


def _read(reply: Reply, request: Request) -> DirectReply:
    """The reply's score. Raises Unusable."""
    read = read_as(DirectReply, request)(reply)
    if fault := doubt(reply.text, "score", read.score, read.reasoning, str(request.inputs["answer"])):
        raise Unusable(fault)
    if (stated := _SCORED.findall(words_before(reply.text))) and float(stated[-1]) != read.score:
        raise Unusable("the words before the JSON object give another score")
    return read


def read_direct(run_dir: Path, *, judge: str | None = None) -> DirectScores | None:
    """The scores of the direct judge that has the most about the answers as they are now (of equals: the one that
    wrote last), or of the one whose digest is given; None where there are none.
    """
    run, notes = open_run(run_dir), list[str]()
    answered = list(gradable(run.cases, run.answers()[0]))
    scores = list(_scores(run_dir, notes))
    latest = {(score.judge, score.key): score for score in scores}
    found: dict[str, dict[str, DirectScore]] = {}
    # The one that wrote last at the end.
    for one in reversed(dict.fromkeys(score.judge for score in reversed(scores))) if judge is None else [judge]:
        keys = {case.case_id: (one, score_key(case, answer, one)) for case, answer in answered}
        if of_judge := {case_id: latest[key] for case_id, key in keys.items() if key in latest}:
            found[one] = of_judge
    if not found:
        return None
    chosen = fullest({one: sum(s.score is not None for s in rows.values()) for one, rows in found.items()})
    model = next(iter(found[chosen].values())).model
    values = {case_id: score.score for case_id, score in found[chosen].items()}
    return DirectScores(chosen, model, values, tuple(notes))


def _scores(run_dir: Path, notes: list[str]) -> Iterator[DirectScore]:
    return values_of(run_dir / DIRECT, DirectScore.from_row, notes)


def judge_digest(identity: EngineIdentity) -> str:
    """What makes two direct judges one: engine, model, parameters and prompt."""
    prompt = load_prompt("medlive.evaluation", TASK)
    return digest_json([identity.engine, identity.model, dict(identity.parameters), "direct", prompt.digest])


def score_key(case: EvaluationCase, answer: Answer, judge: str) -> str:
    """What a score rests on: question, answer and judge."""
    return digest_json([case.language, digest_text(case.question), answer.digest, judge])


_SCHEMA: Final = DirectReply.model_json_schema()
