"""Root causes of each model's lowest scores (LiveMedBench, Table 11)."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from medlive.evaluation.audit import AuditTable, RootCause
from medlive.report.cases import file_name
from medlive.report.html import Row, Section, Under, lang_of, link, missing, percent, quoted, shut, soft, table
from medlive.report.model import A_PART, Report

EXAMPLES: Final = 2
"""Findings quoted of each model and cause."""
_TITLE: Final = "Root causes"
_LACKING: Final = (
    "No run's lowest-scoring cases were audited for their root causes. Run medlive eval audit RUN with a model "
    "that audits, then make the report again."
)


def causes(report: Report) -> Section:
    """The section: counts by cause and model, examples, and who audited."""
    if not report.audits:
        return Section("causes", _TITLE, [missing(_LACKING)])
    every = list(report.audits)
    tables = [_counts(report, every[start : start + A_PART]) for start in range(0, len(every), A_PART)]
    about = [_about(label, audit) for label, audit in report.audits.items()]
    return Section("causes", _TITLE, [*tables, *about, _examples(report)])


def _counts(report: Report, labels: Sequence[str]) -> Markup:
    rows = []
    for cause in RootCause:
        rows.append(Row([cause.label, *(_share(report.audits[label], cause) for label in labels)]))
    heads = ("cause", *(f"*{label} (n={report.audits[label].audited})" for label in labels))
    caption = (
        "Of each model's lowest-scoring cases, those that were audited, by root cause; a census of the lowest, so "
        f"n and no interval. Paper metric; cases {report.cases_named}; grader {report.graders_named}"
    )
    return table(caption, heads, rows)


def _share(audit: AuditTable, cause: RootCause) -> Under:
    n = len(audit.of(cause))
    share = f"{100 * n / audit.audited:.0f} %" if audit.audited else "–"
    return Under(share, f"{n} of {audit.audited}")


def _about(label: str, audit: AuditTable) -> Markup:
    auditor, bottom = audit.auditor, audit.bottom
    who = "" if auditor is None else f"audited by {auditor.model}"
    if not audit.clinical:
        who += ", the rules engine: no clinical judgement, not publishable"
    why = "".join(f"; {n} {reason}" for reason, n in audit.reasons.items())
    return soft(
        f"{label}: {who}; {audit.audited} audited of {len(bottom.candidates)} with an error among the "
        f"{bottom.asked} lowest of {bottom.scored} scored cases; {len(bottom.without_error)} of these "
        f"held no error{why}."
    )


def _examples(report: Report) -> Markup:
    rows = []
    langs = {score.case.case_id: lang_of(score.case) for model in report.models for score in model.cases}
    for label, audit in report.audits.items():
        for cause in RootCause:
            for found in audit.of(cause)[:EXAMPLES]:
                case = found.case_id
                name = link(f"cases/{file_name(case)}", case) if report.case_pages else case
                said = quoted(langs.get(case, "en"), found.quote[:300], found.reasoning[:600])
                rows.append(Row([label, cause.label, name, percent(found.score), said]))
    heads = ("model", "cause", "case", "*score, %", "~the answer's words, and why")
    if not rows:
        return Markup()
    title = f"The lowest {EXAMPLES} cases of each model and cause"
    return shut(f"{title}: {len(rows)} examples", table(title, heads, rows))
