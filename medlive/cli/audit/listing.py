"""How `medlive thread list` and `case list` are asked and answer: which rows, of which time, in which form."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

from typer import Option

from medlive.cli.options import JsonOption
from medlive.cli.output import (
    echo_lines,
    print_json,
    print_table,
    say,
    with_session,
)
from medlive.clock import parse_moment
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.db.audit.listing import Counts, Filter, Listing, Page
    from medlive.db.audit.threads import CaseItem, ThreadItem
    from medlive.db.session import Session

R = TypeVar("R", bound="ThreadItem | CaseItem")
_Several = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where what is listed stands."""

    stage: Annotated[
        _Several,
        Option(
            help="filters, screener, validator, controller, rubric or case; repeatable."
        ),
    ] = None
    outcome: Annotated[
        _Several, Option(help="pending, rejected, failed, held or kept; repeatable.")
    ] = None
    reason: Annotated[
        _Several, Option(help="Why it was rejected, held or failed; repeatable.")
    ] = None
    status: Annotated[
        _Several,
        Option(help="The case's: ready, held, rejected or withdrawn; repeatable."),
    ] = None
    source: Annotated[_Several, Option(help="The community; repeatable.")] = None
    language: Annotated[_Several, Option(help="en or zh; repeatable.")] = None
    specialty: Annotated[_Several, Option(help="The case's specialty; repeatable.")] = (
        None
    )
    engine: Annotated[_Several, Option(help="The screener's model; repeatable.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Of which time, and with which words."""

    week: Annotated[
        _Several,
        Option(help="Decided in this ISO week: 2026.W47, this or last; repeatable."),
    ] = None
    since: Annotated[
        str | None, Option(metavar="DATE", help="Decided on this day or later.")
    ] = None
    until: Annotated[
        str | None, Option(metavar="DATE", help="Decided before this day.")
    ] = None
    text: Annotated[str, Option(help="Words that the thread or its case has.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How much is shown, and how."""

    sort: Annotated[str, Option(help="changed (when it was decided) or posted.")] = (
        "changed"
    )
    ascending: Annotated[bool, Option("--ascending", help="The oldest first.")] = False
    limit: Annotated[int, Option(min=1, max=1000, help="Rows on a page.")] = 50
    after: Annotated[
        str | None, Option(metavar="KEY", help="The page behind this key.")
    ] = None
    before: Annotated[
        str | None, Option(metavar="KEY", help="The page before this key.")
    ] = None
    counts: Annotated[
        bool,
        Option("--counts", help="Count what the filter finds, by each facet, instead."),
    ] = False
    as_csv: Annotated[
        bool, Option("--csv", help="Print every row that the filter finds as CSV.")
    ] = False
    as_json: JsonOption = False


def print_list(
    listing: "Listing[R]",
    places: Places,
    window: Window,
    view: View,
    names: Sequence[str],
) -> None:
    """Print what a filter finds in the form that is asked for; `names`: the columns that people see."""
    from medlive.db.audit.listing import Filter
    from medlive.service.audit import parse_week

    given = {name: tuple(values) for name, values in asdict(places).items() if values}
    if window.week:
        given["week"] = tuple(map(parse_week, window.week))
    where = Filter(given, _moment(window.since), _moment(window.until), window.text)
    if view.as_csv:
        with_session(lambda session: _print_csv(session, listing, where, view))
    elif view.counts:
        _print_counts(
            with_session(lambda session: _count(session, listing, where)), view.as_json
        )
    else:
        _print_page(
            with_session(lambda session: _load(session, listing, where, view)),
            view.as_json,
            names,
        )


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a date such as 2026-11-22") from None


async def _count(
    session: "Session", listing: "Listing[R]", where: "Filter"
) -> "Counts":
    from medlive.db.audit.listing import count_rows

    return await count_rows(session, listing, where)


async def _load(
    session: "Session", listing: "Listing[R]", where: "Filter", view: View
) -> "Page[R]":
    from medlive.db.audit.listing import load_page

    return await load_page(
        session,
        listing,
        where,
        sort=view.sort,
        descending=not view.ascending,
        after=view.after,
        before=view.before,
        size=view.limit,
    )


async def _print_csv(
    session: "Session", listing: "Listing[R]", where: "Filter", view: View
) -> None:
    from medlive.db.audit.listing import stream_rows
    from medlive.service.audit import stream_csv

    rows = stream_rows(
        session, listing, where, sort=view.sort, descending=not view.ascending
    )
    async for line in stream_csv(rows, listing.row):
        echo_lines(line)


def _print_page(page: "Page[R]", as_json: bool, names: Sequence[str]) -> None:
    from medlive.service.audit import without_identifiers

    rows = without_identifiers(page.rows)
    if as_json:
        print_json(
            {
                "rows": [asdict(row) for row in rows],
                "before": page.before,
                "after": page.after,
            }
        )
        return
    shown = []
    for row in rows:
        shown.append([_short(getattr(row, name)) for name in names])
    print_table([name.replace("_", " ") for name in names], shown)
    if not rows:
        say("nothing matches; --counts says what there is")
    for option in ("before", "after"):
        if key := getattr(page, option):
            say(f"more: --{option} '{key}'")


def _short(value: object) -> object:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return "\n".join(value) if isinstance(value, tuple) else value


def _print_counts(counts: "Counts", as_json: bool) -> None:
    if as_json:
        print_json(asdict(counts))
        return
    rows = [
        [facet, value or "–", n]
        for facet, values in counts.facets.items()
        for value, n in values.items()
    ]
    print_table(
        ["facet", "value", "rows"],
        rows,
        title=f"{counts.total}{'+' * counts.capped} rows",
    )
