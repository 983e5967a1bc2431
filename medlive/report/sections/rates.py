"""What is missing from a score: ungraded, unanswered, truncated, refused; and what was withdrawn since."""

from medlive.report.html import head_cell, number_cells, section, share, soft, table, wide_cells
from medlive.report.model import Report


def rates(report: Report) -> str:
    """The section."""
    rows = []
    for model in report.models:
        r = model.rates
        counts = (r.partly_graded, r.unanswered, r.truncated, r.refused, r.unscorable)
        values = (share(r.ungraded, r.criteria), *(share(x, r.cases) for x in counts))
        rows.append(f"<tr>{head_cell(model.label)}{number_cells(values)}</tr>\n")
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
    return section("missing", "What is missing", table(caption, heads, rows), _coverage(report), _errata(report))


def _coverage(report: Report) -> str:
    """Which cases some models lack: a ranking over differing cases is none."""
    differing = [c for c in report.table.coverage if c.lacking]
    if not differing:
        return ""
    rows = []
    for one in differing:
        some = ", ".join(one.lacking[:5]) + (" …" if len(one.lacking) > 5 else "")
        figures = number_cells((str(one.cases), str(one.scored), str(len(one.lacking))))
        rows.append(f"<tr>{head_cell(one.label)}{figures}{wide_cells((some,))}</tr>\n")
    caption = (
        f"Models are scored on differing cases; {report.table.common} are scored for all, and --cases common "
        "takes those alone"
    )
    return table(caption, ("model", "*cases", "*scored", "*scored for others only", "such as"), rows)


def _errata(report: Report) -> str:
    errata = report.table.errata
    if errata is None:
        return soft("Errata were not looked for: what was withdrawn since the snapshots is not known here.")
    found = [run.row() for run in errata.runs]
    # What no run has anything of, such as signatures where there are no errata, needs no column.
    names = [name for name in (found[0] if found else {}) if any(_plain(row[name]) != "–" for row in found)]
    rows = [
        f"<tr>{head_cell(label)}{wide_cells(_plain(row[name]) for name in names)}</tr>\n"
        for label, row in zip(report.table.labels, found, strict=True)
    ]
    return table(f"Errata: {errata.mode.value}", ("model", *(name.replace("_", " ") for name in names)), rows)


def _plain(value: object) -> str:
    if value is None or value == [] or value == {}:
        return "–"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(str(x) for x in value[:10])
        return shown + (f" and {len(value) - 10} more" if len(value) > 10 else "")
    return str(value)
