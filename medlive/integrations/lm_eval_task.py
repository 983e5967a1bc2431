"""medlive as a task of lm-evaluation-harness: documents from a verified snapshot, grades from an endpoint.

Asks what `medlive eval run` asks and grades as `medlive eval grade` does, at the OpenAI-compatible endpoint that the
settings name for the role `grader`. `lm_eval.yaml` beside it names these functions.
"""

import asyncio
import json
import math
from collections.abc import Sequence
from contextlib import aclosing
from functools import cache
from statistics import fmean, stdev
from typing import Any

from datasets import Dataset

from medlive.config import RoleSettings
from medlive.errors import ConfigError
from medlive.evaluation.cases.livemedbench import state_of
from medlive.evaluation.cases.load import from_snapshot
from medlive.evaluation.grading.grade import grade_answer
from medlive.evaluation.model import Answer, EvaluationCase, Grade
from medlive.evaluation.runs.templates import CLINICAL, load_template
from medlive.evaluation.scoring.metrics import Metric, case_score
from medlive.evaluation.scoring.refusals import check_harness
from medlive.instance.loading import read_settings
from medlive.instance.opening import open_endpoint
from medlive.integrity.digest import canonical_json
from medlive.snapshot.load import open_snapshot


def load(
    snapshot: str = "latest",
    template: str = CLINICAL,
    language: str | None = None,
    first_release_after: str | None = None,
    verify: bool = True,
    allow_not_publishable: bool = False,
    **_metadata: Any,
) -> dict[str, Dataset]:
    """The cases of a verified snapshot, one document each.

    The arguments are the harness's metadata, as `{"snapshot": "PATH or version", …}`. What else the harness puts into
    its metadata (`version`, the model's arguments) is left alone.
    """
    _grader()  # Raises before any case is asked
    chosen = open_snapshot(snapshot, verify=verify).filter(
        language=language, first_release_after=first_release_after
    )
    asked = load_template(template)
    cases = from_snapshot(chosen)
    option = "allow_not_publishable: true in --metadata"
    check_harness(cases, allow_not_publishable, option)
    rows = []
    for case in cases.cases:
        row = {
            "case_id": case.case_id,
            "language": case.language,
            "prompt": asked.messages(case)[0]["content"],
            "advice": case.advice,
            "case": canonical_json(case.row()),
            "snapshot": cases.name,
            "snapshot_digest": cases.digest,
            "publishable": bool(cases.publishable),
            "template_digest": asked.digest,
            "canary": chosen.manifest.canary,
        }
        rows.append(row)
    return {"test": Dataset.from_list(rows)}


def process_results(
    doc: dict[str, Any],
    results: Sequence[str | None],
) -> dict[str, Any]:
    """Grade one answer; metric → value. `score` holds all grades, so that the harness's log of samples has them."""
    case = EvaluationCase.from_row(json.loads(doc["case"]))
    text = results[0] or ""
    answer = Answer(case.case_id, state_of(text, "stop"), text, "stop", "")
    grades = asyncio.run(_grades(case, answer))
    verdicts = {grade.criterion_id: grade.met for grade in grades}
    result = case_score(case, answer, verdicts, Metric.COMPLETE)
    return {
        "score": {
            "score": result.score,
            "low": result.low,
            "high": result.high,
            "state": result.state.value,
            "grades": [grade.row() for grade in grades],
        },
        "score_error": result.score,
        "ungraded_rate": [result.ungraded, len(result.met)],
        "unanswered_rate": [int(not answer.gradable), 1],
    }


async def _grades(case: EvaluationCase, answer: Answer) -> tuple[Grade, ...]:
    async with aclosing(open_endpoint(_grader())) as engine:
        return await grade_answer(case, answer, engine)


@cache
def _grader() -> RoleSettings:
    """The grader's settings, at temperature 0 unless they say otherwise. Raises ConfigError if it is not named."""
    grader = read_settings().roles.grader
    if not grader.model or not grader.base_url:
        hint = "set MEDLIVE_ROLES__GRADER__MODEL and MEDLIVE_ROLES__GRADER__BASE_URL"
        raise ConfigError("the grader is not named", hint=hint)
    parameters = {"temperature": 0.0, **grader.parameters}
    return grader.model_copy(update={"parameters": parameters})


def mean_of_scored(items: Sequence[dict[str, Any]]) -> float:
    """The paper's score: the mean over the cases that are wholly graded; NaN where none is."""
    scores = [item["score"] for item in items if item["score"] is not None]
    return fmean(scores) if scores else math.nan


def standard_error(items: Sequence[float | None]) -> float:
    """The standard error of `mean_of_scored`; each case is a cluster, a thread of its own. NaN for fewer than two."""
    scores = [score for score in items if score is not None]
    return stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else math.nan


def share(items: Sequence[Sequence[int]]) -> float:
    """The share over all cases of (part, whole) of each; 0 where there is nothing to count."""
    part = whole = 0
    for n, size in items:
        part, whole = part + n, whole + size
    return part / whole if whole else 0.0
