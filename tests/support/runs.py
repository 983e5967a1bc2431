"""Graded runs made up by chance: many models over many cases and months, as the run folders of real ones."""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from medlive.evaluation.model import (
    Answer,
    AnswerState,
    CaseSet,
    EvaluationCase,
    EvaluationCriterion,
    Grade,
    gradable,
    grade_keys,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    RESPONSES,
    ModelUse,
    RunFolder,
    RunInfo,
    TemplateUse,
    create_run,
    open_run,
)
from medlive.evaluation.scoring.graded import GradedRun
from medlive.grader.judge import Mode
from medlive.integrity.digest import digest_json
from medlive.integrity.log import open_log
from medlive.llm.engine import Usage
from medlive.rubric.model import SPECIALTIES, Axis, Theme

MADE_AT = datetime(2026, 11, 21, tzinfo=UTC)
JUDGE = digest_json(["made up"])


def made_cases(
    n: int,
    *,
    months: int = 24,
    seed: int = 1,
    criteria: int = 5,
    change: Callable[[int, EvaluationCase], EvaluationCase] | None = None,
) -> CaseSet:
    """`n` cases in two languages over `months` months from 2024-12, of every theme and twelve specialties."""
    rng = random.Random(seed)
    themes, specialties, axes = list(Theme), SPECIALTIES[:12], list(Axis)
    cases = []
    for place in range(n):
        month = 11 + place % months
        zh = place % 3 == 0
        points = [rng.choice([2.0, 3.0, 5.0, 8.0]) for _ in range(criteria - 1)] + [
            -rng.choice([3.0, 5.0])
        ]
        made = EvaluationCase(
            case_id=f"case-{place:04d}",
            language="zh" if zh else "en",
            narrative=(
                f"第{place}例：患者膝关节疼痛三周，上下楼加重，无发热。"
                if zh
                else f"Patient {place}: knee pain for three weeks, worse on stairs, no fever."
            ),
            query="需要做磁共振吗？" if zh else "Do I need an MRI scan?",
            advice="先休息，两周后复查。"
            if zh
            else "Rest first; come back in two weeks.",
            criteria=tuple(
                EvaluationCriterion(
                    f"k{number}",
                    (
                        f"第{number}条：建议先休息"
                        if zh
                        else f"Criterion {number}: advises rest before imaging"
                    ),
                    point,
                    axes[(place + number) % len(axes)],
                )
                for number, point in enumerate(points)
            ),
            post_time=f"{2024 + month // 12}-{month % 12 + 1:02d}-{1 + place % 28:02d}T00:00:00",
            month=f"{2024 + month // 12}-{month % 12 + 1:02d}",
            source="dxy" if zh else rng.choice(["icliniq", "sdn"]),
            theme=themes[place % len(themes)],
            specialty=specialties[place % len(specialties)],
            first_release=f"2026.W{40 + place % 8}",
        )
        cases.append(change(place, made) if change else made)
    return CaseSet(tuple(cases), "snapshot", "2026.W47", "sha256:" + "0" * 64, True)


def made_run(
    cases: CaseSet,
    out: Path,
    model: str,
    skill: float,
    *,
    seed: int = 1,
    drop: float = 0.0,
    cutoff: str = "9999",
    template: str = "livemedbench-v1",
    missing: bool = True,
    words: int = 30,
    usage: Usage | None = None,
) -> Path:
    """A run of a model that meets a positive criterion with probability `skill`, less `drop` for cases from the
    month `cutoff` on, each answer of which took `usage`. With `missing`, a few answers are refused, cut or empty
    and a few verdicts ungraded."""
    rng = random.Random(f"{model}{seed}")
    run = create_run(
        out,
        cases,
        ModelUse(model),
        TemplateUse(name=template, digest="sha256:" + "1" * 64),
        MADE_AT,
    )
    answers = []
    for case in cases.cases:
        state = AnswerState.OK
        if missing and rng.random() < 0.03:
            state = rng.choice(
                [AnswerState.REFUSED, AnswerState.TRUNCATED, AnswerState.EMPTY]
            )
        said = (
            "建议先休息，减少上下楼。"
            if case.language == "zh"
            else "Please rest the knee and avoid stairs."
        )
        text = (
            "" if state is AnswerState.EMPTY else " ".join([said] * max(1, words // 8))
        )
        finish = {AnswerState.TRUNCATED: "length", AnswerState.REFUSED: "refusal"}.get(
            state, "stop"
        )
        took = usage.as_json() if usage else {}
        answers.append(Answer(case.case_id, state, text, finish, model, usage=took))
    with open_log(out / RESPONSES) as log:
        for answer in answers:
            log.add(answer.row())
    with open_log(out / GRADES) as log:
        for case, answer in zip(run.cases, answers, strict=True):
            if not answer.gradable:
                continue
            luck = (
                skill
                - (drop if (case.month or "") >= cutoff else 0.0)
                + rng.gauss(0, 0.08)
            )
            for criterion in case.criteria:
                odds = luck if criterion.points > 0 else 0.4 - luck / 2
                met = None if missing and rng.random() < 0.004 else rng.random() < odds
                log.add(_grade(case, criterion, answer, met).row())
    return out


def run_of(
    label: str, cases: tuple[EvaluationCase, ...], answers: Mapping[str, Answer]
) -> GradedRun:
    """Answers of which no folder holds anything."""
    folder = RunFolder(Path("nowhere"), cast(RunInfo, None), cases)
    return GradedRun(folder, label, answers, {}, None, (), met={})


def graded_by(
    name: str,
    run_dir: Path,
    met: Callable[[EvaluationCase, EvaluationCriterion], bool | None],
) -> Path:
    """The run with the verdicts of another judge beside those that are there."""
    run = open_run(run_dir)
    with open_log(run_dir / GRADES) as log:
        for case, answer in gradable(run.cases, run.answers()[0]):
            for criterion in case.criteria:
                log.add(
                    _grade(case, criterion, answer, met(case, criterion), name).row()
                )
    return run_dir


def _grade(
    case: EvaluationCase,
    criterion: EvaluationCriterion,
    answer: Answer,
    met: bool | None,
    name: str = "judge-2026-01-01",
) -> Grade:
    said = "先休息" if case.language == "zh" else "rest the knee"
    judge = JUDGE if name == "judge-2026-01-01" else digest_json([name])
    return Grade(
        case_id=case.case_id,
        criterion_id=criterion.id,
        met=met,
        key=grade_keys(case, answer, judge, [criterion])[criterion.id],
        quote=said if met else "",
        reasoning="" if met is None else "What the answer says decides this.",
        reason="no verdict in the reply" if met is None else "",
        raw="",
        grader=name,
        engine="openai",
        model=name,
        mode=Mode.RUBRIC,
        prompt="sha256:" + "2" * 64,
        judge=judge,
    )


def made_runs(
    root: Path, models: int = 6, n: int = 300, *, months: int = 24, words: int = 30
) -> list[Path]:
    """Runs of `models` models on the same `n` cases, each a little better than the next."""
    cases = made_cases(n, months=months)
    return [
        made_run(
            cases,
            root / f"run-{place}",
            f"model-{place}",
            0.75 - 0.5 * place / max(1, models - 1),
            drop=0.12,
            cutoff="2025-09",
            words=words,
        )
        for place in range(models)
    ]
