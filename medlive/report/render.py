"""The report: one HTML page that needs nothing but itself, and the figures beside it as JSON and CSV."""

import json
import os
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final

from medlive.errors import BadInput
from medlive.evaluation.metrics import CaseScore, CaseState, Metric
from medlive.evaluation.model import EvaluationCriterion, Grade
from medlive.evaluation.score import FEW, SLICES, Estimate, ModelScore, ScoreTable, month_table
from medlive.report.tables import scores_csv, scores_json

MOST_CASES: Final = 500
"""How many cases the page shows one by one; the page says so when there are more."""

_NUMBER: Final = ' class="n"'

_METRIC_TEXT: Final = {
    Metric.PAPER: "paper score: clipped to [0, 1] by case, mean over the cases that are wholly graded",
    Metric.PUBLISHED: (
        "published-code score: not clipped by case, the mean is; what is ungraded or unanswered counts nothing"
    ),
}


def write_report(table: ScoreTable, out: Path, *, most_cases: int = MOST_CASES) -> Path:
    """Write `index.html`, `scores.json`, `scores.csv` and `scores.tsv` into the folder `out`; the page's path.

    Existing files of these names are replaced. Raises BadInput when the folder cannot be written.
    """
    page = out / "index.html"
    plain = json.dumps(scores_json(table), ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write(out / "scores.json", plain)
        _write(out / "scores.csv", scores_csv(table))
        _write(out / "scores.tsv", month_table(table).tsv())
        _write(page, render(table, most_cases=most_cases))
    except OSError as exc:
        raise BadInput(f"{out} cannot be written: {exc.strerror or exc}") from exc
    return page


def _write(path: Path, text: str) -> None:
    # A model's answer may hold a lone surrogate, which UTF-8 cannot; the page shows its escape.
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(text.encode("utf-8", "backslashreplace"))
    os.replace(partial, path)


def render(table: ScoreTable, *, most_cases: int = MOST_CASES) -> str:
    """The page: ranking, comparisons, rates, axes, slices, then every case with its answers and verdicts."""
    style = files("medlive.report").joinpath("style.css").read_text(encoding="utf-8")
    names = ", ".join(sorted({m.run.run.info.cases.name for m in table.models}))
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>medlive: scores on {_t(names)}</title>\n<style>\n{style}</style></head>\n<body>\n",
        f"<h1>Scores on {_t(names)}</h1>\n",
        _head(table),
        _ranking(table),
        _comparisons(table),
        _rates(table),
        _axes(table),
        *(_slices(table, kind) for kind in SLICES),
        _cases(table, most_cases),
        "</body></html>\n",
    ]
    return "".join(parts)


def _t(text: object) -> str:
    """A text as HTML; control characters, which HTML cannot hold, become the replacement character."""
    return escape("".join("\ufffd" if (c < " " and c not in "\n\t") or c == "\x7f" else c for c in str(text)))


def _f(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _share(count: int, of: int) -> str:
    return f"{count} of {of}" + (f" ({100 * count / of:.1f} %)" if of else "")


def _head(table: ScoreTable) -> str:
    warnings = "".join(f"<li>{_t(warning)}</li>" for warning in table.warnings)
    box = f'<div class="warn" role="note"><strong>Read with care</strong><ul>{warnings}</ul></div>\n'
    return (
        f"{box if warnings else ''}<p>Metric: {_t(_METRIC_TEXT[table.metric])}. Intervals: 95 %, bootstrap over "
        f"cases, {table.draws} draws, seed {table.seed}. Groups: ties at 5 % after Holm's correction. Bounds: the "
        "least and the most that ungraded criteria and unanswered cases could make the score. Grey: fewer than "
        f"{FEW} cases.</p>\n"
    )


def _section(title: str, heads: str, rows: Iterable[str], caption: str = "") -> str:
    """A heading and a table; `heads` and `rows` are HTML, `title` and `caption` text."""
    said = f"<caption>{_t(caption)}</caption>" if caption else ""
    return (
        f'<h2>{_t(title)}</h2>\n<div class="scroll"><table>{said}<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def _heads(names: Iterable[str], kind: str = "") -> str:
    return "".join(f"<th{kind}>{_t(name)}</th>" for name in names)


def _cells(values: Iterable[str]) -> str:
    return "".join(f"<td{_NUMBER}>{_t(value)}</td>" for value in values)


def _bar(estimate: Estimate) -> str:
    if estimate.mean is None:
        return ""

    def x(value: float) -> str:
        return f"{100 * max(0.0, min(1.0, value)):.2f}"

    low, high = estimate.low, estimate.high
    span = ""
    if low is not None and high is not None:
        span = f'<line class="span" x1="{x(low)}" x2="{x(high)}" y1="5" y2="5"/>'
    width = f"{max(0.0, float(x(estimate.most)) - float(x(estimate.least))):.2f}"
    return (
        f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{_f(estimate.mean)}"><rect class="value" x="0" y="2" height="6" width="{x(estimate.mean)}"/>'
        f'<rect class="bounds" x="{x(estimate.least)}" y="0" height="10" width="{width}"/>{span}</svg>'
    )


def _figures(estimate: Estimate) -> str:
    around = "–" if estimate.low is None else f"{_f(estimate.low)} to {_f(estimate.high)}"
    return (
        f'<td class="n">{_f(estimate.mean)}</td><td class="n">{around}</td>'
        f'<td class="n">{_f(estimate.least)} to {_f(estimate.most)}</td><td class="n">{estimate.n}</td>'
    )


_FIGURE_HEADS: Final = _heads(("score", "95 % interval", "bounds", "n"), _NUMBER)


def _ranking(table: ScoreTable) -> str:
    rows = []
    for model in table.models:
        info, grader, standing = model.run.run.info, model.run.grader, model.standing
        group, rank = "–", "–"
        if standing:
            group, best, worst = str(standing.group), standing.rank_best, standing.rank_worst
            rank = str(best) if best == worst else f"{best} to {worst}"
        judged = "not graded" if grader is None else f"{grader.model} ({grader.mode})"
        flag = ' <span class="open">not publishable</span>' if _unpublishable(model) else ""
        about = (info.cases.name, info.template.name, judged)
        rows.append(
            f"<tr{_few(model.overall)}>{_cells((group, rank))}<td>{_t(model.label)}{flag}</td>"
            f"<td>{_bar(model.overall)}</td>{_figures(model.overall)}"
            f"{''.join(f'<td>{_t(text)}</td>' for text in about)}</tr>\n"
        )
    heads = _heads(("group", "rank"), _NUMBER) + _heads(("model", "")) + _FIGURE_HEADS
    return _section("Ranking", heads + _heads(("cases", "prompt", "grader")), rows)


def _unpublishable(model: ModelScore) -> bool:
    info, grader = model.run.run.info, model.run.grader
    ruled = info.engine == "rules" or (grader is not None and grader.engine == "rules")
    return ruled or info.cases.publishable is False


def _few(estimate: Estimate) -> str:
    return ' class="few"' if estimate.few else ""


def _comparisons(table: ScoreTable) -> str:
    if not table.comparisons:
        return ""
    rows = [
        f"<tr><td>{_t(c.first)}</td><td>{_t(c.second)}</td>"
        + _cells((_f(c.difference), f"{_f(c.low)} to {_f(c.high)}", f"{c.p_holm:.4f}", str(c.n)))
        + "</tr>\n"
        for c in table.comparisons
    ]
    heads = _heads(("first", "second")) + _heads(("difference", "95 % interval", "p (Holm)", "n"), _NUMBER)
    caption = f"First less second, on the cases that both are scored on; {table.common} are common to all"
    return _section("Pairs", heads, rows, caption)


def _rates(table: ScoreTable) -> str:
    rows = []
    for model in table.models:
        r = model.rates
        counts = (r.partly_graded, r.unanswered, r.truncated, r.refused, r.unscorable)
        cells = (_share(r.ungraded, r.criteria), *(_share(x, r.cases) for x in counts))
        rows.append(f"<tr><td>{_t(model.label)}</td>{_cells(cells)}</tr>\n")
    names = ("criteria ungraded", "cases partly graded", "unanswered", "truncated", "refused", "unscorable")
    return _section("What is missing", _heads(("model",)) + _heads(names, _NUMBER), rows)


def _axes(table: ScoreTable) -> str:
    axes = sorted({a.axis for model in table.models for a in model.axes})
    if not axes:
        return ""
    rows = []
    for model in table.models:
        found = {a.axis: _share(a.errors, a.n) for a in model.axes}
        cells = _cells(found.get(axis, "–") for axis in axes)
        rows.append(f"<tr><td>{_t(model.label)}</td>{cells}</tr>\n")
    caption = "A positive criterion unmet or a negative one met, of the graded"
    return _section("Errors by axis", _heads(("model",)) + _heads(axes, _NUMBER), rows, caption)


def _slices(table: ScoreTable, kind: str) -> str:
    found = [
        (s.value, place, model.label, s.estimate)
        for place, model in enumerate(table.models)
        for s in model.slices
        if s.kind == kind
    ]
    if not found:
        return ""
    rows = [
        f"<tr{_few(estimate)}><td>{_t(value)}</td><td>{_t(label)}</td>"
        f"<td>{_bar(estimate)}</td>{_figures(estimate)}</tr>\n"
        for value, _, label, estimate in sorted(found, key=lambda row: row[:2])
    ]
    return _section(f"By {kind}", _heads((kind, "model", "")) + _FIGURE_HEADS, rows)


def _cases(table: ScoreTable, most: int) -> str:
    by_case: dict[str, list[tuple[ModelScore, CaseScore]]] = {}
    for model in table.models:
        for score in model.cases:
            by_case.setdefault(score.case.case_id, []).append((model, score))
    shown = sorted(by_case)[:most]
    left = len(by_case) - len(shown)
    note = f'<p class="soft">{left} more cases are not shown here.</p>\n' if left else ""
    return f"<h2>Cases</h2>\n{note}" + "".join(_case(case_id, by_case[case_id]) for case_id in shown)


def _case(case_id: str, scores: list[tuple[ModelScore, CaseScore]]) -> str:
    case = scores[0][1].case
    about = " · ".join(_t(x) for x in (case.month, case.language, case.specialty, case.theme, case.source) if x)
    marks = ", ".join(f"{_t(model.label)} {_mark(score)}" for model, score in scores)
    lang = "zh" if case.language == "zh" else "en"
    answers = "".join(_answer(model, score, lang) for model, score in scores)
    return (
        f'<details id="case-{_t(case_id)}"><summary><strong>{_t(case_id)}</strong> '
        f'<span class="soft">{about}</span> '
        f'{marks}</summary>\n<div lang="{lang}"><h3>Narrative</h3><p class="text">{_t(case.narrative)}</p>'
        f'<h3>Question</h3><p class="text">{_t(case.query)}</p><h3>Physicians\' advice</h3>'
        f'<p class="text">{_t(case.advice)}</p></div>\n{answers}</details>\n'
    )


def _mark(score: CaseScore) -> str:
    if score.state is CaseState.SCORED:
        return _f(score.score)
    if score.state is CaseState.PARTLY_GRADED:
        return f'<span class="open">{score.ungraded} ungraded, {_f(score.low)} to {_f(score.high)}</span>'
    return f'<span class="open">{score.state.value}</span>'


def _answer(model: ModelScore, score: CaseScore, lang: str) -> str:
    answer = model.run.answers.get(score.case.case_id)
    if answer is None:
        said = '<p class="open">no answer on record</p>'
    elif not answer.gradable:
        said = f'<p class="open">{answer.state.value}: {_t(answer.reason or answer.finish_reason)}</p>'
    else:
        state = "" if answer.state.value == "ok" else f' <span class="open">{answer.state.value}</span>'
        said = f'{state}<p class="text" lang="{lang}">{_t(answer.response)}</p>'
    grades = model.run.grades.get(score.case.case_id, {})
    rows = "".join(_criterion(c, grades.get(c.id), lang) for c in score.case.criteria)
    return (
        f'<h3>{_t(model.label)}: {_mark(score)}</h3>{said}\n<div class="scroll"><table><thead><tr>'
        '<th class="n">points</th><th>axis</th><th>criterion</th><th>verdict</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>\n"
    )


def _criterion(criterion: EvaluationCriterion, grade: Grade | None, lang: str) -> str:
    if grade is None:
        verdict = '<span class="open">not graded</span>'
    elif grade.met is None:
        verdict = f'<span class="open">ungraded</span> <span class="soft">{_t(grade.reason)}</span>'
    else:
        wrong = grade.met is (criterion.points < 0)
        name = "error" if wrong else "met" if grade.met else "unmet"
        quote = f' <q lang="{lang}">{_t(grade.quote)}</q>' if grade.quote else ""
        why = f'<br><span class="soft" lang="{lang}">{_t(grade.reasoning)}</span>' if grade.reasoning else ""
        verdict = f'<span class="{name}">{"met" if grade.met else "not met"}</span>{quote}{why}'
    return (
        f'<tr><td class="n">{criterion.points:+g}</td><td>{_t(criterion.axis or "–")}</td>'
        f'<td lang="{lang}">{_t(criterion.criterion)}</td><td>{verdict}</td></tr>\n'
    )
