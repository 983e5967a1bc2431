"""The baseline that a rubric is measured against: a model asked for one score of each answer as a whole.

`direct.jsonl` beside the grades is its log; scoring never reads it. The judge sees question and answer, no
rubric and no physician's advice (LiveMedBench §4.2; docs/method.md §3).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medlive.digest import digest_json, digest_text
from medlive.errors import BadInput, EndpointUnavailable, UsageError
from medlive.evaluation.log import open_log, read_log
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.pool import Health, for_each
from medlive.evaluation.run import Progress, open_run
from medlive.evaluation.tasks import Reasoning
from medlive.llm.budget import Budget, BudgetSpent
from medlive.llm.engine import Engine, EngineIdentity, Finish, Prompt, Reply, Request
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import read_object

DIRECT: Final = "direct.jsonl"
TASK: Final = "grader.direct"
_MOST_RAW: Final = 4_000


class DirectReply(BaseModel):
    """`grader.direct`: one score of an answer. Inputs: language, question (narrative, blank line, query), answer.
    `score` is a JSON number from 0 to 1."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    reasoning: Reasoning
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class DirectScore:
    """The score of one answer, as a line of `direct.jsonl`."""

    case_id: str
    key: str
    """The digest of all that the score rests on: question, answer and judge."""
    score: float | None
    """None is no score, with its reason."""
    reasoning: str
    reason: str
    raw: str
    """What the judge said, cut at 4,000 characters."""
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
        """The score from its JSON. Raises TypeError, KeyError or ValueError for what is none."""
        found = cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})
        score = found.score
        if score is not None and (isinstance(score, bool) or not 0 <= score <= 1):
            raise ValueError("score is neither a number from 0 to 1 nor null")
        return found


@dataclass(frozen=True, slots=True)
class DirectResult:
    """What judging came to."""

    path: Path
    answers: int
    """That can be judged."""
    scored: int
    calls: int
    reasons: Mapping[str, int]
    """Why answers have no score."""
    stopped: str | None = None
    """Which budget ended it; None: none did."""


@dataclass(frozen=True, slots=True)
class DirectScores:
    """The scores of one direct judge about the answers as they are now."""

    judge: str
    model: str
    scores: Mapping[str, float | None]
    """By case; None: asked without a score."""


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

    A reply that cannot be read is returned `max_retries` times; what stays unread has no score. Raises Locked when
    another process judges the same folder, UsageError for an engine that has no such task, EndpointUnavailable
    when the endpoint seems dead; what was scored by then is kept.
    """
    run = open_run(run_dir)
    identity, prompt = engine.identity, load_prompt("medlive.evaluation", TASK)
    if identity.engine == "rules":
        raise UsageError(
            "the rules engine gives no score of a whole answer", hint="name a model: --grader and --base-url"
        )
    judge = _judge(identity, prompt)
    answers, _ = run.answers()
    health = Health(concurrency)
    schema = DirectReply.model_json_schema()
    calls, stopped = 0, None
    with open_log(run.path / DIRECT) as log:
        there = _latest(run.path, judge)
        cases = [c for c in run.cases if c.case_id in answers and answers[c.case_id].gradable]
        keys = {c.case_id: _key(c, answers[c.case_id], judge) for c in cases}
        todo = [c for c in cases if (old := there.get(keys[c.case_id])) is None or old.score is None]
        done = len(cases) - len(todo)

        async def ask(request: Request) -> Reply:
            nonlocal calls

            async def call() -> Reply:
                nonlocal calls
                calls += 1
                return await engine.answer(request)

            if budget is None:
                return await call()
            return await budget.pay(budget.estimate(engine, request), call)

        async def one(case: EvaluationCase) -> None:
            nonlocal done, stopped
            if stopped:
                return
            inputs = {
                "language": case.language,
                "question": case.question,
                "answer": answers[case.case_id].response,
            }
            old = there.get(keys[case.case_id])
            # A store of replies is asked past one that was no score.
            request = Request(TASK, prompt, inputs, schema, round=1 if old is not None and old.grader else 0)
            reply: Reply | None = None
            found: DirectReply | None = None
            fault = ""
            for _ in range(1 + max_retries):
                try:
                    reply = await ask(request)
                except EndpointUnavailable as exc:
                    fault = f"endpoint: {exc.message[:300]}"
                    health.bad(exc)
                    break
                except BudgetSpent as exc:
                    stopped = exc.message
                    if reply is None:
                        return
                    break
                health.good()
                pinned = allow_unpinned or reply.model == identity.model
                read = _read(reply, inputs) if pinned else f"another model answered: {reply.model[:100]!r}"
                if isinstance(read, DirectReply):
                    found = read
                    break
                fault = read
                if reply.finish is Finish.REFUSAL:
                    break
                request = Request(TASK, prompt, inputs, schema, (reply.text[:_MOST_RAW], fault), request.round)
            score = DirectScore(
                case.case_id, keys[case.case_id], found.score if found else None, found.reasoning if found else "",
                "" if found else fault, reply.text[:_MOST_RAW] if reply else "", reply.model if reply else "",
                identity.engine, identity.model, prompt.digest, judge, asdict(reply.usage) if reply else {},
            )  # fmt: skip
            log.add(asdict(score))
            there[score.key] = score
            done += 1
            if progress:
                progress(done, len(cases))

        await for_each(todo, one, concurrency)
    final = [there.get(key) for key in keys.values()]
    reasons = Counter(
        "not asked yet" if s is None else s.reason.split(":")[0] for s in final if s is None or s.score is None
    )
    scored = sum(s is not None and s.score is not None for s in final)
    return DirectResult(run.path, len(cases), scored, calls, dict(reasons.most_common()), stopped)


def read_direct(run_dir: Path, *, judge: str | None = None) -> DirectScores | None:
    """The scores of the direct judge used last, or of the one whose digest is given; None where there are none.

    Only those about answers as they are now.
    """
    run = open_run(run_dir)
    if judge is None:
        rows = read_log(run_dir / DIRECT).rows
        judge = next((row["judge"] for row in reversed(rows) if isinstance(row.get("judge"), str)), None)
    if judge is None:
        return None
    latest = _latest(run_dir, judge)
    answers, _ = run.answers()
    found: dict[str, DirectScore] = {}
    for case in run.cases:
        answer = answers.get(case.case_id)
        if answer is not None and answer.gradable and (score := latest.get(_key(case, answer, judge))) is not None:
            found[case.case_id] = score
    if not found:
        return None
    model = next(iter(found.values())).model
    return DirectScores(judge, model, {case_id: score.score for case_id, score in found.items()})


def _latest(run_dir: Path, judge: str) -> dict[str, DirectScore]:
    lines = read_log(run_dir / DIRECT)
    if lines.damaged:
        number, why = lines.damaged[0]
        raise BadInput(f"{run_dir / DIRECT}: line {number}: {why}", hint="take that line out; it is asked again")
    found: dict[str, DirectScore] = {}
    for row in lines.rows:
        try:
            score = DirectScore.from_row(row)
        except (TypeError, KeyError, ValueError) as exc:
            raise BadInput(f"{run_dir / DIRECT}: a row is no score: {str(exc)[:120]}") from exc
        if score.judge == judge:
            found[score.key] = score
    return found


def _read(reply: Reply, inputs: Mapping[str, Any]) -> DirectReply | str:
    """The reply's score, or why it holds none."""
    if reply.finish is Finish.REFUSAL:
        return "the judge refused"
    if reply.finish is Finish.LENGTH:
        return "the reply was cut at the token limit"
    try:
        return DirectReply.model_validate(read_object(reply.text, inputs))
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(p) for p in error['loc']) or 'the reply'}: {error['msg']}"
    except ValueError as exc:
        return str(exc)[:300]


def _judge(identity: EngineIdentity, prompt: Prompt) -> str:
    return digest_json([identity.engine, identity.model, dict(identity.parameters), "direct", prompt.digest])


def _key(case: EvaluationCase, answer: Answer, judge: str) -> str:
    return digest_json([case.language, digest_text(case.question), answer.digest, judge])
