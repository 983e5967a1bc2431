"""Import other benchmarks' answers and grades into a run (`import_run`), and export a run as LiveMedBench's files.

So work that was paid for elsewhere goes on here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from medlive.errors import BadInput, UsageError
from medlive.evaluation.asking.run import RunResult, import_answers
from medlive.evaluation.cases.benchmarks import Place, answer_rows
from medlive.evaluation.cases.livemedbench import (
    case_entry,
    file_stem,
    grade_entry,
    list_bytes,
    read_answers,
    response_entry,
)
from medlive.evaluation.model import (
    CaseSet,
    EvaluationCase,
    Grade,
    Origin,
    gradable,
    grade_keys,
)
from medlive.evaluation.runs.folder import (
    GRADES,
    IMPORTED,
    RunFolder,
    TemplateUse,
    grades_of,
    open_run,
)
from medlive.evaluation.runs.templates import load_template
from medlive.evaluation.scoring.graded import GradedRun
from medlive.evaluation.scoring.published import keep_figures
from medlive.grader.judge import Judge, Mode
from medlive.integrity.digest import digest_json
from medlive.integrity.log import open_log, read_bytes, write_whole

Gradings = Sequence[Mapping[str, Any]]
"""The entries of a grades file, in LiveMedBench's form."""
PlacedVerdict = tuple[Place, bool]


def import_run(
    cases: CaseSet,
    responses: Path,
    out: Path,
    *,
    place: Path,
    model: str,
    created_at: datetime,
    grades: Path | None = None,
    template: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    judge: Judge | None = None,
    format_: str = "livemedbench",
    people: Mapping[Place, Mapping[str, bool | None]] | None = None,
) -> RunResult:
    """Make a run folder from cases, a file of responses to them, and a file of grades where given.

    A grade counts where its criterion's text is one of the case's and its score is 0 or 1; the published grader also
    writes 0 for a call that failed, which nothing in the file tells apart. Importing the same files again adds nothing.

    Args:
        cases: The cases.
        responses: The file of answers.
        out: The run folder.
        place: Where the cases lie; figures that the published script makes of LiveMedBench's file of them are kept.
        model: Who answered.
        created_at: When the run is made.
        grades: The file of grades.
        template: What the model was asked with; `run_model` then asks for the answers that are missing.
        parameters: What else the model was asked with.
        judge: Who graded: `grade_run` then grades what is left and keeps these verdicts. None: nobody knows, and they
            are kept beside those of any other grader.
        format_: The format of both files.
        people: People's verdicts that were read from `grades` (`humans.read_humans`): each rater is a judge.

    Raises:
        BadInput: If a file cannot be read, or the responses are to none of the cases and come without grades.
        UsageError: If there is no such template.
    """
    notes: list[str] = []
    rows = answer_rows(responses, format_, notes)
    answers = read_answers(rows, responses.name, model, notes)
    known = {case.case_id for case in cases.cases}
    if grades is None and known.isdisjoint(answer.case_id for answer in answers):
        wanted = f", such as {cases.cases[0].case_id!r}"
        raise BadInput(
            f"{responses} answers none of the cases of {cases.name}{wanted}",
            hint="; ".join(notes[:1]),
        )
    damaged: list[str] = []
    faults: list[str] = []
    by_rater: dict[str, list[PlacedVerdict]] = {}
    gradings: Gradings = ()
    if people is not None:
        by_rater = _people_verdicts(people, f"{grades}")
    elif grades is not None:
        gradings = _read_gradings(grades, format_, damaged)
        by_rater[""] = _file_verdicts(cases.cases, gradings, faults)
    use = None
    if template:
        use = TemplateUse.model_validate(load_template(template))
    result = import_answers(
        out,
        cases,
        answers,
        model,
        created_at,
        parameters=parameters,
        template=use,
    )
    notes = [*cases.notes, *notes, *damaged]
    if grades is not None:
        run = open_run(out)
        new: list[Grade] = []
        for rater, verdicts in by_rater.items():
            new += _grades(
                run,
                verdicts,
                _claim(grades, judge, rater),
                faults,
            )
        _add(out, new)
        notes += [f"{grades.name}: {fault}" for fault in faults]
        # The published script ends in a traceback where a file is cut off: there are no figures of its own.
        if format_ == "livemedbench" and judge is None and not damaged:
            keep_figures(out, _claim(grades, None, "").judge, place, gradings)
    return replace(result, notes=(*notes, *result.notes))


def _read_gradings(path: Path, format_: str, notes: list[str]) -> Gradings:
    """The entries of a grades file; damaged ones are listed in `notes`. Raises BadInput if none is a grading."""
    gradings = answer_rows(path, format_, notes)
    if gradings and not any("evaluations" in entry for entry in gradings):
        raise BadInput(f"{path} holds no gradings: no entry has 'evaluations'")
    return gradings


def _claim(
    path: Path,
    judge: Judge | None,
    rater: str,
) -> Grade:
    """A grade without case or verdict: who is said to have given a file's verdicts (`judge`, or `rater` of people)."""
    engine, model, mode = IMPORTED, rater or "unknown", Mode.CRITERION
    digest = digest_json(["import", path.name, *filter(None, [rater])])
    origin: Origin = "call"
    if judge is not None:
        engine, model, mode = judge.identity.engine, judge.identity.model, judge.mode
        digest, origin = judge.digest, "import"
    return Grade(
        case_id="",
        criterion_id="",
        key="",
        met=None,
        quote="",
        reasoning="",
        reason="",
        raw="",
        grader=model,
        engine=engine,
        model=model,
        mode=mode,
        prompt="unknown",
        judge=digest,
        origin=origin,
    )


def _people_verdicts(
    people: Mapping[Place, Mapping[str, bool | None]],
    name: str,
) -> dict[str, list[PlacedVerdict]]:
    """People's decisions by rater. Raises BadInput where none is in the file of that name."""
    by_rater: dict[str, list[PlacedVerdict]] = {}
    for place, ratings in people.items():
        for rater, met in ratings.items():
            if met is not None:
                by_rater.setdefault(rater, []).append((place, met))
    if not by_rater:
        raise BadInput(
            f"{name} has no verdicts on criteria, only scores of answers or ratings without a decision"
        )
    return by_rater


def _file_verdicts(
    cases: Iterable[EvaluationCase],
    gradings: Gradings,
    notes: list[str],
) -> list[PlacedVerdict]:
    """The verdicts of a grades file; `notes` gets what is irregular. Of two gradings of a case the last one counts."""
    known = {case.case_id: case for case in cases}
    by_case: dict[str, list[PlacedVerdict]] = {}
    for entry in gradings:
        case_id, evaluations = str(entry.get("case_id")), entry.get("evaluations")
        where = f"case {case_id!r}"
        if case_id not in known or not isinstance(evaluations, dict):
            notes.append(
                f"{where}: not in the cases, or no object of evaluations; left out"
            )
            continue
        if case_id in by_case:
            notes.append(f"{where}: graded more than once; the last one counts")
        verdicts = by_case[case_id] = []
        # Criteria are named by their text.
        criteria = known[case_id].criteria
        ids = {c.criterion: c.id for c in criteria}
        worth = [(c.criterion, c.points) for c in criteria]
        for name, value in evaluations.items():
            graded = value if isinstance(value, dict) else {}
            text, score, points = map(graded.get, ("criterion", "score", "points"))
            if isinstance(text, str) and text in ids and score in (0, 1):
                verdicts.append(((case_id, ids[text]), bool(score)))
                if points is not None and (text, points) not in worth:
                    notes.append(
                        f"{where}, {name}: graded at {points!r:.80} points; the rubric's count"
                    )
            else:
                notes.append(
                    f"{where}, {name}: no criterion of the case, or no score of 0 or 1; left out"
                )
    return list(chain.from_iterable(by_case.values()))


def _grades(
    run: RunFolder,
    verdicts: Iterable[PlacedVerdict],
    claim: Grade,
    notes: list[str],
) -> list[Grade]:
    """The verdicts on a run's answers as rows of its log, by `claim`; criteria of the same text share one row."""
    keys: dict[Place, str] = {}
    for case, answer in gradable(run.cases, run.answers()[0]):
        for criterion_id, key in grade_keys(case, answer, claim.judge).items():
            keys[case.case_id, criterion_id] = key
    grades: dict[str, Grade] = {}
    for place, met in verdicts:
        case_id, criterion_id = place
        where = f"case {case_id!r}, {criterion_id}"
        if place not in keys:
            notes.append(f"{where}: no such criterion, or no answer; left out")
            continue
        grade = replace(
            claim,
            case_id=case_id,
            criterion_id=criterion_id,
            key=keys[place],
            met=met,
        )
        if grades.setdefault(grade.key, grade).met is not met:
            notes.append(f"{where}: graded both ways; left ungraded")
            grades[grade.key] = replace(grade, met=None)
    return [grade for grade in grades.values() if grade.met is not None]


def _add(run_dir: Path, grades: Sequence[Grade]) -> None:
    """Write the grades that are not on record. A verdict asked for here is never replaced."""
    if not grades:
        return
    with open_log(run_dir / GRADES) as log:
        known: dict[str, Grade] = {}
        for grade in grades_of(run_dir / GRADES, []):
            if grade.met is not None:
                known[grade.key] = grade
        for grade in grades:
            was = known.get(grade.key)
            if was is not None:
                imported = was.engine == IMPORTED or was.origin == "import"
                if not imported or was.met == grade.met:
                    continue
            log.add(grade.row())
            known[grade.key] = grade


def export_run(
    graded: GradedRun,
    out: Path,
) -> list[Path]:
    """Write a run as LiveMedBench's files into `out`: the benchmark, the responses, and the grades of the last
    grader that gave any; the files written.

    Raises UsageError, before anything is written, where a file of that name holds something else; BadInput and
    DiskFull where `out` cannot be written.
    """
    info = graded.info
    stem = file_stem(info.model)
    name = info.cases.name.removesuffix(".json").removeprefix("LiveMedBench_")
    # LiveMedBench's files hold no origin: all their criteria count in the published script.
    cases = [case.advice_only for case in graded.cases]
    gradings = [grade_entry(case, graded.verdicts(case.case_id)) for case in cases]
    responses = []
    for case in graded.cases:
        if case.case_id in graded.answers:
            responses.append(response_entry(case, graded.answers[case.case_id]))
    files = {
        out / f"LiveMedBench_{file_stem(name)}.json": list_bytes(
            map(case_entry, cases)
        ),
        out / f"{stem}_results.json": list_bytes(responses),
        out / f"evaluation_results_{stem}.json": list_bytes(gradings),
    }
    for path, data in files.items():
        if path.exists() and read_bytes(path) != data:
            raise UsageError(
                f"{path} exists and holds something else",
                hint="name another folder, or remove it",
            )
    for path, data in files.items():
        write_whole(path, data)
    return list(files)


def left_out(graded: GradedRun) -> list[str]:
    """Notes on what the exported files cannot express, and how the published script counts it."""
    added = ungraded = 0
    unanswered = len(graded.cases)
    for case in graded.cases:
        added += len(case.criteria) - len(case.advice_only.criteria)
    for case, _ in graded.answered():
        unanswered -= 1
        verdicts = graded.verdicts(case.case_id)
        for criterion in case.advice_only.criteria:
            ungraded += verdicts.get(criterion.id) is None
    counts = {
        "criteria do not rest on the advice; the files, like the paper, hold those that do": added,
        "cases have no answer; the published script counts them as 0": unanswered,
        "criteria are ungraded; the published script counts them as not met": ungraded,
    }
    return [f"{n} {what}" for what, n in counts.items() if n]
