"""Acts that cannot be undone: each has a page of its own, which says what happens and asks for the subject's id."""

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
from medlive.web.site import SiteOf, Text

router = APIRouter()
KINDS = tuple(
    kind.value for kind in WithdrawalKind if kind is not WithdrawalKind.TAKEDOWN
)
LOG = "/acts/log"
_ASK_AND_DO = ["GET", "POST"]
"""The page sends its form to its own address."""


@router.api_route("/take-down/{source}/{thread_id:path}", methods=_ASK_AND_DO)
async def take_down(
    request: Request,
    site: SiteOf,
    account: Admin,
    source: str,
    thread_id: str,
    typed: Text,
    reason: Text,
) -> Response:
    """What a takedown of the thread would do; the form takes it down, where its id was typed."""
    from medlive.service.harvest import takedown

    name = f"{source}/{thread_id}"
    error = None
    if request.method == "POST":
        try:
            _check_typed(typed, name)
            await takedown.take_down(
                site.database,
                site.settings,
                source,
                thread_id,
                reason,
                by=account.name,
            )
            return RedirectResponse(LOG, 303)
        except DatabaseForbidden as exc:
            error = f"{exc.message}; its owner may: medlive thread takedown"
        except MedliveError as exc:
            error = exc.whole
    async with site.database.begin() as session:
        earlier = await find_takedown(session, source, thread_id)
        revisions = len(await revisions_of(session, source, thread_id))
        thread_pk = await find_thread(session, source, thread_id)
        case = None if thread_pk is None else await case_of_thread(session, thread_pk)
        frozen = await frozen_with(session, source, thread_id)
    if earlier is None and not revisions:
        raise HTTPException(404, f"There is no thread {name}.")
    return render(
        request,
        "acts/take_down.html",
        422 if error else 200,
        name=name,
        earlier=earlier,
        revisions=revisions,
        case=case,
        frozen=frozen,
        reason=reason,
        typed=typed,
        error=error,
    )


@router.api_route("/withdraw/{case_id}", methods=_ASK_AND_DO)
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
    """What a withdrawal of the case or a criterion would do; the form withdraws it, where the case's id was typed."""
    from medlive.service.release import withdraw as service

    error = None
    if request.method == "POST":
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
            return RedirectResponse(f"/acts/case/{case_id}", 303)
        except MedliveError as exc:
            error = exc.whole
    async with site.database.begin() as session:
        with refusing(404, UsageError):
            row = await find_case(session, case_id)
        case = await latest_case(session, case_id)
        members = await list_memberships(session, case_id)
    if case is None:
        raise HTTPException(404)
    frozen = [m.version for m in members if m.frozen_at is not None]
    return render(
        request,
        "acts/withdraw.html",
        422 if error else 200,
        name=case_id,
        case=case,
        is_withdrawn=row.status is CaseStatus.WITHDRAWN,
        frozen=frozen,
        kinds=KINDS,
        kind=type,
        criterion=criterion,
        reason=reason,
        typed=typed,
        error=error,
    )


def _check_typed(typed: str, name: str) -> None:
    """Raise UsageError where the id was not typed."""
    if typed.strip() != name:
        raise UsageError(f"nothing was done: type {name} to confirm")
