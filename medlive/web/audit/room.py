"""The routes of the audit room."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response

from medlive.clock import iso_week, now, week_bounds
from medlive.db.audit.health import count_by_source, count_by_week
from medlive.db.audit.listing import count_rows, load_page, stream_rows
from medlive.db.audit.spending import spending
from medlive.db.curation.funnel import funnel
from medlive.db.curation.parking import count_parked
from medlive.db.tables.accounts import Role
from medlive.errors import UsageError
from medlive.guard.bounds import (
    EXPORT_BYTES,
    GAPS_SHOWN,
    MESSAGES_SHOWN,
)
from medlive.service.curation.inspect import (
    ThreadTakenDown,
    inspect_case,
    inspect_thread,
)
from medlive.service.listings import stream_csv, without_identifiers
from medlive.service.prompts import show_prompt
from medlive.service.watch.status import read_health
from medlive.web.accounts.access import Viewer, require
from medlive.web.pages import csv_file, refusing, render
from medlive.web.site import Room, Section, SiteOf

from .tables import TABLES, State
from .thread import load_thread_page, row_links

router = APIRouter(
    prefix="/audit",
    dependencies=[Depends(require(Role.VIEWER))],
)
AUDIT = Room(False, router, (Section("Audit", "/audit"),))
Page = Annotated[int, Query(ge=1, le=10_000_000)]
"""Which of a thread's pages of messages is shown."""
Decision = Annotated[int | None, Query(ge=1, le=2**31 - 1)]
"""The number of an earlier decision to show; None: the latest."""
# Of a thread, in the order in which the overview counts them
OUTCOMES = (
    "pending",
    "rejected",
    "parked",
    "failed",
    "held",
    "kept",
    "withdrawn",
)
_LINKS = [
    *((table.title, f"/audit/{name}") for name, table in TABLES.items()),
    ("Gaps", "/audit/gaps"),
]


@router.get("")
async def overview(request: Request, site: SiteOf, account: Viewer) -> Response:
    """How the threads fared, what runs next, what it costs, and what needs a person."""
    health = await read_health(site.database, site.settings)
    async with site.database.begin() as session:
        by_source = await count_by_source(session)
        by_week = await count_by_week(session)
        reasons = await funnel(session)
        week = iso_week(now())
        spent = []
        for row in await spending(session, *week_bounds(week)):
            if row.by in ("all", "source") and row.replies:
                spent.append(row)
    return render(
        request,
        "audit/overview.html",
        tables=_LINKS,
        health=health,
        outcomes=OUTCOMES,
        by_source=by_source,
        by_week=by_week,
        reasons=reasons,
        week=week,
        spent=spent,
        may_act=account.may(Role.ADMIN),
    )


@router.get("/gaps")
async def show_gaps(request: Request, site: SiteOf) -> Response:
    """The parked threads, and what the library lacks for them."""
    from medlive.service.curation.parking import find_gaps

    gaps = await find_gaps(site.database, site.settings)
    async with site.database.read() as session:
        parked = await count_parked(session)
    return await asyncio.to_thread(
        render,
        request,
        "audit/gaps.html",
        tables=_LINKS,
        gaps=gaps[:GAPS_SHOWN],
        all_gaps=len(gaps),
        parked=parked.threads,
    )


@router.get("/requests/{digest}")
async def show_request(request: Request, site: SiteOf, digest: str) -> Response:
    """A request as it was rendered with its reply, or a prompt, by its digest or the beginning of it."""
    with refusing(404, UsageError):
        prompt = await site.database.ask(show_prompt, digest)
    return await asyncio.to_thread(render, request, "audit/request.html", prompt=prompt)


@router.get("/cases/{case_id}")
@router.get("/threads/{source}/{thread_id:path}")
async def show_thread(
    request: Request,
    site: SiteOf,
    account: Viewer,
    page: Page = 1,
    decision: Decision = None,
) -> Response:
    """A thread or a case, with every decision about it."""
    names, of_case = request.path_params, "case_id" in request.path_params
    first = (page - 1) * MESSAGES_SHOWN
    part: dict[str, Any] = {"decision": decision, "first": first}
    async with site.database.begin() as session:
        with refusing(404, UsageError), refusing(410, ThreadTakenDown):
            if of_case:
                record = await inspect_case(session, **names, **part)
            else:
                record = await inspect_thread(session, **names, **part)
        fill = await load_thread_page(
            session, record, account, request, page, of_case=of_case
        )
    return await asyncio.to_thread(fill)


@router.get("/{table}.csv")
async def export(request: Request, site: SiteOf, table: str) -> Response:
    """Exactly the rows that a table page's filter finds: all are read first, then sent without a connection."""
    state = _state(request, table)
    lines, size = [], 0
    async with site.database.begin() as session:
        rows = stream_rows(session, state.listing, state.where)
        async for line in stream_csv(rows, state.listing):
            lines.append(line)
            size += len(line.encode())
            if size > EXPORT_BYTES:
                raise HTTPException(422, "More than an export may hold: narrow it.")
    return csv_file(f"medlive-{table}", "".join(lines))


@router.get("/{table}")
async def show_table(request: Request, site: SiteOf, table: str) -> Response:
    """The rows of a table that a filter finds."""
    state = _state(request, table)
    async with site.database.read() as session:
        page = await load_page(
            session,
            state.listing,
            state.where,
            after=state.after,
            before=state.before,
        )
        counts = await count_rows(session, state.listing, state.where)
        if not page.rows and (state.after or state.before):  # They are gone
            return RedirectResponse(state.page(), 303)
    rows = without_identifiers(page.rows)
    links = row_links(state, rows, page.keys)
    return render(
        request,
        "audit/table.html",
        table=TABLES[table],
        tables=_LINKS,
        state=state,
        rows=list(zip(rows, links, strict=True)),
        counts=counts,
        before=page.before and state.page(before=page.before),
        after=page.after and state.page(after=page.after),
        sorts={sort: state.resorted(sort) for sort in state.listing.sorts},
    )


def _state(request: Request, table: str) -> State:
    """What a request asks of a table. Raises HTTPException 404 for an unknown one."""
    if table not in TABLES:
        raise HTTPException(404)
    return State.parse(table, request.query_params)
