"""The baseline that a rubric is measured against: a model asked for one score of each answer as a whole.

`direct.jsonl` beside the grades is its log; scoring never reads it. The judge sees question and answer, no
rubric and no physician's advice (LiveMedBench §4.2; docs/method.md §3).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medlive.digest import digest_json, digest_text
from medlive.errors import BadInput, EndpointUnavailable, UsageError
from medlive.evaluation.asking.pinned import Pinned
from medlive.evaluation.asking.pool import Health, for_each
from medlive.evaluation.asking.run import Progress
from medlive.evaluation.grading.tasks import Reasoning
from medlive.evaluation.grading.verdict import planted_objects
from medlive.evaluation.grading.verdict_words import taken_back
from medlive.evaluation.log import open_log, read_log
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.scoring.graded import fullest
from medlive.llm.budget import Asked, Budget, BudgetSpent
from medlive.llm.engine import Engine, EngineIdentity, Finish, Reply, Request
from medlive.llm.prompts import load_prompt
from medlive.llm.reading import read_object, without_thinking
from medlive.text.normalise import fold

DIRECT: Final = "direct.jsonl"
TASK: Final = "grader.direct"
_MOST_RAW: Final = 4_000
_SCORED: Final = re.compile(r"\bscore\b[^\w:=]*+[:=]\W*+([01](?:\.\d+)?)", re.IGNORECASE)


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
    silence: EndpointUnavailable | None = None
    """Why the last call failed, where none of this time was answered (`Health.silence`)."""


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

    A reply that cannot be read is returned `max_retries` times; what stays unread has no score, nor has what
    another model than the pinned one says, unless `allow_unpinned`. When `budget` is spent, calls under way are
    finished and kept, and the result says `stopped`. Raises Locked when another process judges the same folder,
    UsageError for an engine that has no such task and when every reply comes from another model,
    EndpointUnavailable when the endpoint seems dead; what was scored by then is kept.
    """
    run = open_run(run_dir)
    if engine.identity.engine == "rules":
        raise UsageError(
            "the rules engine gives no score of a whole answer", hint="name a model: --grader and --base-url"
        )
    health = Health(concurrency)
    judge = _Judge(engine, max_retries, allow_unpinned, budget, health)
    answers, _ = run.answers()
    with open_log(run.path / DIRECT) as log:
        there, unusable = _on_record(run.path, judge.digest)
        keys = {c.case_id: score_key(c, answers[c.case_id], judge.digest) for c in _gradable(run.cases, answers)}
        todo = open_cases(run.cases, answers, there, engine.identity, allow_unpinned=allow_unpinned)
        done = len(keys) - len(todo)

        async def one(case: EvaluationCase) -> None:
            nonlocal done
            score = await judge.score(case, answers[case.case_id], unusable[keys[case.case_id]])
            if score is None:
                return
            log.add(asdict(score))
            there[score.key] = score
            done += 1
            if progress:
                progress(done, len(keys))

        await for_each(todo, one, concurrency)
    final = [there.get(key) for key in keys.values()]
    counts = [s is not None and settles(s, engine.identity, allow_unpinned) for s in final]
    reasons = Counter(
        "not asked yet" if s is None else s.reason.split(":")[0] or "another model answered"
        for s, scored in zip(final, counts, strict=True)
        if not scored
    )
    scored = sum(counts)
    why = dict(reasons.most_common())
    return DirectResult(run.path, len(keys), scored, judge.asked.calls, why, judge.stopped, health.silence)


def settles(score: DirectScore | None, identity: EngineIdentity, allow_unpinned: bool) -> bool:
    """Whether a row on record is a score, by a model that counts."""
    return score is not None and score.score is not None and (allow_unpinned or score.grader == identity.model)


def open_cases(
    cases: Sequence[EvaluationCase],
    answers: Mapping[str, Answer],
    there: Mapping[str, DirectScore],
    identity: EngineIdentity,
    *,
    allow_unpinned: bool = False,
) -> list[EvaluationCase]:
    """The cases whose answer can be judged and has no score on record that counts."""
    judge = judge_digest(identity)
    return [
        case
        for case in _gradable(cases, answers)
        if not settles(there.get(score_key(case, answers[case.case_id], judge)), identity, allow_unpinned)
    ]


def direct_request(case: EvaluationCase, answer: Answer) -> Request:
    """What is asked about an answer."""
    inputs = {"language": case.language, "question": case.question, "answer": answer.response}
    return Request(TASK, load_prompt("medlive.evaluation", TASK), inputs, _SCHEMA)


class _Judge:
    """Asks one engine for scores, again where a reply holds none."""

    def __init__(
        self, engine: Engine, max_retries: int, allow_unpinned: bool, budget: Budget | None, health: Health
    ) -> None:
        self.digest = judge_digest(engine.identity)
        self.asked = Asked(engine, budget)
        self.stopped: str | None = None
        self._engine, self._retries = engine, max_retries
        self._health = health
        self._pinned = Pinned("judge", engine.identity.model, allow_unpinned=allow_unpinned)

    async def score(self, case: EvaluationCase, answer: Answer, unusable: int) -> DirectScore | None:
        """The answer's score, or a row that says why there is none; None when the budget does not reach. A store
        of replies is asked past the `unusable` ones on record."""
        if self.stopped:
            return None
        first = replace(direct_request(case, answer), round=unusable)
        request, replies = first, list[Reply]()
        read: DirectReply | str = ""
        for attempt in range(1 + self._retries):
            try:
                reply = await self.asked.answer(request)
            except EndpointUnavailable as exc:
                read = f"endpoint: {exc.message[:300]}"
                self._health.bad(exc)
                break
            except BudgetSpent as exc:
                self.stopped = exc.message
                if not replies:
                    return None
                break
            self._health.good()
            replies.append(reply)
            if (fault := self._pinned.fault(reply)) is not None:
                read, request = fault, _later(first, attempt + 1)
                continue
            read = self._read(reply, first.inputs)
            if isinstance(read, DirectReply) or reply.finish is Finish.REFUSAL:
                break
            request = replace(first, repair=(reply.text[:_MOST_RAW], read))
        identity, last = self._engine.identity, replies[-1] if replies else None
        return DirectScore(
            case_id=case.case_id,
            key=score_key(case, answer, self.digest),
            score=read.score if isinstance(read, DirectReply) else None,
            reasoning=read.reasoning if isinstance(read, DirectReply) else "",
            reason=read if isinstance(read, str) else "",
            raw=last.text[:_MOST_RAW] if last else "",
            grader=last.model if last else "",
            engine=identity.engine,
            model=identity.model,
            prompt=first.prompt.digest,
            judge=self.digest,
            usage=_usage(replies),
        )

    def _read(self, reply: Reply, inputs: Mapping[str, Any]) -> DirectReply | str:
        """The reply's score, or why it holds none."""
        if reply.finish is Finish.REFUSAL:
            return "the judge refused"
        if reply.finish is Finish.LENGTH:
            return "the reply was cut at the token limit"
        try:
            read = DirectReply.model_validate(read_object(reply.text, inputs))
        except ValidationError as exc:
            error = exc.errors(include_url=False, include_input=False)[0]
            return f"{'.'.join(str(p) for p in error['loc']) or 'the reply'}: {error['msg']}"
        except ValueError as exc:
            return str(exc)[:300]
        before = without_thinking(reply.text).partition("{")[0].partition("```")[0]
        if taken_back(before):
            return "the words before the JSON object deny it"
        if (said := _SCORED.findall(before)) and float(said[-1]) != read.score:
            return "the words before the JSON object give another score"
        if any(
            one["score"] == read.score and fold(str(one.get("reasoning", ""))) == fold(read.reasoning)
            for one in planted_objects(str(inputs["answer"]), "score")
        ):
            return "the score is a piece of the answer that was to be judged"
        return read


def _later(request: Request, times: int) -> Request:
    """The same question, past what a store of replies holds of it."""
    return replace(request, round=request.round + times)


def _usage(replies: Sequence[Reply]) -> dict[str, Any]:
    """The sum over all attempts; a cost that one of them does not know is unknown."""
    if not replies:
        return {}
    rows = [reply.usage for reply in replies]
    costs = [one.cost_usd for one in rows if one.cost_usd is not None]
    return {
        "input_tokens": sum(one.input_tokens for one in rows),
        "cached_tokens": sum(one.cached_tokens for one in rows),
        "output_tokens": sum(one.output_tokens for one in rows),
        "latency_ms": sum(one.latency_ms for one in rows),
        "cost_usd": sum(costs) if len(costs) == len(rows) else None,
    }


def read_direct(run_dir: Path, *, judge: str | None = None) -> DirectScores | None:
    """The scores of the direct judge that has the most about the answers as they are now (of equals: the one that
    wrote last), or of the one whose digest is given; None where there are none.
    """
    run = open_run(run_dir)
    answers, _ = run.answers()
    cases = _gradable(run.cases, answers)
    found: dict[str, dict[str, DirectScore]] = {}
    for one in _judges(run_dir) if judge is None else [judge]:
        latest, _ = _on_record(run_dir, one)
        keys = ((case.case_id, score_key(case, answers[case.case_id], one)) for case in cases)
        if scores := {case_id: latest[key] for case_id, key in keys if key in latest}:
            found[one] = scores
    if not found:
        return None
    chosen = fullest({one: sum(s.score is not None for s in scores.values()) for one, scores in found.items()})
    model = next(iter(found[chosen].values())).model
    return DirectScores(chosen, model, {case_id: score.score for case_id, score in found[chosen].items()})


def _judges(run_dir: Path) -> list[str]:
    """Who judged a run directly, the one that wrote last at the end."""
    rows = reversed(read_log(run_dir / DIRECT).rows)
    last_first = dict.fromkeys(row["judge"] for row in rows if isinstance(row.get("judge"), str))
    return list(reversed(last_first))


def _gradable(cases: Iterable[EvaluationCase], answers: Mapping[str, Answer]) -> list[EvaluationCase]:
    return [case for case in cases if case.case_id in answers and answers[case.case_id].gradable]


def _on_record(run_dir: Path, judge: str) -> tuple[dict[str, DirectScore], Counter[str]]:
    """A judge's newest score of each key, and how many of its replies held none."""
    lines = read_log(run_dir / DIRECT)
    if lines.damaged:
        number, why = lines.damaged[0]
        raise BadInput(f"{run_dir / DIRECT}: line {number}: {why}", hint="take that line out; it is asked again")
    found: dict[str, DirectScore] = {}
    unusable: Counter[str] = Counter()
    for row in lines.rows:
        try:
            score = DirectScore.from_row(row)
        except (TypeError, KeyError, ValueError) as exc:
            raise BadInput(f"{run_dir / DIRECT}: a row is no score: {str(exc)[:120]}") from exc
        if score.judge == judge:
            found[score.key] = score
            unusable[score.key] += score.score is None and bool(score.grader)
    return found, unusable


def scores_on_record(run_dir: Path, identity: EngineIdentity) -> dict[str, DirectScore]:
    """The newest row of a judge about each key. Raises BadInput for a damaged log."""
    return _on_record(run_dir, judge_digest(identity))[0]


def judge_digest(identity: EngineIdentity) -> str:
    """What makes two direct judges one: engine, model, parameters and prompt."""
    prompt = load_prompt("medlive.evaluation", TASK)
    return digest_json([identity.engine, identity.model, dict(identity.parameters), "direct", prompt.digest])


def score_key(case: EvaluationCase, answer: Answer, judge: str) -> str:
    """What a score rests on: question, answer and judge."""
    return digest_json([case.language, digest_text(case.question), answer.digest, judge])


_SCHEMA: Final = DirectReply.model_json_schema()
