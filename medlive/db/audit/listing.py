"""Lists of database rows that can be filtered, searched, sorted and paged.

`Listing` describes a list, `Filter` what is wanted of it; `load_page`, `stream_rows` and `count_rows` read it.
"""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType, SimpleNamespace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Text,
    and_,
    cast,
    func,
    literal,
    or_,
    select,
    tuple_,
    type_coerce,
)

from medlive.clock import week_bounds
from medlive.db.session import Session, UnusableValue
from medlive.db.tables.base import EnumText
from medlive.db.tables.work import ThreadStandingRow
from medlive.errors import UsageError
from medlive.guard.bounds import CURSOR_CHARS

Columns = Mapping[str, Any]  # Name → SQL expression
Rows = Select[*tuple[Any, ...]]

MOST_COUNTED = 2_000
"""At most this many rows are counted one by one; where there are more, counts are lower bounds."""
_HAN = re.compile(r"[\u3400-\u9fff]+")  # A run of Chinese characters


@dataclass(frozen=True)
class Filter:
    """Which rows of a list are wanted, and in which order."""

    # Facet (a column to filter and count by) → the values of which a row must have one
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: datetime | None = None  # From this moment on
    until: datetime | None = None  # Before this moment
    text: str = ""  # Words that a row must all have; Chinese characters that follow one another must do so in it
    sort: str = ""  # The name of a sort; empty for the list's first
    descending: bool = True

    @property
    def has_time_or_text(self) -> bool:
        """Whether the filter restricts the moment or the text, not facets alone."""
        return bool(self.since or self.until or self.text)


@dataclass(frozen=True)
class RowPage:
    """A page of rows in their order, and the keys by which `load_page` finds its neighbours."""

    rows: list[SimpleNamespace]  # With the listing's columns
    before: str | None  # The first row's key; None: no page comes before
    after: str | None  # The last row's key; None: no page follows
    keys: tuple[str, ...]  # Of each row


@dataclass(frozen=True)
class Counts:
    """How many rows a filter finds, and how many it would find with each value of a facet, its other facets kept."""

    total: int
    # Facet → value → rows, most first; "" for rows without a value
    facets: dict[str, dict[str, int]]
    capped: bool  # Whether there are more than were counted


def has_words(text: str) -> ColumnElement[bool]:
    """SQL: whether a thread has all words of a text.

    Chinese is searched by pairs of neighbouring characters, as the database's function `medlive_words` indexes it.
    """
    runs = _HAN.findall(text)
    pairs = [run[i : i + 2] for run in runs for i in range(max(len(run) - 1, 1))]
    query: Any = func.plainto_tsquery("english", _HAN.sub(" ", text))
    if pairs:
        quoted = [f"'{pair}'" + ":*" * (len(pair) == 1) for pair in pairs]
        query = query.op("&&")(func.to_tsquery("simple", " & ".join(quoted)))
    matches: ColumnElement[bool] = ThreadStandingRow.words.op("@@")(query)
    return matches


class Listing:
    """A list: the columns it shows, and what it can be filtered, sorted and searched by."""

    def __init__(
        self,
        shown: Iterable[str],
        *tables: Any,
        facets: Iterable[str],
        sorts: Columns,
        key: tuple[Any, ...],
        moment: Any = None,
        search: Callable[[str], ColumnElement[bool]] = has_words,
        joined: Rows | None = None,
        table: Rows | None = None,
        columns: Columns = MappingProxyType({}),
    ) -> None:
        """Find each column and facet in the tables, by its name. Enums are read as stored, number facets as text.

        Args:
            shown: The names of the columns that a page shows.
            tables: Row classes; the first that has a column of the name is taken.
            facets: The names of the facets; a filter may name "week" (YYYY.WNN) too.
            sorts: Name of a sort → what it sorts by, never NULL; the first is the default.
            key: Unique columns, which order rows that a sort leaves equal.
            moment: What a filter's week, since and until are about; None: what the default sort sorts by.
            search: Text → the condition that a row matches it.
            joined: The SELECT that joins the tables; None: there is one table.
            table: The SELECT from the one table that has all facets and sorts; None: there is none. It is filtered,
                sorted and counted alone, and only the rows of a page are joined to the other tables.
            columns: SQL for columns and facets that no table has by their name.
        """

        def find(name: str) -> Any:
            if name in columns:
                return columns[name]
            column = next(getattr(t, name) for t in tables if hasattr(t, name))
            is_enum = isinstance(column.type, EnumText)
            return type_coerce(column, Text) if is_enum else column

        self.moment = next(iter(sorts.values())) if moment is None else moment
        week = func.to_char(self.moment.op("AT TIME ZONE")("UTC"), 'IYYY."W"IW')
        self.query = select().select_from(tables[0]) if joined is None else joined
        self.columns = {name: find(name) for name in shown}
        self.facets: dict[str, Any] = {"week": week}
        for name in facets:
            column = find(name)
            if isinstance(column.type, Integer):
                column = func.coalesce(cast(column, Text), "")
            self.facets[name] = column
        self.sorts, self.key = sorts, key
        self.search, self.table = search, table

    def conditions(
        self, where: Filter, *, without: str = "", week_as_text: bool = False
    ) -> list[Any]:
        """The conditions of a filter, except those of the facet `without`. Raises UsageError for an unknown facet.

        A week is matched by its bounds on the moment, which indexes sort by; with `week_as_text` like other facets.
        """
        conditions: list[Any] = []
        for name, values in where.facets.items():
            if name not in self.facets:
                raise UsageError(f"this table has no {name}")
            if name == without:
                continue
            if name != "week" or week_as_text:
                conditions.append(self.facets[name].in_(values))
                continue
            weeks = []
            for first, end in map(week_bounds, values):
                weeks.append(and_(self.moment >= first, self.moment < end))
            conditions.append(or_(*weeks))
        if where.since is not None:
            conditions.append(self.moment >= where.since)
        if where.until is not None:
            conditions.append(self.moment < where.until)
        if where.text.strip():
            conditions.append(self.search(where.text))
        return conditions

    def order(self, sort: str) -> tuple[Any, ...]:
        """The columns of a sort ("": the default), then the key's. Raises UsageError for an unknown sort."""
        if sort and sort not in self.sorts:
            raise UsageError(
                f"unknown sort {sort[:40]!r}", hint=f"choose {', '.join(self.sorts)}"
            )
        return (self.sorts[sort or next(iter(self.sorts))], *self.key)

    def select(
        self,
        where: Filter,
        order: tuple[Any, ...],
        *beyond: Any,
        descending: bool,
        limit: int | None = None,
    ) -> Rows:
        """The rows of a filter in an order, with their keys; `beyond` are further conditions."""
        columns = [column.label(name) for name, column in self.columns.items()]
        key = func.concat_ws("~", *order).label("key")
        query = self.query.with_only_columns(*columns, key)
        query = query.order_by(*_turn(order, descending))
        conditions = [*self.conditions(where), *beyond]
        if self.table is None or limit is None:
            return query.where(*conditions).limit(limit)
        [own] = self.key
        has_dates = "week" in where.facets or where.since or where.until
        if where.text.strip() or (has_dates and order[0] is not self.moment):
            # Adding nothing to a moment keeps PostgreSQL from following the order's index, in which it may read a
            # million rows before it meets the few that fit: it finds words and dates by their own indexes, and sorts.
            order = (order[0] + timedelta(), *order[1:])
        nearest = self.table.with_only_columns(own).where(*conditions)
        nearest = nearest.order_by(*_turn(order, descending)).limit(limit)
        return query.where(own.in_(nearest))


def _turn(columns: Iterable[Any], descending: bool) -> list[Any]:
    return [column.desc() if descending else column.asc() for column in columns]


def contains(*columns: Any) -> Callable[[str], ColumnElement[bool]]:
    """A `search` for a text anywhere in one of the columns, ignoring case; no index helps it: for small tables."""

    def search(text: str) -> ColumnElement[bool]:
        words = text.strip()
        return or_(*(column.icontains(words, autoescape=True) for column in columns))

    return search


async def load_page(
    session: Session,
    listing: Listing,
    where: Filter,
    *,
    after: str | None = None,
    before: str | None = None,
    size: int = 50,
) -> RowPage:
    """A page of the rows of a filter: the first, the one behind the key `after`, or the one before the key `before`.

    Raises:
        UsageError: for a wrong facet, sort or key.
    """
    order = listing.order(where.sort)
    backwards = before is not None
    down = where.descending != backwards
    beyond = []
    edge = before if backwards else after
    if edge is not None:
        place, here = tuple_(*order), tuple_(*_edge(edge, order))
        beyond.append(place < here if down else place > here)
    query = listing.select(
        where,
        order,
        *beyond,
        descending=down,
        limit=size + 1,
    )
    try:
        rows_read = list((await session.execute(query)).all())
    except UnusableValue as error:
        if edge is None:  # something else of the filter
            raise
        raise UsageError(f"not the key of a row: {edge!r}") from error
    more, rows_read = len(rows_read) > size, rows_read[:size]
    if backwards:
        rows_read.reverse()
    has_before, has_after = (more, True) if backwards else (after is not None, more)
    keys = tuple(row.key for row in rows_read)
    return RowPage(
        rows=[_shown(listing, row) for row in rows_read],
        before=keys[0] if keys and has_before else None,
        after=keys[-1] if keys and has_after else None,
        keys=keys,
    )


def _shown(listing: Listing, row: Any) -> SimpleNamespace:
    """What is shown of a row, without its key."""
    return SimpleNamespace(**{name: getattr(row, name) for name in listing.columns})


async def stream_rows(
    session: Session,
    listing: Listing,
    where: Filter,
) -> AsyncIterator[SimpleNamespace]:
    """Every row of a filter in order, some hundreds in memory at a time."""
    order = listing.order(where.sort)
    query = listing.select(where, order, descending=where.descending)
    async for row in await session.stream(query, execution_options={"yield_per": 500}):
        yield _shown(listing, row)


async def count_rows(session: Session, listing: Listing, where: Filter) -> Counts:
    """How many rows a filter finds, in all and by each facet's values; a facet's counts ignore its own condition.

    All rows are counted if the listing has one `table` with all facets and the filter no time or text; else at most
    `MOST_COUNTED`.
    """
    all_rows = listing.table is not None and not where.has_time_or_text
    # Counted one by one: facets with a condition, and weeks, of which there are too many to combine with the others
    apart = {*where.facets, "week"}
    others = [name for name in listing.facets if name not in apart]
    total, facets = await _count_by(session, listing, where, others, all_rows)
    for name in apart:
        _, own = await _count_by(session, listing, where, [name], all_rows, name)
        facets |= own
    capped = not all_rows and total > MOST_COUNTED
    in_order = {name: facets[name] for name in listing.facets}
    return Counts(MOST_COUNTED if capped else total, in_order, capped)


async def _count_by(
    session: Session,
    listing: Listing,
    where: Filter,
    names: list[str],
    all_rows: bool,
    without: str = "",
) -> tuple[int, dict[str, dict[str, int]]]:
    """How many rows there are, and how many have each value of the facets `names`, most first.

    The filter's condition on the facet `without` is left out. `all_rows` counts without a limit.
    """
    columns = [listing.facets[name].label(name) for name in names]
    source = listing.query if listing.table is None else listing.table
    conditions = listing.conditions(where, without=without, week_as_text=all_rows)
    counted = func.count() if all_rows else literal(1)
    rows = source.with_only_columns(*columns, counted).where(*conditions)
    rows = rows.group_by(*columns) if all_rows else rows.limit(MOST_COUNTED + 1)
    total, counts = 0, {name: Counter[str]() for name in names}
    for *values, n in await session.execute(rows):
        total += n
        for name, value in zip(names, values, strict=True):
            counts[name][value or ""] += n
    facets = {}
    for name, by_value in counts.items():
        most_first = sorted(by_value.items(), key=lambda item: (-item[1], item[0]))
        facets[name] = dict(most_first)
    return total, facets


def _edge(key: str, order: tuple[Any, ...]) -> list[Any]:
    """The values that a row's key was made of, cast to the types of `order`'s columns. Raises UsageError."""
    values = key.split("~")
    if len(key) > CURSOR_CHARS or len(values) != len(order):
        raise UsageError(f"not the key of a row: {key[:80]!r}")
    edge = []
    for value, column in zip(values, order, strict=True):
        edge.append(cast(literal(value, Text()), column.type))
    return edge
