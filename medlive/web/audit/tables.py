"""How each table is shown (`Table`: columns, links, what an empty one says), and which of its rows an address asks for
(`State`: filter, sort and place)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams

from medlive.clock import parse_moment, parse_week
from medlive.db.audit.listing import Filter, Listing
from medlive.db.audit.tables import LISTINGS
from medlive.errors import UsageError
from medlive.guard.bounds import SEARCH_CHARS
from medlive.web.pages import quote_path


@dataclass(frozen=True)
class Table:
    """A table page; the first column leads to the row's own page, and holds what is long."""

    title: str
    about: str
    columns: tuple[str, ...]
    # Columns that are shown below the first one's value, where they are not empty
    more: tuple[str, ...]
    link: Callable[[Any], str | None]  # Path of a row's own page; None: there is none
    empty: str  # The commands that fill the table, shown while it is empty


def _thread(row: Any) -> str | None:
    """The path of the page of a row's thread; None: the row has no thread."""
    if row.thread_id is None:
        return None
    return quote_path(f"/audit/threads/{row.source}/{row.thread_id}")


TABLES = {
    "threads": Table(
        "Threads",
        "Every thread by where it stands, with what its advice was contradicted by.",
        ("title", "source", "outcome", "stage", "reason", "changed_at"),
        ("detail", "evidence"),
        _thread,
        "medlive harvest, or medlive import FILE",
    ),
    "cases": Table(
        "Cases",
        "The latest revision of every case.",
        ("query", "status", "specialty", "theme", "source", "revision", "changed_at"),
        ("status_reason",),
        lambda row: f"/audit/cases/{quote(row.case_id)}",
        "medlive curate",
    ),
    "calls": Table(
        "Agent calls",
        "What engines were asked for the decisions that stand, and what they replied.",
        (
            "task",
            "outcome",
            "model",
            "input_tokens",
            "output_tokens",
            "cost_usd",
            "latency_ms",
            "thread_id",
            "decided_at",
        ),
        ("problem", "reply"),
        lambda row: f"{_thread(row)}#call-{row.position}",
        "medlive curate",
    ),
    "claims": Table(
        "Claims",
        "Each advice as it was judged, and the words of the passages that it was judged by.",
        (
            "claim",
            "verdict",
            "subject",
            "second",
            "outcome",
            "source",
            "thread_id",
            "decided_at",
        ),
        ("reason", "second_reason", "evidence"),
        lambda row: f"{_thread(row)}#advice-{row.element_id}",
        "medlive curate",
    ),
    "runs": Table(
        "Harvest runs",
        "Each source's weekly harvests.",
        ("iso_week", "source", "outcome", "started_at", "finished_at", "starts"),
        ("problem", "counts"),
        lambda row: f"/audit/pages?{urlencode({'run_id': row.id})}",
        "medlive harvest",
    ),
    "pages": Table(
        "Pages",
        "Every page that was asked for.",
        ("url", "source", "kind", "status", "fetched_at", "elapsed_ms", "page_number"),
        ("error",),
        _thread,
        "medlive harvest",
    ),
}
"""Every table, by its name in addresses."""

# Fields of an address
TABLE = "table"
_TIMES = ("since", "until")
_ORDER = ("sort", "order")


@dataclass(frozen=True)
class State:
    """What an address asks for: a table's name, filter and place; `at`: the key of the row that led to a row's page."""

    table: str
    where: Filter
    fields: tuple[tuple[str, str], ...]  # The filter, as the fields of an address
    after: str | None = None
    before: str | None = None
    at: str | None = None

    @classmethod
    def parse(cls, table: str, query: QueryParams) -> "State":
        """Read an address; unknown fields are ignored. Raises UsageError for a wrong date, week or sort."""
        listing = LISTINGS[table]
        facets: dict[str, tuple[str, ...]] = {}
        fields: list[tuple[str, str]] = []
        for name in listing.facets:
            if name in query:
                values = query.getlist(name)
                if name == "week":
                    values = list(map(parse_week, values))
                facets[name] = tuple(dict.fromkeys(values))
                fields += [(name, value) for value in facets[name]]
        for name in (*_TIMES, "text", *_ORDER):
            if value := query.get(name):
                fields.append((name, value))
        times = {}
        for name in _TIMES:
            if text := query.get(name):
                try:
                    times[name] = parse_moment(text).astimezone(UTC)
                except (ValueError, OverflowError):
                    raise UsageError(
                        f"{text!r:.50} is not a date such as 2026-11-22"
                    ) from None
        where = Filter(
            facets,
            **times,
            text=query.get("text", "").strip()[:SEARCH_CHARS],
            sort=query.get("sort", ""),
            descending=query.get("order") != "asc",
        )
        listing.order(where.sort)
        places = {name: query.get(name) for name in ("after", "before", "at")}
        return cls(table, where, tuple(fields), **places)

    @property
    def listing(self) -> Listing:
        """The table's query, columns and sorts in the database."""
        return LISTINGS[self.table]

    @property
    def sorted_by(self) -> str:
        """The sort's name."""
        return self.where.sort or next(iter(self.listing.sorts))

    def query(self, **more: str | None) -> str:
        """The address's query, with more fields; empty for the whole table."""
        further = [(name, value) for name, value in more.items() if value is not None]
        return urlencode([*self.fields, *further])

    def page(self, **more: str | None) -> str:
        """The address of the table page."""
        return f"/audit/{self.table}?{self.query(**more)}".rstrip("?")

    def toggled(self, facet: str, value: str) -> str:
        """The address of the page with a value of a facet taken into the filter, or out of it."""
        fields = [field for field in self.fields if field != (facet, value)]
        if len(fields) == len(self.fields):
            fields.append((facet, value))
        return replace(self, fields=tuple(fields)).page()

    def resorted(self, sort: str) -> str:
        """The address of the page by another sort, or by this one the other way round."""
        turned = self.sorted_by == sort and self.where.descending
        kept = [field for field in self.fields if field[0] not in _ORDER]
        order = "asc" if turned else None
        return replace(self, fields=tuple(kept)).page(sort=sort, order=order)
