"""What is missing from a score: ungraded, unanswered, truncated, refused; and what was withdrawn since."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from medlive.evaluation.scoring.errata import ErrataMode, RunErrata
from medlive.report.html import Row, Section, share_cell, soft, table
from medlive.report.model import Report

MOST_NAMED: Final = 10
"""Withdrawn cases or criteria of a run that a cell names; of more it says how many."""
_DONE: Final = {
    ErrataMode.WARN: "is scored all the same; --errata apply leaves it out",
    ErrataMode.APPLY: "is left out of every score here",
    ErrataMode.IGNORE: "is scored all the same, as --errata ignore asks",
}


def rates(report: Report) -> Section:
    """The section."""
    rows = []
    for model in report.models:
        r = model.rates
        counts = (r.partly_graded, r.unanswered, r.truncated, r.refused, r.unscorable)
        shares = [share_cell(r.ungraded, r.criteria), *(share_cell(x, r.cases) for x in counts)]
        rows.append(Row([model.label, *shares]))
    heads = (
        "model",
        "*criteria ungraded",
        "*cases partly graded",
        "*unanswered",
        "*truncated",
        "*refused",
        "*unscorable",
    )
    caption = f"Ungraded is not zero and unanswered is no score: both are counted here; {report.said}"
    parts = [table(caption, heads, rows), _coverage(report), _errata(report)]
    return Section("missing", "What is missing", parts)


def _coverage(report: Report) -> Markup:
    """Which cases some models lack: a ranking over differing cases is none."""
    differing = [c for c in report.table.coverage if c.missing]
    if not differing:
        return Markup()
    rows = []
    for one in differing:
        some = ", ".join(one.missing[:5]) + (" …" if len(one.missing) > 5 else "")
        rows.append(Row([one.label, one.cases, one.scored, len(one.missing), some]))
    caption = (
        f"Models are scored on differing cases; {report.table.common} are scored for all, and --cases common "
        "takes those alone"
    )
    return table(caption, ("model", "*cases", "*scored", "*scored for others only", "~such as"), rows)


def _errata(report: Report) -> Markup:
    errata = report.table.errata
    if errata is None:
        return soft("Errata were not looked for: what was withdrawn since the snapshots is not known here.")
    runs = list(zip(report.table.labels, errata.runs, strict=True))
    looked = sorted({_looked_in(run) for _, run in runs})
    said = soft(f"Errata: {'; '.join(looked)}.")
    if not any(run.concerned or run.found.problem for _, run in runs):
        return said
    rows = [Row([label, *_withdrawn(run)]) for label, run in runs]
    heads = ("model", "~cases withdrawn", "~criteria withdrawn", "~cannot be told")
    return said + table(f"Errata: what was withdrawn since {_DONE[errata.mode]}", heads, rows)


def _looked_in(run: RunErrata) -> str:
    found = run.found
    if found.path is None:
        return f"none are at hand for {run.version}, so that nothing of it is known to be withdrawn"
    if found.problem:
        return f"{found.path.name} of {run.version} could not be read"
    checked = f"its signature checked with key {found.key}" if found.key else "its signature not checked"
    what = "withdraws some of what these runs hold" if run.concerned else "withdraws nothing that these runs hold"
    return f"{found.path.name} of {run.version} {what} ({found.digest}; {checked})"


def _withdrawn(run: RunErrata) -> tuple[str, str, str]:
    unclear = [run.found.problem] if run.found.problem else []
    unclear += [f"{case}: which of its criteria" for case in run.unclear]
    return _some(run.cases), _some([f"{case} {criterion}" for case, criterion in run.criteria]), _some(unclear)


def _some(found: Sequence[str]) -> str:
    more = len(found) - MOST_NAMED
    return (", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")) or "–"
