"""The pages of a report that show cases: lists that can be filtered, and a page for each case."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from medlive.evaluation.model import EvaluationCase, Grade
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import CaseScore, CaseState
from medlive.evaluation.scoring.score import ModelScore
from medlive.report.html import file_name, json_text, page, render, resource
from medlive.report.model import Report, judged

CASES_A_LIST: Final = 3_000
"""Cases on one list; the filters of a list see these."""
MOST_WHOLE: Final = 6
"""Models up to which a case's page writes each criterion beside each model's verdict; of more, it links to it."""
_OPENING: Final = 140
_MAIN_ENDS: Final = "</main>"
_FIELDS: Final = ("month", "language", "specialty", "theme", "source")
_STATES: Final = {
    CaseState.SCORED: "s",
    CaseState.PARTLY_GRADED: "p",
    CaseState.UNANSWERED: "u",
    CaseState.UNSCORABLE: "x",
    CaseState.NOT_READ: "h",
}
_STATE_NAMES: Final = {
    "s": "scored",
    "p": "partly graded",
    "u": "unanswered",
    "x": "unscorable",
    "h": "not read for harm",
    "-": "not in the run",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A case with every model's score on it, None where a model's run does not hold it."""

    case: EvaluationCase
    scores: tuple[CaseScore | None, ...]

    @property
    def mean(self) -> float | None:
        """Over the models that have a score."""
        known = [s.score for s in self.scores if s is not None and s.score is not None]
        return sum(known) / len(known) if known else None

    @property
    def open(self) -> int:
        """Models without a score on it."""
        return sum(s is None or s.state is not CaseState.SCORED for s in self.scores)

    @property
    def opening(self) -> str:
        """Its first words."""
        return " ".join(self.case.narrative[: 2 * _OPENING].split())[:_OPENING]


def entries(report: Report) -> list[Entry]:
    """The cases of all models by id."""
    scores: dict[str, list[CaseScore | None]] = {}
    cases: dict[str, EvaluationCase] = {}
    for place, model in enumerate(report.models):
        for case in model.run.run.cases:
            # With the criteria of every origin, whichever the metric counts.
            cases.setdefault(case.case_id, case)
        for score in model.cases:
            cases.setdefault(score.case.case_id, score.case)
            scores.setdefault(score.case.case_id, [None] * len(report.models))[
                place
            ] = score
    return [Entry(cases[cid], tuple(scores[cid])) for cid in sorted(scores)]


def list_name(number: int) -> str:
    """The file of the list of that number, from 1."""
    return "cases.html" if number == 1 else f"cases-{number}.html"


def case_lists(
    report: Report, case_entries: Sequence[Entry], *, linked: bool
) -> Iterator[tuple[str, str]]:
    """(file name, page) of each list; `linked`: whether each case has a page of its own."""
    parts = list(_lists(case_entries))
    for number, part in parts:
        text = _list(report, part, number, len(parts), len(case_entries), linked)
        yield list_name(number), text


def _list(
    report: Report,
    part: Sequence[Entry],
    number: int,
    lists: int,
    total: int,
    linked: bool,
) -> str:
    selects = {}
    for name in _FIELDS:
        selects[name] = sorted({getattr(e.case, name) or "" for e in part} - {""})
    body = report.render(
        "case_list.html",
        part=part,
        number=number,
        lists=lists,
        total=total,
        linked=linked,
        selects=selects,
        states=_STATE_NAMES,
    )
    data = {
        "about": report.basis,
        "models": [model.label for model in report.models],
        "cases": [_data(entry) for entry in part],
    }
    nav = [("index.html", "Scores")]
    for other in range(1, lists + 1):
        if other != number:
            nav.append((list_name(other), f"Cases, list {other}"))
    return page(
        f"medlive: cases of {report.cases_named}",
        body,
        nav,
        script=resource("script.js"),
        data=json_text(json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
    )


def _data(entry: Entry) -> dict[str, Any]:
    case = entry.case
    return {
        "id": case.case_id,
        **{name: getattr(case, name) or "" for name in _FIELDS},
        "marks": [_mark(score) for score in entry.scores],
    }


def _mark(score: CaseScore | None) -> float | list[Any]:
    if score is None:
        return ["-", None]
    value = None if score.score is None else round(score.score, 4)
    if score.state is CaseState.SCORED and value is not None:
        return value
    return [_STATES[score.state], value]


def _lists(case_entries: Sequence[Entry]) -> Iterator[tuple[int, Sequence[Entry]]]:
    starts = range(0, len(case_entries), CASES_A_LIST)
    return (
        (number, case_entries[start : start + CASES_A_LIST])
        for number, start in enumerate(starts, start=1)
    )


def write_case_pages(
    report: Report, case_entries: Sequence[Entry], folder: Path
) -> None:
    """A page for each case in `folder`, which is empty.

    Models are added one after the other, so that the texts of one run alone are held at a time.
    """
    foot = ""
    for place, entry in enumerate(case_entries):
        # What is the reader's text was escaped: the last end of this kind is the page's own.
        head, *ends = page(
            f"medlive: case {entry.case.case_id}",
            _head(report, entry),
            _nav(case_entries, place),
        ).rpartition(_MAIN_ENDS)
        foot = "".join(ends)
        _append(folder / file_name(entry.case.case_id), head)
    # Repeated under every answer of many models, the criteria would be most of the report.
    whole = len(report.models) <= MOST_WHOLE
    for number, model in enumerate(report.models):
        grades = _grades(model)
        answers = model.run.answers
        cases = {case.case_id: case for case in model.run.run.cases}
        for entry in case_entries:
            if (score := entry.scores[number]) is not None:
                case = cases.get(score.case.case_id, score.case)
                text = render(
                    "answer.html",
                    case=case,
                    model=model,
                    number=number,
                    score=score,
                    whole=whole,
                    answer=answers.get(case.case_id),
                    grades=grades.get(case.case_id, {}),
                    harm=model.run.harm_of(case.case_id),
                )
                _append(folder / file_name(case.case_id), text)
    for entry in case_entries:
        _append(folder / file_name(entry.case.case_id), foot)


def _append(path: Path, text: str) -> None:
    # A model's answer may hold a lone surrogate, which UTF-8 cannot; the page shows its escape.
    data = text.encode("utf-8", "backslashreplace")
    with path.open("ab") as handle:
        handle.write(data)


def _grades(model: ModelScore) -> Mapping[str, Mapping[str, Grade]]:
    """The grades with their texts, read anew so that they can be let go of when the model is done."""
    run = model.run
    if run.met is None or run.grader is None:
        return run.grades
    return load_graded(run.run.path, judge=run.grader.judge).grades


def _nav(case_entries: Sequence[Entry], place: int) -> list[tuple[str, str]]:
    nav = [
        ("../index.html", "Scores"),
        (f"../{list_name(place // CASES_A_LIST + 1)}", "Cases"),
    ]
    if place > 0:
        nav.append((file_name(case_entries[place - 1].case.case_id), "previous case"))
    if place + 1 < len(case_entries):
        nav.append((file_name(case_entries[place + 1].case.case_id), "next case"))
    return nav


def _head(report: Report, entry: Entry) -> Markup:
    about = {}
    for name in _FIELDS:
        if value := getattr(entry.case, name):
            about[name] = value
    standings = []
    for k, (model, score) in enumerate(zip(report.models, entry.scores, strict=True)):
        if score is not None:
            standings.append((k, model, judged(model), score))
    return report.render("case.html", case=entry.case, about=about, standings=standings)
