"""The pages of a report that show cases: a list that can be filtered, and a page for each case."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.scoring.metrics import CaseScore, CaseState

from .html import file_name, page, render, resource, utf8
from .model import Report, judged

LIST = "cases.html"
MOST_WHOLE = 6
"""With up to this many models a case's page repeats each criterion beside every verdict; with more it links to it."""
_OPENING = 140  # characters
_MAIN_ENDS = "</main>"
_FIELDS = ("month", "language", "specialty", "theme", "source")
_ABSENT = "not in the run"


@dataclass(frozen=True)
class Entry:
    """A case with every model's score on it, None where a model's run does not hold it."""

    case: EvaluationCase
    scores: list[CaseScore | None]

    @property
    def mean(self) -> float | None:
        """The mean score over the models that have one; None if none has."""
        known = [s.score for s in self.scores if s and s.score is not None]
        return fmean(known) if known else None

    @property
    def open(self) -> int:
        """How many models have no score, or none that is wholly graded."""
        return sum(s is None or s.state is not CaseState.SCORED for s in self.scores)

    @property
    def opening(self) -> str:
        """Its first words."""
        return " ".join(self.case.narrative[: 2 * _OPENING].split())[:_OPENING]


def entries(report: Report) -> list[Entry]:
    """The cases of all models, in the order of their ids."""
    by_id: dict[str, Entry] = {}
    for place, model in enumerate(report.models):
        # With the criteria of every origin, whichever the metric counts.
        cases = {case.case_id: case for case in model.run.cases}
        for score in model.cases:
            case = cases.get(score.case_id, score.case)
            fresh = Entry(case, [None] * len(report.models))
            by_id.setdefault(score.case_id, fresh).scores[place] = score
    return [by_id[case_id] for case_id in sorted(by_id)]


def case_list(report: Report, case_entries: Sequence[Entry]) -> str:
    """The page that lists every case."""
    states = [state.value.replace("_", " ") for state in CaseState]
    body = report.render(
        "case_list.html",
        entries=case_entries,
        fields=_FIELDS,
        states=[*states, _ABSENT],
    )
    rows = []
    for entry in case_entries:
        row: dict[str, Any] = {"id": entry.case.case_id}
        for name in _FIELDS:
            row[name] = getattr(entry.case, name) or ""
        row["marks"] = list(map(_mark, entry.scores))
        rows.append(row)
    return page(
        f"medlive: cases of {report.cases_named}",
        body,
        [("index.html", "Scores")],
        script=resource("script.js"),
        data={
            "about": report.basis,
            "models": [model.label for model in report.models],
            "cases": rows,
        },
    )


def _mark(score: CaseScore | None) -> float | list[Any]:
    """A score as script.js takes it: alone where the case is wholly graded, else with its state."""
    if score is None:
        return [_ABSENT, None]
    value = None if score.score is None else round(score.score, 4)
    if score.state is CaseState.SCORED and value is not None:
        return value
    return [score.state.value.replace("_", " "), value]


def write_case_pages(
    report: Report,
    case_entries: Sequence[Entry],
    folder: Path,
) -> None:
    """Write a page for each case into `folder`, which is empty.

    Models are added one after the other, so that only one run's texts are in memory at a time.
    """
    names = [file_name(entry.case.case_id) for entry in case_entries]
    foot = ""
    nav = [("../index.html", "Scores"), (f"../{LIST}", "Cases")]
    for page_name, entry in zip(names, case_entries, strict=True):
        standings = []
        for k, model in enumerate(report.models):
            if (score := entry.scores[k]) is not None:
                standings.append((k, model, judged(model), score))
        body = report.render(
            "case.html", case=entry.case, fields=_FIELDS, standings=standings
        )
        whole = page(f"medlive: case {entry.case.case_id}", body, nav)
        # Texts of models and forums were escaped, so the last `</main>` is the page's own.
        head, *ends = whole.rpartition(_MAIN_ENDS)
        foot = "".join(ends)
        _append(folder / page_name, head)
    for number in range(len(report.models)):
        _add_answers(report, number, case_entries, folder)
    for name in names:
        _append(folder / name, foot)


def _add_answers(
    report: Report,
    number: int,
    case_entries: Sequence[Entry],
    folder: Path,
) -> None:
    """Add the answers of one model, `report.models[number]`, to the pages."""
    model = report.models[number]
    run = model.run
    # Grades with their texts; read through a copy of the run, so that they are freed when the model is done.
    grades = replace(run).grades
    cases = {case.case_id: case for case in run.cases}
    for entry in case_entries:
        if (score := entry.scores[number]) is None:
            continue
        case_id = entry.case.case_id
        text = render(
            "answer.html",
            case=cases.get(case_id, score.case),
            model=model,
            number=number,
            score=score,
            # Under every answer of many models, the criteria would be most of the report.
            whole=len(report.models) <= MOST_WHOLE,
            answer=run.answers.get(case_id),
            grades=grades.get(case_id, {}),
            harm=run.harm_of(case_id),
        )
        _append(folder / file_name(case_id), text)


def _append(path: Path, text: str) -> None:
    with path.open("ab") as handle:
        handle.write(utf8(text))
