"""Filter, count, search, sort, page and stream the rows of one table, whichever it is."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sqlalchemy import (
    ARRAY,
    ClauseElement,
    ColumnElement,
    DateTime,
    Executable,
    Integer,
    Select,
    Text,
    and_,
    any_,
    bindparam,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from medlive.clock import iso_week, now
from medlive.db.mapping import read, to_stored
from medlive.db.tables.base import EnumText
from medlive.errors import UsageError
from medlive.guard.bounds import CURSOR_CHARS

R = TypeVar("R")
Columns = Mapping[str, Any]  # Name → SQL expression
Rows = Select[*tuple[Any, ...]]

MOST_COUNTED: Final = 2_000
"""Rows that are counted one by one; where there are more, counts are lower bounds."""
WEEKS_COUNTED: Final = 13
_FEW: Final = 50_000  # Rows that are looked through
# Rows with a filter's words that are all sorted; of more, some of the first are likely to be met soon in the order.
_SORTED: Final = 12_000
_WALKED: Final = 20_000  # Rows in an order whose words are read before they are sorted
_NEAR: Final = 1_000  # Rows in an order that are looked at before each week's
# Spelt out, as the conditions of partial indexes are
_EMPTY: Final[Any] = literal_column("''")
_KEY: Final = re.compile(
    r'\[(?:(?:"[^"\\\x00-\x1f]*+"|-?[0-9]{1,19})(?:, ?(?=["0-9-])|(?=\])))*+\]'
)
"""The key of a row: a JSON list of whole numbers and of texts without escapes."""
_HAN: Final = re.compile(r"[\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows of a table are wanted."""

    # Facet → values, any of which will do
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: datetime | None = None  # From this moment on
    until: datetime | None = None  # Before this moment
    text: str = ""  # Words that all occur; of Chinese, characters that stand together


class Matching(NamedTuple):
    """Which rows have the words of a filter."""

    condition: ColumnElement[bool]
    expected: int | None = None  # Rows by PostgreSQL's estimate; None: not many


@dataclass(frozen=True, slots=True)
class Page(Generic[R]):
    """Rows in their order, and the keys of the pages beside them; None where there is none."""

    rows: tuple[R, ...]
    before: str | None
    after: str | None
    keys: tuple[str, ...]  # Of each row


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a filter finds, and how many each value of a facet would, the other facets as they are."""

    total: int
    # Facet → value → rows, most first; "" for rows without a value
    facets: dict[str, dict[str, int]]
    capped: bool  # Whether there are more than were counted


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A table as it is listed."""

    row: type[R]
    query: Rows  # Its joins, without columns
    columns: Columns  # The row type's fields
    facets: Columns  # What its filter may name; "week" (YYYY.WNN) among them
    sorts: Columns  # Never NULL; the first is the default
    key: tuple[Any, ...]  # Unique; decides between rows that a sort leaves equal
    moment: Any  # What week, since and until are about
    search: Callable[[str], ColumnElement[bool]] | None = None
    words: Any = None  # A tsvector that is searched instead, in thread_standings
    counts: Columns = field(default_factory=dict)  # Facets as kept in thread_counts
    count: Any = None
    # The number of a row's facets together, and as kept in thread_counts
    place: Any = None
    counted_place: Any = None
    required: tuple[str, ...] = ()  # Facets that must not be empty

    def conditions(
        self, where: Filter, matching: Matching | None = None, *, without: str = ""
    ) -> list[Any]:
        """The conditions of a filter, less those of one facet; `matching` stands for its words."""
        facets = {
            name: values
            for name, values in where.facets.items()
            if name not in ("week", without)
        }
        weeks = where.facets.get("week", ()) if without != "week" else ()
        conditions = _are_one_of(self.facets, facets) + [
            self.facets[name] != _EMPTY for name in self.required
        ]
        if weeks and self.counts:
            conditions += _are_one_of(self.facets, {"week": weeks})
        elif weeks:
            conditions.append(_in_weeks(self, weeks))
        conditions += self.within(where)
        return conditions if matching is None else [*conditions, matching.condition]

    def within(self, where: Filter) -> list[Any]:
        """The conditions of a filter's dates."""
        after = [] if where.since is None else [self.moment >= where.since]
        return after if where.until is None else [*after, self.moment < where.until]

    async def match(self, session: AsyncSession, where: Filter) -> "Matching | None":
        """The condition for a filter's words; None without any.

        Few threads are found by the index of words first. PostgreSQL knows only of common words how many have
        them, and would else look for seldom ones by going through all threads in order. Threads with words that
        it knows to be common are not looked for: more than a page needs have them.
        """
        if not where.text.strip():
            return None
        if self.words is None:
            assert self.search is not None
            return Matching(self.search(where.text))
        condition = words_match(self.words, where.text)
        thread_id = self.words.class_.thread_id
        rows = select(thread_id).where(condition)
        plan = await session.scalar(_Explain(rows))
        expected: int = plan[0]["Plan"]["Plan Rows"]
        if expected > _SORTED:
            return Matching(condition, expected)
        ids = list(await session.scalars(rows.limit(MOST_COUNTED + 1)))
        if len(ids) > MOST_COUNTED:
            return Matching(condition, expected)
        return Matching(_is_any(thread_id, ids))

    def order(self, sort: str) -> tuple[Any, ...]:
        """What rows are ordered by. Raises UsageError for an unknown sort."""
        if sort and sort not in self.sorts:
            raise UsageError(
                f"unknown sort {sort[:40]!r}", hint=f"choose {', '.join(self.sorts)}"
            )
        return (self.sorts[sort or next(iter(self.sorts))], *self.key)

    def select(
        self,
        where: Filter,
        matching: Matching | None,
        order: Iterable[Any],
        *,
        descending: bool,
    ) -> Rows:
        """The rows of a filter in an order, with what their keys are made of."""
        columns = [column.label(name) for name, column in self.columns.items()]
        keys = [column.label(f"key_{n}") for n, column in enumerate(order)]
        return (
            self.query.with_only_columns(*columns, *keys)
            .where(*self.conditions(where, matching))
            .order_by(*_turn(order, descending))
        )


def define_listing(
    row: type[R],
    *tables: Any,
    facets: Iterable[str],
    moment: Any,
    joined: Rows | None = None,
    columns: Columns = MappingProxyType({}),
    further: Columns = MappingProxyType({}),
    **options: Any,
) -> Listing[R]:
    """A listing whose fields and facets are columns of these tables; an enum's is what is stored.

    Args:
        row: The row type.
        tables: The first that has a column of a name is taken.
        facets: Names of facets.
        moment: What week, since and until are about.
        joined: The tables' joins; None: there is one table.
        columns: Fields that no table has by their name.
        further: Facets that are neither fields nor columns.
        options: The other parts of a Listing.
    """

    def find(name: str) -> Any:
        if name in columns:
            return columns[name]
        column = next(getattr(table, name) for table in tables if hasattr(table, name))
        return (
            type_coerce(column, Text) if isinstance(column.type, EnumText) else column
        )

    week = func.to_char(moment.op("AT TIME ZONE")("UTC"), 'IYYY."W"IW')
    named = {name: find(name) for name in facets}
    return Listing(
        row=row,
        query=select().select_from(tables[0]) if joined is None else joined,
        columns={field.name: find(field.name) for field in fields(row)},  # type: ignore[arg-type]
        facets={**named, **further}
        if "week" in named
        else {**named, **further, "week": week},
        moment=moment,
        **options,
    )


def week_bounds(week: str) -> tuple[datetime, datetime]:
    """The first moment of an ISO week and of the next, in UTC. Raises UsageError."""
    try:
        year, _, number = week.partition(".W")
        start = datetime.fromisocalendar(int(year), int(number), 1).replace(tzinfo=UTC)
        return start, start + timedelta(days=7)
    except (ValueError, OverflowError):
        raise UsageError(
            f"expected an ISO week such as 2026.W47, not {week[:40]!r}"
        ) from None


def _in_weeks(listing: Listing[Any], weeks: Iterable[str]) -> ColumnElement[bool]:
    """The condition that a row's moment lies in one of some weeks."""
    bounds = [week_bounds(week) for week in weeks]
    moment = listing.moment
    return or_(*(and_(moment >= first, moment < end) for first, end in bounds))


def words_match(words: Any, text: str) -> ColumnElement[bool]:
    """The condition that a tsvector made by `medlive_words` has all words of a text."""
    runs = _HAN.findall(text)
    pairs = [run[i : i + 2] for run in runs for i in range(max(len(run) - 1, 1))]
    query: Any = func.plainto_tsquery("english", to_stored(_HAN.sub(" ", text)))
    if pairs:
        chinese = " & ".join(f"'{pair}'" + ":*" * (len(pair) == 1) for pair in pairs)
        query = query.op("&&")(func.to_tsquery("simple", chinese))
    matches: ColumnElement[bool] = words.op("@@")(query)
    return matches


def contains(*columns: Any) -> Callable[[str], ColumnElement[bool]]:
    """A search for a text as it stands in one of some columns, in small tables."""
    return lambda text: or_(
        *(
            column.icontains(to_stored(text.strip()), autoescape=True)
            for column in columns
        )
    )


async def load_listing(
    session: AsyncSession, listing: Listing[R], where: Filter, **place: Any
) -> tuple[Page[R], Counts]:
    """`load_page` and `count_rows`, which look for the filter's words once."""
    matching = await listing.match(session, where)
    page = await load_page(session, listing, where, matching, **place)
    return page, await count_rows(session, listing, where, matching)


@dataclass(frozen=True, slots=True)
class _Nearest(Generic[R]):
    """The rows that are nearest to a place in an order."""

    listing: Listing[R]
    where: Filter
    matching: Matching | None
    order: tuple[Any, ...]
    descending: bool
    beyond: list[Any]  # The condition that a row lies behind the place
    size: int

    @property
    def turned(self) -> list[Any]:
        """What rows are ordered by, in the direction asked for."""
        return _turn(self.order, self.descending)

    @property
    def conditions(self) -> list[Any]:
        """The conditions of the filter and of the place."""
        return [*self.listing.conditions(self.where, self.matching), *self.beyond]


async def load_page(
    session: AsyncSession,
    listing: Listing[R],
    where: Filter,
    matching: Matching | None = None,
    *,
    sort: str = "",
    descending: bool = True,
    after: str | None = None,
    before: str | None = None,
    size: int = 50,
) -> Page[R]:
    """A page of the rows of a filter: the first, or what lies behind the key `after`, or before the key `before`.

    `matching` is the condition for the filter's words, where it is known already.

    Raises:
        UsageError: for a wrong sort or key.
    """
    matching = matching or await listing.match(session, where)
    order = listing.order(sort)
    backwards = before is not None
    down = descending != backwards
    nearest = _Nearest(
        listing=listing,
        where=where,
        matching=matching,
        order=order,
        descending=down,
        beyond=_behind(before if backwards else after, order, down),
        size=size + 1,
    )
    rows_read = await _read_nearest(session, nearest)
    more, rows_read = len(rows_read) > size, rows_read[:size]
    if backwards:
        rows_read.reverse()
    has_before, has_after = (more, True) if backwards else (after is not None, more)
    rows = tuple(read(listing.row, row) for row in rows_read)
    keys = tuple(_format_key(row, len(order)) for row in rows_read)
    first, last = (keys[0], keys[-1]) if keys else (None, None)
    return Page(rows, first if has_before else None, last if has_after else None, keys)


def _behind(key: str | None, order: tuple[Any, ...], descending: bool) -> list[Any]:
    """The condition that a row lies behind a key; none without a key."""
    if key is None:
        return []
    place, here = tuple_(*order), tuple_(*_parse_key(key, order))
    return [place < here if descending else place > here]


async def _read_nearest(session: AsyncSession, nearest: _Nearest[Any]) -> list[Any]:
    """The columns of the nearest rows, in their order."""
    listing, order, down = nearest.listing, nearest.order, nearest.descending
    keys: list[int] | None = None
    if nearest.matching is None:
        keys = await _find_by_groups(session, nearest)
    elif nearest.matching.expected is not None:
        keys = await _find_with_words(session, nearest, nearest.matching.expected)
    if keys is not None:
        query = listing.select(Filter(), None, order, descending=down)
        query = query.where(_is_any(order[-1], keys))
    else:
        query = listing.select(nearest.where, nearest.matching, order, descending=down)
        query = query.where(*nearest.beyond)
    return list((await session.execute(query.limit(nearest.size))).all())


class _Explain(Executable, ClauseElement):
    """PostgreSQL's plan of a statement, which is not run."""

    inherit_cache = False

    def __init__(self, statement: Rows) -> None:
        self.statement = statement


@compiles(_Explain)
def _compile_explain(element: _Explain, compiler: SQLCompiler, **options: Any) -> str:
    return f"EXPLAIN (FORMAT JSON) {compiler.process(element.statement, **options)}"


async def _find_with_words(
    session: AsyncSession, nearest: _Nearest[Any], expected: int
) -> list[int] | None:
    """The last keys of the nearest rows that have common words; None where the order is best followed.

    Whoever follows an order reads the words of every row until enough have them, of seldom ones those of most rows.
    The index of words finds all rows that have them, of common ones most rows too. So the order is followed for a
    while where PostgreSQL takes the words for common, and all rows that have them are sorted elsewhere.
    """
    if expected > _SORTED:
        if not nearest.where.facets and not nearest.listing.within(nearest.where):
            return None
        keys = await _walk(session, nearest, _WALKED)
        if keys is not None:
            return keys
    rows = select(*(key.label(f"key_{n}") for n, key in enumerate(nearest.order)))
    matching = rows.where(*nearest.conditions).cte("found").prefix_with("MATERIALIZED")
    columns = list(matching.c)
    first = select(columns[-1]).order_by(*_turn(columns, nearest.descending))
    return list(await session.scalars(first.limit(nearest.size)))


async def _walk(
    session: AsyncSession, nearest: _Nearest[Any], length: int
) -> list[int] | None:
    """The last keys of the nearest rows, looked for among so many in the order; None where they are too few."""
    listing, order = nearest.listing, nearest.order
    required = [listing.facets[name] != _EMPTY for name in listing.required]
    ahead = select(*order).where(*required, *nearest.beyond).order_by(*nearest.turned)
    edge = (await session.execute(ahead.offset(length).limit(1))).first()
    near = [] if edge is None else [_up_to(order, edge, nearest.descending)]
    walk = select(order[-1]).where(*nearest.conditions, *near)
    walk = walk.order_by(*nearest.turned).limit(nearest.size)
    keys = list(await session.scalars(walk))
    return keys if len(keys) == nearest.size or edge is None else None


def _up_to(order: tuple[Any, ...], edge: Any, descending: bool) -> Any:
    """The condition that a row does not lie behind another one in an order."""
    here = [literal(value, key.type) for key, value in zip(order, edge, strict=True)]
    place, last = tuple_(*order), tuple_(*here)
    return place >= last if descending else place <= last


async def _find_by_groups(
    session: AsyncSession, nearest: _Nearest[Any]
) -> list[int] | None:
    """The last keys of the nearest rows, looked for by groups; None where the order is best followed.

    What a filter leaves may stand at the far end of an order, so that whoever follows it meets most of a table. An
    index has the rows of each place or week in the order: the first ones of each are found at once, wherever they
    stand.
    """
    listing, where = nearest.listing, nearest.where
    if not listing.counts:
        return None
    by_moment = nearest.order[0] is listing.moment
    chosen, dates = where.facets, listing.within(where)
    if "week" in chosen:
        if not by_moment or len(chosen) == 1:  # An index has each week's in the order
            return None
        dates = [*dates, _in_weeks(listing, chosen["week"])]
    by_weeks = bool(dates) and not by_moment
    if by_weeks and chosen:
        by_weeks = not await _are_few(session, listing, chosen)
    if by_weeks:
        # Threads are decided soon after they were opened: often the first rows of the order are of the dates.
        keys = await _walk(session, nearest, _NEAR)
        if keys is not None:
            return keys
        weeks = _weeks(listing, where)
        conditions = listing.conditions(where)
        first = _first_of_each(listing.facets["week"], weeks, conditions, nearest)
    elif chosen:
        first = _first_of_each(listing.place, _places(listing, chosen), dates, nearest)
    else:
        return None
    return list(await session.scalars(first))


def _weeks(listing: Listing[Any], where: Filter) -> Rows:
    """The weeks of a filter's dates."""
    since = where.since or select(func.min(listing.moment)).scalar_subquery()
    until = where.until or select(func.max(listing.moment)).scalar_subquery()
    first = func.date_trunc("week", since)
    weeks = func.generate_series(first, until, timedelta(days=7))
    return select(func.to_char(weeks, 'IYYY."W"IW').label("value"))


async def _are_few(
    session: AsyncSession, listing: Listing[Any], facets: Mapping[str, tuple[str, ...]]
) -> bool:
    n = select(func.sum(listing.count)).where(
        listing.counts["week"] == "", *_are_one_of(listing.counts, facets)
    )
    return (await session.scalar(n) or 0) <= _FEW


def _places(listing: Listing[Any], facets: Mapping[str, tuple[str, ...]]) -> Rows:
    """The places where some threads of a filter stand now."""
    wanted = [
        *_are_one_of(listing.counts, facets),
        *(listing.counts[name] != "" for name in listing.required),
    ]
    if "week" not in facets:
        wanted.append(listing.counts["week"] == "")
    places = select(listing.counted_place.label("value")).where(*wanted)
    return places.group_by(listing.counted_place).having(func.sum(listing.count) != 0)


def _first_of_each(
    column: Any, values: Rows, where: list[Any], nearest: _Nearest[Any]
) -> Rows:
    """The last keys of the nearest rows, taken from the first ones of each value of a column."""
    each = values.subquery()
    rows = select(*(key.label(f"key_{n}") for n, key in enumerate(nearest.order)))
    rows = rows.where(column == each.c.value, *where, *nearest.beyond)
    nearest_rows = rows.order_by(*nearest.turned).limit(nearest.size).lateral()
    first = select(list(nearest_rows.c)[-1]).select_from(
        each.join(nearest_rows, true())
    )
    turned = _turn(nearest_rows.c, nearest.descending)
    return first.order_by(*turned).limit(nearest.size)


def _turn(columns: Iterable[Any], descending: bool) -> list[Any]:
    return [column.desc() if descending else column.asc() for column in columns]


def _is_any(column: Any, values: list[int]) -> Any:
    return column == any_(bindparam(None, values, type_=ARRAY(Integer)))


async def stream_rows(
    session: AsyncSession,
    listing: Listing[R],
    where: Filter,
    *,
    sort: str = "",
    descending: bool = True,
) -> AsyncIterator[R]:
    """Every row of a filter in order, some hundreds in memory at a time."""
    matching = await listing.match(session, where)
    query = listing.select(where, matching, listing.order(sort), descending=descending)
    async for row in await session.stream(query, execution_options={"yield_per": 500}):
        yield read(listing.row, row)


async def count_rows(
    session: AsyncSession,
    listing: Listing[Any],
    where: Filter,
    matching: Matching | None = None,
) -> Counts:
    """How many rows there are, and of each facet's values; a facet's own choice does not narrow its counts.

    By the sums that triggers keep where the filter has facets alone; else row by row up to `MOST_COUNTED`.
    `matching` is the condition for the filter's words, where it is known already.
    """
    matching = matching or await listing.match(session, where)
    kept = (
        bool(listing.counts)
        and where.since is None
        and where.until is None
        and not where.text.strip()
    )
    # Facet that does not narrow the counts ("": all do) → facets that are counted so
    groups: dict[str, list[str]] = {"": []}
    for name in listing.facets:
        if name in where.facets or (kept and name == "week"):
            groups[name] = [name]
        else:
            groups[""].append(name)
    total = 0
    facets = {name: dict[str, int]() for name in listing.facets}
    for without, names in groups.items():
        if kept:
            rows = _kept_rows(listing, where, without)
        else:
            rows = _first_rows(listing, where, matching, without)
        sums = await _sum_by(session, rows, names)
        if not without:
            total = sums.total
        facets |= sums.facets
    capped = not kept and total > MOST_COUNTED
    return Counts(MOST_COUNTED if capped else total, facets, capped)


def _kept_rows(listing: Listing[Any], where: Filter, without: str) -> Rows:
    """Sums of thread_counts: over all weeks, or those of the weeks asked for."""
    assert listing.count is not None
    week = listing.counts["week"]
    facets = {name: values for name, values in where.facets.items() if name != without}
    query = select(
        *(c.label(name) for name, c in listing.counts.items()), listing.count.label("n")
    )
    query = query.where(
        *_are_one_of(listing.counts, facets),
        *(listing.counts[r] != "" for r in listing.required),
    )
    if without == "week":
        return query.where(week > iso_week(now() - timedelta(weeks=WEEKS_COUNTED)))
    return query if "week" in facets else query.where(week == "")


def _first_rows(
    listing: Listing[Any], where: Filter, matching: Matching | None, without: str
) -> Rows:
    columns = [column.label(name) for name, column in listing.facets.items()]
    query = listing.query.with_only_columns(*columns, literal(1).label("n"))
    if (
        listing.counts
    ):  # All facets are in one table: what else a row shows need not be joined
        query = select(*columns, literal(1).label("n"))
        chosen = {
            name: values
            for name, values in where.facets.items()
            if name not in ("week", without)
        }
        if (
            chosen and matching is None
        ):  # Else PostgreSQL goes through all rows of the dates for what none may have
            query = query.where(
                listing.place
                == any_(func.array(_places(listing, chosen).scalar_subquery()))
            )
    return query.where(*listing.conditions(where, matching, without=without)).limit(
        MOST_COUNTED + 1
    )


class _Sums(NamedTuple):
    """How many rows there are, and of each facet's values."""

    total: int
    facets: dict[str, dict[str, int]]  # Facet → value → rows, most first


async def _sum_by(session: AsyncSession, rows: Rows, names: list[str]) -> _Sums:
    """Count rows, and those of each value of some facets."""
    source = rows.subquery()
    columns = [source.c[name] for name in names]
    sets = func.grouping_sets(*(tuple_(column) for column in columns), tuple_())
    mask = (
        func.grouping(*columns).label("mask") if columns else literal(0).label("mask")
    )
    n = func.coalesce(func.sum(source.c.n), 0).label("n")
    query = select(mask, n, *columns).group_by(sets).order_by(n.desc(), *columns)
    whole = (1 << len(names)) - 1
    total = 0
    facets: dict[str, dict[str, int]] = {name: {} for name in names}
    for mask_of, count, *values in await session.execute(query):
        if mask_of == whole:
            total = int(count)
        elif count:
            # grouping() has the last column's bit first
            place = len(names) - (whole ^ mask_of).bit_length()
            facets[names[place]][values[place] or ""] = int(count)
    return _Sums(total, facets)


def _are_one_of(
    columns: Columns, facets: Mapping[str, tuple[str, ...]]
) -> list[ColumnElement[bool]]:
    if unknown := sorted(facets.keys() - columns.keys()):
        raise UsageError(f"this table has no {', '.join(unknown)}")
    # One value is compared as such: a list would keep an index from giving the order too.
    return [
        columns[name] == values[0]
        if len(values) == 1
        else columns[name] == any_(bindparam(None, list(values), type_=ARRAY(Text)))
        for name, values in facets.items()
    ]


def _format_key(row: Any, length: int) -> str:
    values = [getattr(row, f"key_{n}") for n in range(length)]
    return json.dumps(
        [v.isoformat() if isinstance(v, datetime) else v for v in values],
        ensure_ascii=False,
    )


def _parse_key(key: str, order: tuple[Any, ...]) -> list[Any]:
    try:
        # Numbers and texts alone, in one list: json.loads fails at a depth that depends on the stack.
        if len(key) > CURSOR_CHARS or _KEY.fullmatch(key) is None:
            raise ValueError(key)
        values = json.loads(key)
        parsed = [
            _parse_value(v, column.type)
            for v, column in zip(values, order, strict=True)
        ]
    except (ValueError, TypeError, RecursionError):
        raise UsageError(f"not the key of a row: {key[:80]!r}") from None
    return [literal(v, column.type) for v, column in zip(parsed, order, strict=True)]


def _parse_value(value: Any, kind: Any) -> Any:
    if isinstance(kind, DateTime):
        return datetime.fromisoformat(value)
    if type(value) is not (int if isinstance(kind, Integer) else str):
        raise ValueError(value)
    return value
