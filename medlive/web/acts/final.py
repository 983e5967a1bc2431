"""Acts that cannot be undone: each has a page of its own, which says what happens and asks for the subject's id."""

import shlex
from collections.abc import Mapping

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from medlive.db.curation.cases import case_of_thread, find_case, latest_case
from medlive.db.release.snapshots import list_memberships
from medlive.db.tables.release import CaseStatus
from medlive.db.threads.takedowns import find_takedown, frozen_with
from medlive.db.threads.threads import find_thread, revisions_of
from medlive.errors import DatabaseForbidden, MedliveError, UsageError
from medlive.snapshot.errata import WithdrawalKind
from medlive.web.accounts.access import Admin
from medlive.web.pages import refusing, render
from medlive.web.site import Site, SiteOf, Text

router = APIRouter()
KINDS = tuple(
    kind.value for kind in WithdrawalKind if kind is not WithdrawalKind.TAKEDOWN
)
LOG = "/acts/log"


@router.get("/take-down/{source}/{thread_id:path}")
async def ask_takedown(
    request: Request, site: SiteOf, account: Admin, source: str, thread_id: str
) -> Response:
    """What a takedown of the thread would do."""
    return await _takedown_page(request, site, source, thread_id)


@router.post("/take-down/{source}/{thread_id:path}")
async def take_down(
    request: Request,
    site: SiteOf,
    account: Admin,
    source: str,
    thread_id: str,
    typed: Text,
    reason: Text,
) -> Response:
    """Take the thread down, where its id was typed."""
    from medlive.service.harvest import takedown

    try:
        _check_typed(typed, f"{source}/{thread_id}")
        await takedown.take_down(
            site.database,
            site.settings,
            source,
            thread_id,
            reason,
            by=account.name,
        )
    except MedliveError as error:
        text = error.whole
        if isinstance(error, DatabaseForbidden):
            command = ["medlive", "thread", "takedown", source, thread_id, "--reason"]
            text = f"{error.message} (as the database's owner: {shlex.join(command)} …)"
        values = {"reason": reason, "typed": typed}
        return await _takedown_page(request, site, source, thread_id, values, text)
    return RedirectResponse(LOG, 303)


@router.get("/withdraw/{case_id}")
async def ask_withdrawal(
    request: Request, site: SiteOf, account: Admin, case_id: str, criterion: str = ""
) -> Response:
    """What a withdrawal of the case, or of a criterion of it, would do."""
    return await _withdrawal_page(request, site, case_id, {"criterion": criterion})


@router.post("/withdraw/{case_id}")
async def withdraw(
    request: Request,
    site: SiteOf,
    account: Admin,
    case_id: str,
    typed: Text,
    reason: Text,
    criterion: Text,
    type: Text,
) -> Response:
    """Withdraw the case or a criterion of it, where the case's id was typed."""
    from medlive.service.release import withdraw as service

    values = {
        "reason": reason,
        "criterion": criterion,
        "type": type,
        "typed": typed,
    }
    try:
        _check_typed(typed, case_id)
        if type not in KINDS:
            raise UsageError(f"unknown kind of withdrawal {type[:40]!r}")
        await service.withdraw(
            site.database,
            site.settings,
            case_id,
            WithdrawalKind(type),
            reason,
            criterion_id=criterion or None,
            by=account.name,
        )
    except MedliveError as error:
        return await _withdrawal_page(request, site, case_id, values, error.whole)
    return RedirectResponse(f"/acts/case/{case_id}", 303)


def _check_typed(typed: str, name: str) -> None:
    if typed.strip() != name:
        raise UsageError(f"nothing was done: type {name} to confirm")


async def _takedown_page(
    request: Request,
    site: Site,
    source: str,
    thread_id: str,
    values: Mapping[str, str] | None = None,
    error: str | None = None,
) -> Response:
    name = f"{source}/{thread_id}"
    async with site.database.begin() as session:
        takedown = await find_takedown(session, source, thread_id)
        revisions = len(await revisions_of(session, source, thread_id))
        thread_pk = await find_thread(session, source, thread_id)
        case = None if thread_pk is None else await case_of_thread(session, thread_pk)
        frozen = await frozen_with(session, source, thread_id)
    if takedown is None and not revisions:
        raise HTTPException(404, f"There is no thread {name}.")
    done = None
    if takedown is not None:
        day = f"{takedown.taken_down_at:%Y-%m-%d %H:%M} UTC"
        done = f"It was taken down on {day}. Doing it again finishes what was cut off."
    effects = [
        f"Erased: {revisions} {'revision' if revisions == 1 else 'revisions'} of the thread with every decision, "
        "the engines' replies and its raw pages.",
        "Harvests and imports refuse it from now on. A takedown that is lifted restores nothing.",
    ]
    if frozen:
        versions = ", ".join(version for version, _ in frozen)
        text = (
            f"Withdrawn: its case {frozen[0][1]}, which {versions} holds. The frozen snapshots keep it; an erratum "
            "that says “taken down” is published, and stays."
        )
        effects.insert(1, text)
    elif case is not None:
        text = f"Erased: its case {case[0].id}, {case[0].status.value} now."
        effects.insert(1, text)
    return render(
        request,
        "acts/final.html",
        422 if error else 200,
        title=f"Take down the thread {name}",
        name=name,
        button="Take it down for good",
        back=LOG if takedown is not None else f"/audit/threads/{name}",
        effects=effects,
        public=False,
        done=done,
        query="",
        kinds=(),
        criteria=(),
        values=values or {},
        error=error,
    )


async def _withdrawal_page(
    request: Request,
    site: Site,
    case_id: str,
    values: Mapping[str, str],
    error: str | None = None,
) -> Response:
    async with site.database.begin() as session:
        with refusing(404, UsageError):
            row = await find_case(session, case_id)
        case = await latest_case(session, case_id)
        members = await list_memberships(session, case_id)
    if case is None:
        raise HTTPException(404)
    frozen = [m.version for m in members if m.frozen_at is not None]
    holds = "No frozen snapshot holds it yet."
    if frozen:
        holds = (
            f"{', '.join(frozen)} {'holds' if len(frozen) == 1 else 'hold'} it and stay as they are: an erratum with "
            "your reason is published beside them, and stays even if the withdrawal is undone."
        )
    later = "The case leaves every later snapshot, or goes on without the criterion that is chosen."
    return render(
        request,
        "acts/final.html",
        422 if error else 200,
        title=f"Withdraw the case {case_id}",
        name=case_id,
        button="Withdraw for good",
        back=f"/acts/case/{case_id}",
        effects=(holds, later),
        public=True,
        done="It is withdrawn." if row.status is CaseStatus.WITHDRAWN else None,
        query=case.text.query,
        kinds=KINDS,
        criteria=case.rubric.criteria,
        values=values,
        error=error,
    )
