"""medlive as an Inspect AI task, `inspect eval medlive/medlive -T snapshot=PATH`, and Inspect's logs as run folders.

Asks what `medlive eval run` asks (the pinned prompt template, one user message) and grades as `medlive eval grade`
does, with the model of the role `grader`: the same prompt, the same reading of replies, the same judge by its digest
and so the same shared verdicts. A log of the task holds the answers and, in the metadata of each score, the verdicts
as lines of `grades.jsonl`; both are taken as they are, so that `medlive eval score` prints what Inspect printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    read_eval_log,
    write_eval_log,
)
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

from medlive.errors import BadInput, EndpointUnavailable
from medlive.evaluation.asking.run import RunResult, import_answers
from medlive.evaluation.cases.livemedbench import state_of
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import grade_answer
from medlive.evaluation.model import Answer, CaseSet, EvaluationCase, Grade
from medlive.evaluation.runs.folder import GRADES, TemplateUse, grades_of, open_run
from medlive.evaluation.runs.templates import CLINICAL, load_template
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric as CaseMetric
from medlive.evaluation.scoring.metrics import case_score
from medlive.evaluation.scoring.refusals import check_harness
from medlive.integrity.log import open_log
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

_FINISH = {
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
    first_release_after: str | None = None,
    structured: bool = True,
    allow_unpinned: bool = False,
    verify: bool = True,
    allow_not_publishable: bool = False,
) -> Task:
    """The cases of a verified snapshot with their rubrics.

    `snapshot` is a folder or a version; the filters are those of `Snapshot.filter`. `structured` asks the grader
    for JSON of its schema, False leaves that to the prompt. `allow_unpinned` accepts a grader that names itself
    otherwise than it was asked for (an alias). A snapshot that must not be published is refused without
    `allow_not_publishable`, which the log's metadata show.
    """
    chosen = open_snapshot(snapshot, verify=verify).filter(
        language=language, first_release_after=first_release_after
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
        scorer=rubric(structured, allow_unpinned),
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


_METRICS = {
    "score": [mean(), stderr(cluster="case_id")],
    "ungraded": [ungraded_rate()],
    "unanswered": [mean()],
}


@scorer(metrics=_METRICS)
def rubric(
    structured: bool = True,
    allow_unpinned: bool = False,
) -> Scorer:
    """The complete score of a case, in [0, 1]; NaN, and so in no mean, while a criterion is ungraded."""

    async def score(state: TaskState, target: Target) -> Score:
        case = EvaluationCase.from_row(state.metadata["case"])
        answer = answer_of(case, state.output)
        model = get_model(role="grader", required=True)
        grader = _Grader(model, structured, not allow_unpinned)
        grades = await grade_answer(case, answer, grader)
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


_VERDICT = {True: "met", False: "not met", None: "ungraded"}


def answer_of(case: EvaluationCase, output: ModelOutput) -> Answer:
    """Inspect's output for a case as medlive's answer."""
    finish = "error"
    if output.choices:
        finish = _FINISH.get(output.stop_reason, Finish.STOP).value
    text = output.completion
    return Answer(case.case_id, state_of(text, finish), text, finish, output.model)


@dataclass(frozen=True)
class _Grader:
    """A model of Inspect as an engine of medlive."""

    model: Model
    structured: bool
    pinned: bool

    @property
    def identity(self) -> EngineIdentity:
        name = self.model.api.service_model_name()
        return EngineIdentity(
            endpoint_engine(name), name, {"temperature": 0.0}, self.pinned
        )

    async def answer(self, request: Request) -> Reply:
        config = GenerateConfig(temperature=0.0)
        if self.structured:
            schema = JSONSchema.model_validate(strict_schema(request.schema))
            config.response_schema = ResponseSchema(
                name=request.task.replace(".", "_"),
                json_schema=schema,
                strict=True,
            )
        try:
            output = await self.model.generate(
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


_KINDS: dict[str, Any] = {
    "system": ChatMessageSystem,
    "user": ChatMessageUser,
    "assistant": ChatMessageAssistant,
}


def _message(message: Mapping[str, str]) -> ChatMessage:
    """A chat message (role, content) as Inspect's class for its role."""
    kind: ChatMessage = _KINDS[message["role"]](content=message["content"])
    return kind


SCORER = "rubric"
# medlive's finish reasons as Inspect's stop reasons
STOP_REASONS = {
    "stop": "stop",
    "length": "max_tokens",
    "refusal": "content_filter",
}


def import_log(
    log: Path,
    cases: CaseSet,
    out: Path,
) -> RunResult:
    """Import answers and verdicts of a log into a run folder; importing it again adds nothing.

    Args:
        log: An `.eval` or `.json` file of Inspect's.
        cases: The snapshot's cases that it was run on.
        out: The run folder.

    Raises:
        BadInput: If the log cannot be read, has no samples, or was run on another snapshot.
    """
    eval_log = _read(log)
    about = eval_log.eval.metadata or {}
    if about.get("snapshot_digest") not in (None, cases.digest):
        raise BadInput(
            f"{log} was run on the snapshot {about.get('snapshot')}, not on {cases.name}"
        )
    by_id = {case.case_id: case for case in cases.cases}
    answers: list[Answer] = []
    grades: list[Grade] = []
    for sample in eval_log.samples or ():
        case = by_id.get(str(sample.id))
        if case is None:
            continue
        answers.append(answer_of(case, sample.output))
        score = (sample.scores or {}).get(SCORER, Score(value=0))
        for row in (score.metadata or {}).get("grades", ()):
            grades.append(Grade.from_row(row))
    if not answers:
        raise BadInput(f"{log} answers no case of {cases.name}")
    template = None
    if isinstance(named := about.get("template"), str):
        template = TemplateUse(name=named, digest=about.get("template_digest"))
    result = import_answers(
        out, cases, answers, eval_log.eval.model, datetime.now(UTC), template=template
    )
    known = {(grade.key, grade.judge) for grade in grades_of(out / GRADES, [])}
    with open_log(open_run(out).path / GRADES) as written:
        for grade in grades:
            if (grade.key, grade.judge) not in known:
                written.add(grade.row())
    return result


def export_run(
    run: Path,
    out: Path,
    *,
    judge: str | None = None,
) -> EvalLog:
    """Write a run folder as a log that `inspect view` shows.

    Args:
        run: The run folder.
        out: The log, ending in `.eval` or `.json`.
        judge: Whose verdicts, where several graded the run.
    """
    graded = load_graded(run, judge=judge)
    samples = []
    for case in graded.run.cases:
        answer = graded.answers.get(case.case_id)
        if answer is None:
            continue
        verdicts = graded.verdicts(case.case_id)
        grades = graded.grades.get(case.case_id, {})
        result = case_score(case, answer, verdicts, CaseMetric.COMPLETE)
        score = Score(
            value=float("nan") if result.score is None else result.score,
            answer=answer.response,
            metadata={
                "state": result.state.value,
                "grades": [grade.row() for grade in grades.values()],
            },
        )
        samples.append(
            EvalSample(
                id=case.case_id,
                epoch=1,
                input=[ChatMessageUser(content=case.question)],
                target=case.advice,
                output=ModelOutput.from_content(
                    answer.model or "unknown",
                    answer.response,
                    stop_reason=STOP_REASONS.get(answer.finish_reason, "unknown"),
                ),
                scores={SCORER: score},
                metadata={"case_id": case.case_id},
            )
        )
    info = graded.run.info
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=info.created_at.isoformat(),
            task="medlive",
            dataset=EvalDataset(
                name=info.cases.name,
                samples=len(samples),
            ),
            model=info.model,
            config=EvalConfig(),
            metadata={
                "snapshot": info.cases.name,
                "snapshot_digest": info.cases.digest,
                "publishable": info.cases.publishable,
                "template": info.template.name,
                "template_digest": info.template.digest,
            },
        ),
        samples=samples,
    )
    write_eval_log(log, str(out))
    return log


def _read(path: Path) -> EvalLog:
    try:
        return read_eval_log(str(path))
    except Exception as exc:  # Inspect raises what its parsers raise
        raise BadInput(f"{path} is not a log of Inspect: {str(exc)[:200]}") from exc
