"""LiveMedBench's files into a run folder and out of it, so that work already paid for goes on here."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from medlive.digest import digest_json
from medlive.evaluation.cases import load_cases
from medlive.evaluation.grade import read_grades
from medlive.evaluation.livemedbench import (
    case_entry,
    file_stem,
    grade_entry,
    read_responses,
    response_entry,
    write_list,
)
from medlive.evaluation.livemedbench import read_grades as read_grade_entries
from medlive.evaluation.log import open_log
from medlive.evaluation.model import Answer, EvaluationCase, Grade, Mode, grade_key
from medlive.evaluation.run import GRADES, RunFolder, RunResult, import_answers, open_run
from medlive.evaluation.score import load_graded


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought."""

    run: RunResult
    grades: int
    """Verdicts that are new."""
    notes: tuple[str, ...]


def import_run(
    cases: Path, responses: Path, out: Path, *, model: str, created_at: datetime, grades: Path | None = None
) -> Imported:
    """A run folder from cases, LiveMedBench's responses, and its grades where given.

    A grade counts where its criterion's text is one of the case's and its score is 0 or 1; the published grader
    also writes 0 for a call that failed, which nothing in the file tells apart. Raises BadInput for files that
    cannot be read. Importing the same files again adds nothing.
    """
    answers, notes = read_responses(responses, model)
    result = import_answers(out, load_cases(cases), answers, model=model, created_at=created_at)
    added = 0
    if grades is not None:
        added, grade_notes = _import_grades(open_run(out), grades)
        notes += grade_notes
    return Imported(result, added, (*notes, *result.notes))


def _import_grades(run: RunFolder, path: Path) -> tuple[int, list[str]]:
    judge = digest_json(["import", path.name])
    cases = {case.case_id: case for case in run.cases}
    answers, _ = run.answers()
    notes: list[str] = []
    added = 0
    with open_log(run.path / GRADES) as log:
        there = {grade.key: grade.met for grade in read_grades(run.path / GRADES)[0]}
        for entry in read_grade_entries(path):
            case = cases.get(str(entry.get("case_id")))
            evaluations = entry.get("evaluations")
            if case is None or not isinstance(evaluations, dict):
                notes.append(f"{path.name}: case {entry.get('case_id')!r} is not in the cases; left out")
                continue
            answer = answers.get(case.case_id)
            if answer is None or not answer.gradable:
                if evaluations:
                    notes.append(f"{path.name}: case {case.case_id!r} is graded but unanswered; left out")
                continue
            for grade in _grades(case, answer, evaluations, judge, notes):
                if there.get(grade.key, ...) != grade.met:
                    log.add(grade.row())
                    there[grade.key] = grade.met
                    added += 1
    return added, notes


def _grades(
    case: EvaluationCase, answer: Answer, evaluations: Mapping[str, Any], judge: str, notes: list[str]
) -> list[Grade]:
    by_text = {criterion.criterion: criterion for criterion in case.criteria}
    found: dict[str, Grade] = {}
    for name, entry in evaluations.items():
        text = entry.get("criterion") if isinstance(entry, dict) else None
        criterion = by_text.get(text) if isinstance(text, str) else None
        score = entry.get("score") if isinstance(entry, dict) else None
        if criterion is None:
            notes.append(f"case {case.case_id!r}, {name}: no criterion of the case; left out")
            continue
        if score not in (0, 1):
            notes.append(f"case {case.case_id!r}, {name}: score {score!r} is neither 0 nor 1; left out")
            continue
        if criterion.id in found and found[criterion.id].met is not bool(score):
            notes.append(f"case {case.case_id!r}, {name}: graded both ways; left ungraded")
            del found[criterion.id]
            by_text.pop(criterion.criterion)
            continue
        found[criterion.id] = Grade(
            case_id=case.case_id,
            criterion_id=criterion.id,
            key=grade_key(case, criterion, answer, judge),
            met=bool(score),
            quote="",
            reasoning="",
            reason="",
            raw="",
            grader="unknown",
            engine="import",
            model="unknown",
            mode=Mode.CRITERION,
            prompt="unknown",
            judge=judge,
        )
    return list(found.values())


def export_run(run_dir: Path, out: Path) -> list[Path]:
    """Write a run as LiveMedBench's files into `out`: the benchmark, the responses, and the grades of the grader
    used last; the files written."""
    graded = load_graded(run_dir)
    run = graded.run
    stem = file_stem(run.info.model)
    out.mkdir(parents=True, exist_ok=True)
    benchmark = out / f"LiveMedBench_{file_stem(run.info.cases.name.removesuffix('.json'))}.json"
    responses, grades = out / f"{stem}_results.json", out / f"evaluation_results_{stem}.json"
    write_list(benchmark, (case_entry(case) for case in run.cases))
    answered = [(case, graded.answers[case.case_id]) for case in run.cases if case.case_id in graded.answers]
    write_list(responses, (response_entry(case, answer) for case, answer in answered))
    write_list(grades, (grade_entry(case, graded.verdicts(case.case_id)) for case in run.cases))
    return [benchmark, responses, grades]
