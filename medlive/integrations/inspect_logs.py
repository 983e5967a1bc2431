"""Inspect's logs as run folders, and run folders as Inspect's logs.

A log of the task `medlive/medlive` holds the answers and, in the metadata of each score, the verdicts as lines of
`grades.jsonl`; both are taken as they are, so that `medlive eval score` prints what Inspect printed.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    read_eval_log,
    write_eval_log,
)
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

from medlive.errors import BadInput
from medlive.evaluation.asking.run import RunResult, import_answers
from medlive.evaluation.model import Answer, CaseSet, Grade
from medlive.evaluation.runs.folder import GRADES, TemplateUse, open_run, read_grades
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import Metric, case_score
from medlive.integrations.inspect_task import answer_of
from medlive.integrity.log import open_log

SCORER: Final = "rubric"
STOP_REASONS: Final = {
    "stop": "stop",
    "length": "max_tokens",
    "refusal": "content_filter",
}


def import_log(
    log: Path,
    cases: CaseSet,
    out: Path,
) -> RunResult:
    """Make a run folder of a log; importing it again adds nothing.

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
    named = about.get("template")
    template = None
    if isinstance(named, str):
        template = TemplateUse(
            name=named,
            digest=about.get("template_digest"),
        )
    result = import_answers(
        out, cases, answers, eval_log.eval.model, datetime.now(UTC), template=template
    )
    known = {(grade.key, grade.judge) for grade in read_grades(out / GRADES)[0]}
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
        result = case_score(case, answer, verdicts, Metric.COMPLETE)
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
    if not path.is_file():
        raise BadInput(f"{path} is not there")
    try:
        log = read_eval_log(str(path))
    except Exception as exc:  # Inspect raises what its parsers raise
        raise BadInput(f"{path} is not a log of Inspect: {str(exc)[:200]}") from exc
    if not log.samples:
        raise BadInput(f"{path} has no samples: nothing was answered")
    return log
