"""How `medlive thread list` and `case list` are asked and answer: which rows, of which time, in which form."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    Grid,
    Result,
    echo_lines,
    show_result,
    table_of,
    with_session,
)
from medlive.clock import parse_moment
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.db.audit.listing import Counts, Filter, Listing, RowPage
    from medlive.db.session import Session

_Several = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where what is listed stands.

    Attributes:
        stage: filters, screener, validator, controller, rubric or case; repeatable.
        outcome: pending, rejected, parked, failed, held or kept; repeatable.
        reason: Why it was rejected, held or failed; repeatable.
        status: The case's: ready, held, rejected or withdrawn; repeatable.
        source: The community; repeatable.
        language: en or zh; repeatable.
        specialty: The case's specialty; repeatable.
        engine: The screener's model; repeatable.
    """

    stage: _Several = None
    outcome: _Several = None
    reason: _Several = None
    status: _Several = None
    source: _Several = None
    language: _Several = None
    specialty: _Several = None
    engine: _Several = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Of which time, and with which words.

    Attributes:
        week: Decided in this ISO week: 2026.W47, this or last; repeatable.
        since: Decided on this day or later.
        until: Decided before this day.
        text: Words that the thread or its case has.
    """

    week: _Several = None
    since: Annotated[str | None, Option(metavar="DATE")] = None
    until: Annotated[str | None, Option(metavar="DATE")] = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How much is shown, and how.

    Attributes:
        sort: changed (when it was decided) or posted.
        ascending: The oldest first.
        limit: Rows on a page.
        after: The page behind this key.
        before: The page before this key.
        counts: Count what the filter finds, by each facet, instead.
        as_csv: Print every row that the filter finds as CSV.
    """

    sort: str = "changed"
    ascending: bool = False
    limit: Annotated[int, Option(min=1, max=1000)] = 50
    after: Annotated[str | None, Option(metavar="KEY")] = None
    before: Annotated[str | None, Option(metavar="KEY")] = None
    counts: bool = False
    as_csv: Annotated[bool, Option("--csv")] = False
    as_json: JsonOption = False


def print_list(
    listing: "Listing",
    places: Places,
    window: Window,
    view: View,
    names: Sequence[str],
) -> None:
    """Print what a filter finds in the form that is asked for; `names`: the columns that people see."""
    from medlive.db.audit.listing import Filter, count_rows, load_page
    from medlive.db.iso_weeks import parse_week

    facets = {name: tuple(values) for name, values in asdict(places).items() if values}
    if window.week:
        facets["week"] = tuple(map(parse_week, window.week))
    where = Filter(facets, _moment(window.since), _moment(window.until), window.text)
    if view.as_csv:
        with_session(_print_csv, listing, where, view)
        return
    if view.counts:
        counts = with_session(count_rows, listing, where)
        result = _describe_counts(counts)
    else:
        page = with_session(
            lambda session: load_page(
                session,
                listing,
                where,
                sort=view.sort,
                descending=not view.ascending,
                after=view.after,
                before=view.before,
                size=view.limit,
            )
        )
        result = _describe_page(page, names)
    show_result(result, view.as_json)


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a date such as 2026-11-22") from None


async def _print_csv(
    session: "Session",
    listing: "Listing",
    where: "Filter",
    view: View,
) -> None:
    from medlive.db.audit.listing import stream_rows
    from medlive.service.listings import stream_csv

    rows = stream_rows(
        session, listing, where, sort=view.sort, descending=not view.ascending
    )
    async for line in stream_csv(rows, listing):
        echo_lines(line)


def _describe_page(page: "RowPage", names: Sequence[str]) -> Result:
    from medlive.service.listings import without_identifiers

    rows = list(map(vars, without_identifiers(page.rows)))
    notes = []
    if not rows:
        notes.append("nothing matches; --counts says what there is")
    for option, key in {"before": page.before, "after": page.after}.items():
        if key:
            notes.append(f"more: --{option} '{key}'")
    value = {"rows": rows, "before": page.before, "after": page.after}
    return Result(value, [table_of(rows, names)], notes)


def _describe_counts(counts: "Counts") -> Result:
    rows = []
    for facet, values in counts.facets.items():
        for value, n in values.items():
            rows.append([facet, value or None, n])
    title = f"{counts.total}{'+' * counts.capped} rows"
    return Result(asdict(counts), [Grid(["facet", "value", "rows"], rows, title)])
