"""How far the grader agrees with people (LiveMedBench, Table 2), as `medlive eval meta` measured it."""

from typing import Final

from markupsafe import Markup

from medlive.report.html import Row, Section, around, f, missing, p_said, soft, table
from medlive.report.meta import Measure, MetaFile
from medlive.report.model import Report

_TITLE: Final = "Reliability of the grader"
_LACKING: Final = (
    "The grader was not held against people. Run medlive eval meta RUN --human FILE --out DIR, and give "
    "DIR/meta.json to this report with --meta."
)


def reliability(report: Report) -> Section:
    """The section: a table for each file that was given."""
    if not report.metas:
        return Section("reliability", _TITLE, [missing(_LACKING)])
    return Section("reliability", _TITLE, [_one(meta) for meta in report.metas])


def _one(meta: MetaFile) -> Markup:
    rows = []
    if (c := meta.criteria) is not None:
        rows.append(_row("people among themselves", c.people_macro_f1, c.people_ac1, None))
    rubric = next((one for one in meta.cases if one.method == "rubric"), None)
    found = meta.criteria
    rows.append(
        _row(
            f"rubric grader: {meta.grader.name}",
            found.grader_macro_f1 if found else None,
            found.grader_ac1 if found else None,
            rubric.pearson if rubric else None,
        )
    )
    rows += [
        _row(f"{one.method} judge: {one.judge}", None, None, one.pearson)
        for one in meta.cases
        if one is not rubric
    ]
    people = meta.human.file if meta.human else "none"
    heads = ("method", "*macro-F1", "*AC1", "*Pearson with people", "*p")
    caption = (
        f"Agreement by criterion and by case, with 95 % interval and n; model {meta.run.model}, cases "
        f"{meta.run.cases}, people's verdicts {people}"
    )
    said = [*_beside(meta), *meta.notes]
    if meta.grader.engine == "rules":
        said.append("Graded by the rules engine, which makes no clinical judgement: not publishable.")
    return Markup().join([table(caption, heads, rows), *map(soft, said)])


def _row(name: str, f1: Measure | None, ac1: Measure | None, pearson: Measure | None) -> Row:
    p = p_said(None if pearson is None else pearson.p)
    return Row([name, _said(f1), _said(ac1), _said(pearson), p])


def _said(measure: Measure | None) -> str:
    if measure is None:
        return "–"
    if measure.value is None:
        return f"– ({measure.why})" if measure.why else "–"
    return f"{f(measure.value)} ({around(measure.low, measure.high)}), n={measure.n}"


def _beside(meta: MetaFile) -> list[str]:
    said = []
    found = meta.criteria
    if found is not None and (by := found.by_case) is not None and by.below.value is not None:
        said.append(f"Macro-F1 is under {by.threshold:g} in {100 * by.below.value:.1f} % of {by.below.n} cases.")
    if found is not None and (s := found.strictness) is not None:
        said.append(
            f"Criteria called met: grader {_said(s.grader)}, people {_said(s.people)}, grader less people "
            f"{_said(s.difference)}."
        )
    return said
