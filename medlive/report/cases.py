"""The pages of a report that show cases: lists that can be filtered, and a page for each case."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from medlive.evaluation.model import EvaluationCase, EvaluationCriterion, Grade
from medlive.evaluation.scoring.graded import load_graded
from medlive.evaluation.scoring.metrics import CaseScore, CaseState
from medlive.evaluation.scoring.score import ModelScore
from medlive.report.html import alone, cells, json_text, page, percent, percents, resource, t, table
from medlive.report.model import Report, judged
from medlive.report.search import MOST_TEXT, OWN, model_text, own_text, part_of, write_texts

CASES_A_LIST: Final = 3_000
"""Cases on one list; the filters of a list see these."""
MOST_WHOLE: Final = 6
"""Models up to which a case's page writes each criterion beside each model's verdict; of more, it links to it."""
_OPENING: Final = 140
_MARK: Final = "@@here@@"
_FIELDS: Final = ("month", "language", "specialty", "theme", "source")
_STATES: Final = {
    CaseState.SCORED: "s", CaseState.PARTLY_GRADED: "p", CaseState.UNANSWERED: "u", CaseState.UNSCORABLE: "x",
}  # fmt: skip
_STATE_NAMES: Final = {
    "s": "scored",
    "p": "partly graded",
    "u": "unanswered",
    "x": "unscorable",
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


def entries(report: Report) -> list[Entry]:
    """The cases of all models by id."""
    found: dict[str, list[CaseScore | None]] = {}
    cases: dict[str, EvaluationCase] = {}
    for place, model in enumerate(report.models):
        for score in model.cases:
            cases.setdefault(score.case.case_id, score.case)
            found.setdefault(score.case.case_id, [None] * len(report.models))[place] = score
    return [Entry(cases[cid], tuple(found[cid])) for cid in sorted(found)]


def file_name(case_id: str) -> str:
    """A file name for a case's page: safe on every system, another one for every id."""
    said = re.sub(r"[^A-Za-z0-9_-]+", "-", case_id)[:40].strip("-")
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{said}-{digest}.html" if said else f"{digest}.html"


def list_name(number: int) -> str:
    """The file of the list of that number, from 1."""
    return "cases.html" if number == 1 else f"cases-{number}.html"


def case_lists(report: Report, found: Sequence[Entry], *, linked: bool) -> Iterator[tuple[str, str]]:
    """(file name, page) of each list; `linked`: whether each case has a page of its own."""
    parts = dict(_lists(found))
    for number, part in parts.items():
        yield list_name(number), _list(report, part, number, len(parts), len(found), linked)


def _list(report: Report, part: Sequence[Entry], number: int, lists: int, total: int, linked: bool) -> str:
    nav = '<nav aria-label="Report"><ul><li><a href="index.html">Scores</a></li>'
    nav += "".join(
        f'<li><a href="{list_name(k)}">Cases, list {k}</a></li>' for k in range(1, lists + 1) if k != number
    )
    which = "" if lists == 1 else f" (list {number} of {lists}: {len(part)} of {total} cases)"
    rows = "".join(_row(entry, linked) for entry in part)
    # Without case pages the report holds no answers, and none to look into.
    body = (
        f'<h1>Cases{which}</h1>\n<p class="soft">{t(report.said)}. {_scored_by(report)}</p>\n'
        f'{_form(report, part, answers=linked)}<p id="count" role="status">{len(part)} cases on this page</p>\n'
        '<div class="scroll" role="region" aria-label="Cases" tabindex="0"><table id="cases"><thead><tr>'
        '<th scope="col">case</th><th scope="col" class="n">score, %</th><th scope="col">state</th>'
        + "".join(f'<th scope="col">{name}</th>' for name in _FIELDS)
        + f'<th scope="col">opening</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n'
    )
    data = {
        "about": report.said,
        "list": number,
        "models": [model.label for model in report.models],
        "cases": [_data(entry) for entry in part],
    }
    text = json_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
    return page(
        f"medlive: cases of {report.cases_named}",
        body,
        script=resource("script.js"),
        data={"data": text},
        loads=True,
        nav=nav + "</ul></nav>\n",
    )


def _scored_by(report: Report) -> str:
    if len(report.models) == 1:
        return f"The score is that of {t(report.models[0].label)}."
    return f"The score is the mean over the {len(report.models)} models, or the chosen model's."


def _row(entry: Entry, linked: bool) -> str:
    case = entry.case
    lang = lang_of(case)
    name = t(case.case_id)
    link = f'<a href="cases/{file_name(case.case_id)}">{name}</a>' if linked else name
    open_ = sum(1 for s in entry.scores if s is None or s.state is not CaseState.SCORED)
    state = f"{open_} not scored" if open_ else ""
    about = "".join(f"<td>{t(getattr(case, name) or '–')}</td>" for name in _FIELDS)
    opening = " ".join(case.narrative[: 2 * _OPENING].split())[:_OPENING]
    return (
        f'<tr><td>{link}</td><td class="n score">{percent(entry.mean)}</td><td class="state">{state}</td>{about}'
        f'<td class="w" lang="{lang}">{t(opening)}</td></tr>\n'
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


def _form(report: Report, part: Sequence[Entry], *, answers: bool) -> str:
    models = "".join(f'<option value="{k}">{t(m.label)}</option>' for k, m in enumerate(report.models))
    selects = "".join(
        _select(name, sorted({getattr(e.case, name) or "" for e in part} - {""})) for name in _FIELDS
    )
    states = "".join(f'<option value="{k}">{name}</option>' for k, name in _STATE_NAMES.items())
    places = {"case": "narrative, question, advice, criteria"}
    if answers:
        places = {"": "all texts", **places, "answers": "answers, quotes, reasons"}
    where = "".join(f'<option value="{key}">{name}</option>' for key, name in places.items())
    return (
        '<form id="filters" hidden aria-label="Filters">'
        f'<label>model<select name="model"><option value="">mean of all models</option>{models}</select></label>'
        f"{selects}"
        f'<label>state<select name="state"><option value="">any</option>{states}</select></label>'
        '<label>score from, %<input type="number" name="least" step="5"></label>'
        '<label>score to, %<input type="number" name="most" step="5"></label>'
        '<label>words, &quot;a phrase&quot;<input type="search" name="text"></label>'
        f'<label>words in<select name="where">{where}</select></label>'
        '<label>order<select name="sort"><option value="">by case</option>'
        '<option value="low">lowest score first</option><option value="high">highest score first</option>'
        "</select></label>"
        '<button type="reset">Show all</button><button type="button" id="csv">Save shown as CSV</button>'
        '<button type="button" id="json">Save shown as JSON</button></form>\n'
    )


def _select(name: str, values: Sequence[str]) -> str:
    options = "".join(f'<option value="{t(value)}">{t(value)}</option>' for value in values)
    return f'<label>{name}<select name="{name}"><option value="">any</option>{options}</select></label>'


def write_own_texts(found: Sequence[Entry], folder: Path) -> None:
    """The cases' own words into `folder`, for each list to be searched."""
    for number, part in _lists(found):
        write_texts(folder, number, OWN, [own_text(entry.case) for entry in part])


def _lists(found: Sequence[Entry]) -> Iterator[tuple[int, Sequence[Entry]]]:
    starts = range(0, len(found), CASES_A_LIST)
    return ((number, found[start : start + CASES_A_LIST]) for number, start in enumerate(starts, start=1))


def write_case_pages(report: Report, found: Sequence[Entry], folder: Path, texts: Path) -> int:
    """A page for each case in `folder`, which is empty, and the models' words into `texts`, for each list to be
    searched; the bytes of the pages.

    Models are added one after the other, so that the texts of one run alone are held at a time.
    """
    size = 0
    feet: dict[str, str] = {}
    for place, entry in enumerate(found):
        whole = page(
            f"medlive: case {entry.case.case_id}", _head(report, found, place) + _MARK, nav=_nav(found, place)
        )
        # What is the reader's text was escaped or came before: the last mark is ours.
        head, _, foot = whole.rpartition(_MARK)
        feet[entry.case.case_id] = foot
        size += _append(folder / file_name(entry.case.case_id), head)
    # Repeated under every answer of many models, the criteria would be most of the report.
    whole_verdicts = len(report.models) <= MOST_WHOLE
    for number, model in enumerate(report.models):
        grades = _grades(model)
        for entry in found:
            if (score := entry.scores[number]) is not None:
                text = _answer(model, number, score, grades.get(entry.case.case_id, {}), whole_verdicts)
                size += _append(folder / file_name(entry.case.case_id), text)
        answers = model.run.answers
        for at, part in _lists(found):
            words = [model_text(answers.get(cid := e.case.case_id), grades.get(cid, {})) for e in part]
            write_texts(texts, at, part_of(number), words)
    for case_id, foot in feet.items():
        size += _append(folder / file_name(case_id), foot)
    return size


def _append(path: Path, text: str) -> int:
    # A model's answer may hold a lone surrogate, which UTF-8 cannot; the page shows its escape.
    data = text.encode("utf-8", "backslashreplace")
    with path.open("ab") as handle:
        handle.write(data)
    return len(data)


def _grades(model: ModelScore) -> Mapping[str, Mapping[str, Grade]]:
    """The grades with their texts, read anew so that they can be let go of when the model is done."""
    run = model.run
    if run.met is None or run.grader is None:
        return run.grades
    return load_graded(run.run.path, judge=run.grader.judge).grades


def _nav(found: Sequence[Entry], place: int) -> str:
    near = ((place - 1, "previous case"), (place + 1, "next case"))
    links = [
        f'<li><a href="{file_name(found[k].case.case_id)}">{name}</a></li>'
        for k, name in near
        if 0 <= k < len(found)
    ]
    at = list_name(place // CASES_A_LIST + 1)
    return (
        '<nav aria-label="Report"><ul><li><a href="../index.html">Scores</a></li>'
        f'<li><a href="../{at}">Cases</a></li>{"".join(links)}</ul></nav>\n'
    )


def lang_of(case: EvaluationCase) -> str:
    """The language tag of a case's texts."""
    return "zh-Hans" if case.language == "zh" else "en"


def _head(report: Report, found: Sequence[Entry], place: int) -> str:
    entry = found[place]
    case, lang = entry.case, lang_of(entry.case)
    about = "".join(f"<dt>{name}</dt><dd>{t(value)}</dd>" for name in _FIELDS if (value := getattr(case, name)))
    marks = "".join(
        f'<tr><th scope="row"><a href="#m{k}">{t(model.label)}</a></th><td>{_standing(score)}</td>'
        f"{cells((judged(model),))}</tr>\n"
        for k, (model, score) in enumerate(zip(report.models, entry.scores, strict=True))
        if score is not None
    )
    rubric = "".join(
        f'<tr id="c{k}"><td class="n">{k}</td><td class="n">{c.points:+g}</td><td>{t(c.axis or "–")}</td>'
        f'<td class="w" lang="{lang}">{_text(c.criterion)}</td></tr>\n'
        for k, c in enumerate(case.criteria, start=1)
    )
    return (
        f'<h1>Case {t(case.case_id)}</h1>\n<p class="soft">{t(report.said)}</p>\n<dl class="about">{about}</dl>\n'
        f'<section lang="{lang}"><h2 lang="en">Narrative</h2><p class="text">{_text(case.narrative)}</p>\n'
        f'<h2 lang="en">Question</h2><p class="text">{_text(case.query)}</p>\n'
        f'<h2 lang="en">Physicians\' advice</h2><p class="text">{_text(case.advice)}</p></section>\n'
        "<h2>Criteria</h2>\n"
        + table("The rubric", ("*no.", "*points", "axis", "criterion"), rubric)
        + "<h2>Models</h2>\n"
        + table("Scores on this case", ("model", "score", "grader"), marks)
    )


def _standing(score: CaseScore) -> str:
    if score.state is CaseState.SCORED:
        return f"{percent(score.score)} %"
    if score.state is CaseState.PARTLY_GRADED:
        return f'<span class="open">{score.ungraded} ungraded: {percents(score.low, score.high)} %</span>'
    return f'<span class="open">{score.state.value.replace("_", " ")}</span>'


def _text(text: str) -> str:
    """A text of any length as HTML; what is cut is said."""
    if len(text) <= MOST_TEXT:
        return alone(text)
    said = f"[cut here: {len(text):,} characters in all]"
    return f'{alone(text[:MOST_TEXT])} <span class="open" lang="en">{said}</span>'


def _lang(case: EvaluationCase) -> str:
    """The same as an attribute, where it is not the page's own language: a report has a million of these texts."""
    lang = lang_of(case)
    return "" if lang == "en" else f' lang="{lang}"'


def _answer(model: ModelScore, number: int, score: CaseScore, grades: Mapping[str, Grade], whole: bool) -> str:
    case, lang = score.case, _lang(score.case)
    answer = model.run.answers.get(case.case_id)
    if answer is None:
        said = '<p class="open">no answer on record</p>'
    elif not answer.gradable:
        said = f'<p class="open">{answer.state.value}: {_text(answer.reason or answer.finish_reason)}</p>'
    else:
        state = "" if answer.state.value == "ok" else f'<p class="open">{answer.state.value}</p>'
        said = f'{state}<p class="text"{lang} dir="auto">{_text(answer.response)}</p>'
    rows = "".join(
        _verdict(place, criterion, grades.get(criterion.id), lang, whole)
        for place, criterion in enumerate(case.criteria, start=1)
    )
    return (
        f'<article id="m{number}"><h3><bdi>{t(model.label)}</bdi>: {_standing(score)}</h3>{said}\n'
        + table(
            "Verdicts",
            ("*no.", "verdict", *(["*points", "criterion"] if whole else []), "quote and reasoning"),
            rows,
        )
        + "</article>\n"
    )


def _verdict(
    place: int, criterion: EvaluationCriterion, grade: Grade | None, lang: str, whole: bool
) -> str:  # fmt: skip
    why = ""
    if grade is None:
        verdict = '<span class="open">not graded</span>'
    elif grade.met is None:
        verdict = '<span class="open">ungraded</span>'
        why = f'<span class="soft">{_text(grade.reason)}</span>'
    else:
        wrong = grade.met is (criterion.points < 0)
        kind, mark = ("error", "✗") if wrong else ("met", "✓") if grade.met else ("unmet", "○")
        verdict = f'<span class="{kind}">{mark} {"met" if grade.met else "not met"}</span>'
        quote = f"<q{lang}>{_text(grade.quote)}</q> " if grade.quote else ""
        why = quote + (f'<span class="soft"{lang}>{_text(grade.reasoning)}</span>' if grade.reasoning else "")
    said = ""
    if whole:
        said = f'<td class="n">{criterion.points:+g}</td><td class="w"{lang}>{_text(criterion.criterion)}</td>'
    return (
        f'<tr><td class="n"><a href="#c{place}">{place}</a></td><td>{verdict}</td>{said}'
        f'<td class="w">{why}</td></tr>\n'
    )
