"""`medlive case list`; and the filters, pages and CSV that `case list` and `thread list` share (`list_rows`)."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated

from typer import Option

from medlive.cli.options import MomentOption, Several, option_group
from medlive.cli.output import Result, echo_lines, table_of, with_session
from medlive.clock import parse_week
from medlive.db.audit.listing import Filter, Listing, load_page, stream_rows
from medlive.db.audit.tables import CASES
from medlive.db.curation.cases import list_overruled
from medlive.db.session import Session
from medlive.errors import UsageError
from medlive.service.listings import stream_csv, without_identifiers

_COLUMNS = (
    "case_id",
    "status",
    "source",
    "language",
    "specialty",
    "theme",
    "changed_at",
    "query",
)


@option_group
class Listed:
    """The options of `case list` and `thread list`: filters, the page, and CSV instead of a table.

    Attributes:
        stage: filters, screener, validator, controller, rubric or case; repeatable.
        outcome: pending, rejected, parked, failed, held or kept; repeatable.
        reason: Why it was rejected, held or failed; repeatable.
        status: The case's status: ready, held, rejected or withdrawn; repeatable.
        source: The community; repeatable.
        language: en or zh; repeatable.
        specialty: The case's specialty; repeatable.
        engine: The screener's model; repeatable.
        week: Decided in this ISO week: 2026.W47, this or last; repeatable.
        since: Decided on this day or later.
        until: Decided before this day.
        text: Words that the thread or its case has.
        limit: Rows on a page.
        after: Show the page after this key, which the page before prints.
        csv: Print every row that the filter finds as CSV.
    """

    stage: Several = None
    outcome: Several = None
    reason: Several = None
    status: Several = None
    source: Several = None
    language: Several = None
    specialty: Several = None
    engine: Several = None
    week: Annotated[Several, Option(parser=parse_week, metavar="WEEK")] = None
    since: MomentOption = None
    until: MomentOption = None
    text: str = ""
    limit: Annotated[int, Option(min=1, max=1000)] = 50
    after: str | None = None
    csv: bool = False


def list_rows(
    listing: Listing,
    which: Listed,
    names: Sequence[str],
) -> Result | None:
    """Return a page of the rows that the filter finds; with --csv print all rows instead, and return None.

    `names`: the columns of the page's table; --json and --csv have all columns.
    """
    facets = {}
    for field in fields(which):
        # The repeatable options, and they alone, are the listing's facets.
        if isinstance(values := getattr(which, field.name), list):
            facets[field.name] = tuple(values)
    where = Filter(facets, which.since, which.until, which.text)

    async def print_csv(session: Session) -> None:
        rows = stream_rows(session, listing, where)
        async for line in stream_csv(rows, listing):
            echo_lines(line)

    if which.csv:
        with_session(print_csv)
        return None
    page = with_session(load_page, listing, where, after=which.after, size=which.limit)
    rows = without_identifiers(page.rows)
    notes = []
    if not rows:
        notes.append("nothing matches")
    if page.after:
        notes.append(f"more: --after '{page.after}'")
    return Result(
        {"rows": rows, "after": page.after},
        [table_of(rows, names)],
        notes,
    )


def list_(which: Listed, overruled: bool = False) -> Result | None:
    """List cases, the latest decision first.

    Args:
        overruled: Only cases with a confirmed veto that people overruled, with the reasons; takes no other filter.
    """
    if overruled:
        if which != Listed():
            raise UsageError("--overruled lists all such cases: no filter beside it")
        rows = with_session(list_overruled)
        names = ("case_id", "revision", "status", "query", "overruled")
        return Result({"rows": rows}, [table_of(rows, names)])
    return list_rows(CASES, which, _COLUMNS)
