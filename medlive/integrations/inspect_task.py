"""medlive as an Inspect AI task: `inspect eval medlive/medlive -T snapshot=PATH`.

Asks what `medlive eval run` asks (the pinned prompt template, one user message) and grades as `medlive eval grade`
does, with the model of the role `grader`: the same prompt, the same reading of replies, the same judge by its digest
and so the same shared verdicts.
"""

from collections.abc import Mapping
from typing import Any, Final

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
    ResponseSchema,
    get_model,
)
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    mean,
    metric,
    scorer,
    stderr,
)
from inspect_ai.solver import TaskState, generate
from inspect_ai.util import JSONSchema, LimitExceededError

from medlive.errors import EndpointUnavailable
from medlive.evaluation.cases.livemedbench import state_of
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import grade_answer
from medlive.evaluation.model import Answer, EvaluationCase
from medlive.evaluation.runs.templates import CLINICAL, load_template
from medlive.evaluation.scoring.metrics import Metric as CaseMetric
from medlive.evaluation.scoring.metrics import case_score
from medlive.evaluation.scoring.refusals import check_harness
from medlive.grader.judge import Mode
from medlive.llm.engine import (
    EngineIdentity,
    Finish,
    Reply,
    Request,
    Usage,
    endpoint_engine,
)
from medlive.llm.prompts import render
from medlive.llm.wire import strict_schema
from medlive.snapshot.load import open_snapshot

_FINISH: Final = {
    "stop": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.REFUSAL,
}
"""Inspect's stop reasons as medlive's; any other (a tool call, unknown) leaves a reply without a certain end."""


@task
def medlive(
    snapshot: str = "latest",
    template: str = CLINICAL,
    language: str | None = None,
    source: str | None = None,
    posted_from: str | None = None,
    posted_before: str | None = None,
    first_release_after: str | None = None,
    structured: bool = True,
    allow_unpinned: bool = False,
    verify: bool = True,
    mode: str = Mode.RUBRIC.value,
    allow_not_publishable: bool = False,
) -> Task:
    """The cases of a verified snapshot with their rubrics.

    `snapshot` is a folder or a version; the filters are those of `Snapshot.filter`. `structured` asks the grader
    for JSON of its schema, False leaves that to the prompt. `allow_unpinned` accepts a grader that names itself
    otherwise than it was asked for (an alias). `mode` is "rubric", a call an answer, or "criterion", a call a
    criterion. A snapshot that must not be published is refused but with `allow_not_publishable`, which the log's
    metadata show.
    """
    chosen = open_snapshot(snapshot, verify=verify).filter(
        language=language,
        source=source,
        posted_from=posted_from,
        posted_before=posted_before,
        first_release_after=first_release_after,
    )
    prompt = load_template(template)
    cases = from_snapshot(chosen)
    check_harness(cases, allow_not_publishable, "-T allow_not_publishable=true")
    manifest = chosen.manifest
    samples = []
    for case in cases.cases:
        sample = Sample(
            id=case.case_id,
            input=list(map(_message, prompt.messages(case))),
            target=case.advice,
            metadata={"case_id": case.case_id, "case": case.row()},
        )
        samples.append(sample)
    about = {
        "snapshot": cases.name,
        "snapshot_digest": cases.digest,
        "publishable": manifest.publishable,
        "why_not": list(manifest.why_not),
        "allowed_not_publishable": allow_not_publishable,
        "template": prompt.name,
        "template_digest": prompt.digest,
        "canary": manifest.canary,
    }
    return Task(
        dataset=MemoryDataset(samples, name=f"medlive-{cases.name}"),
        solver=generate(),
        scorer=rubric(structured, allow_unpinned, mode),
        version=cases.name,
        metadata=about,
    )


@metric
def ungraded_rate() -> Metric:
    """Criteria without a verdict, as a share of the criteria of all answers that can be graded."""

    def share(scores: list[SampleScore]) -> float:
        ungraded, criteria = 0.0, 0
        for score in scores:
            ungraded += score.score.as_float()
            criteria += len((score.sample_metadata or {})["case"]["criteria"])
        return ungraded / criteria if criteria else 0.0

    return share


_METRICS: Final = {
    "score": [mean(), stderr(cluster="case_id")],
    "ungraded": [ungraded_rate()],
    "unanswered": [mean()],
}


@scorer(metrics=_METRICS)
def rubric(
    structured: bool = True,
    allow_unpinned: bool = False,
    mode: str = Mode.RUBRIC.value,
) -> Scorer:
    """The complete score of a case, in [0, 1]; NaN, and so in no mean, while a criterion is ungraded."""

    async def score(state: TaskState, target: Target) -> Score:
        case = EvaluationCase.from_row(state.metadata["case"])
        answer = answer_of(case, state.output)
        model = get_model(
            role="grader",
            required=True,
        )
        grader = _Grader(model, structured, pinned=not allow_unpinned)
        grades = await grade_answer(case, answer, grader, mode=Mode(mode))
        verdicts, lines = {}, []
        for grade in grades:
            verdicts[grade.criterion_id] = grade.met
            words = grade.quote or grade.reason
            lines.append(f"{grade.criterion_id}: {_VERDICT[grade.met]} {words}")
        result = case_score(case, answer, verdicts, CaseMetric.COMPLETE)
        unanswered = not answer.gradable
        reason = "no_response" if unanswered else None
        if result.ungraded:
            reason = "grader_failed"
        return Score(
            value={
                "score": float("nan") if result.score is None else result.score,
                "ungraded": float("nan") if unanswered else float(result.ungraded),
                "unanswered": float(unanswered),
            },
            answer=answer.response,
            explanation="\n".join(lines),
            reason=reason,
            metadata={
                "state": result.state.value,
                "low": result.low,
                "high": result.high,
                "grades": [grade.row() for grade in grades],
            },
        )

    return score


_VERDICT = {
    True: "met",
    False: "not met",
    None: "ungraded",
}


def answer_of(case: EvaluationCase, output: ModelOutput) -> Answer:
    finish = "error"
    if output.choices:
        finish = _FINISH.get(output.stop_reason, Finish.STOP).value
    text = output.completion
    return Answer(case.case_id, state_of(text, finish), text, finish, output.model)


class _Grader:
    """A model of Inspect as an engine of medlive."""

    def __init__(
        self,
        model: Model,
        structured: bool,
        pinned: bool,
    ) -> None:
        self._model, self._structured, self._pinned = model, structured, pinned

    @property
    def identity(self) -> EngineIdentity:
        name = self._model.api.service_model_name()
        return EngineIdentity(
            endpoint_engine(name), name, {"temperature": 0.0}, self._pinned
        )

    async def answer(self, request: Request) -> Reply:
        config = GenerateConfig(temperature=0.0)
        if self._structured:
            schema = JSONSchema.model_validate(strict_schema(request.schema))
            config.response_schema = ResponseSchema(
                name=request.task.replace(".", "_"),
                json_schema=schema,
                strict=True,
            )
        try:
            output = await self._model.generate(
                list(map(_message, render(request))), config=config
            )
        except LimitExceededError:  # the evaluation's own: Inspect ends the sample
            raise
        except Exception as exc:  # what a provider raises after Inspect's own retries is the provider's own
            raise EndpointUnavailable(
                f"{type(exc).__name__}: {str(exc)[:300]}"
            ) from exc
        finish = _FINISH.get(output.stop_reason)
        if not output.choices or finish is None:
            raise EndpointUnavailable(
                f"no certain end of the reply: {output.error or output.stop_reason}"
            )
        usage = Usage()
        if used := output.usage:
            cached = used.input_tokens_cache_read or 0
            usage = Usage(used.input_tokens, cached, used.output_tokens)
        return Reply(output.completion, finish, usage, output.model)

    async def aclose(self) -> None:
        """Inspect closes its models."""


_KINDS: Final[dict[str, Any]] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def _message(message: Mapping[str, str]) -> ChatMessage:
    kind: ChatMessage = _KINDS[message["role"]](content=message["content"])
    return kind
