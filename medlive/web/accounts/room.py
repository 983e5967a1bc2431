"""The routes of accounts: sign in and out, invitations, an account's own page."""

import asyncio
import ipaddress
import logging
from datetime import UTC, datetime
from math import ceil

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from medlive.db import accounts
from medlive.db.accounts import Account
from medlive.errors import CheckFailed
from medlive.guard.trust import read_address
from medlive.web.pages import local_path, render
from medlive.web.site import Room, Section, Site, SiteOf, Text

from . import passwords
from .access import SIGN_IN, TOKEN, Viewer, check_form

router = APIRouter()
ACCOUNTS = Room(False, router, (Section("Account", "/account"),))
ACCOUNT_ATTEMPTS = 10
ADDRESS_ATTEMPTS = 50
"""Attempts to sign in within `accounts.ATTEMPTS_WINDOW` from one address: on one account, and on all."""
SLOW_ATTEMPTS = 30
SLOW_S = 2.0
"""After SLOW_ATTEMPTS on an account from anywhere, each further one takes SLOW_S seconds longer. None is refused for
that: a stranger at another address cannot keep the owner out."""
HOME = "/account"

_FORM = [Depends(check_form)]
_log = logging.getLogger(__name__)


@router.api_route(SIGN_IN, methods=["GET", "POST"], dependencies=_FORM)
async def sign_in(
    request: Request,
    site: SiteOf,
    name: Text,
    password: Text,
    next: Text,
) -> Response:
    """The form that begins a session; wrong names and wrong passwords take the same work and get the same answer."""
    next = next or request.query_params.get("next", HOME)
    refusal = None
    if request.method == "POST":
        try:
            account = await _check_password(request, site, name, password)
        except HTTPException as error:
            refusal = error
        else:
            return await _enter(request, site, account, next)
    return await _sign_in_page(request, site, next, name, refusal)


@router.post("/sign-out")
async def sign_out(
    request: Request, site: SiteOf, account: Viewer, everywhere: Text
) -> Response:
    """End this browser's session, or every one of the account."""
    async with site.database.begin() as session:
        if everywhere:
            await accounts.end_sessions(session, account)
        await accounts.end_session(session, request.session[TOKEN])
    request.session.clear()
    return RedirectResponse(SIGN_IN, 303)


@router.api_route("/invitation/{token}", methods=["GET", "POST"], dependencies=_FORM)
async def accept(
    request: Request, site: SiteOf, token: str, password: Text, again: Text
) -> Response:
    """The form to set the password of an account by its one-time link; it signs in, and the link ends with it."""
    invited = await site.database.ask(accounts.find_invited, token)
    name, error = _unless_over(invited).name, None
    if request.method == "POST":
        error = passwords.fault_of(password, again, name)
        if error is None:
            hashed = await passwords.hash_password(password)
            used = await site.database.ask(accounts.use_link, token, hashed)
            return await _enter(request, site, _unless_over(used), HOME)
    return render(
        request,
        "accounts/invitation.html",
        422 if error else 200,
        name=name,
        error=error,
    )


@router.get(HOME)
async def show_account(
    request: Request, account: Viewer, changed: bool = False
) -> Response:
    """An account's own page."""
    return _account_page(request, account, changed=changed)


@router.post("/account/password")
async def change_password(
    request: Request,
    site: SiteOf,
    account: Viewer,
    current: Text,
    password: Text,
    again: Text,
) -> Response:
    """Change the password; every session ends, and this browser begins another."""
    try:
        await _check_password(request, site, account.name, current)
    except HTTPException as refusal:
        is_wrong = refusal.headers is None
        text = "This is not the current password." if is_wrong else refusal.detail
        status = refusal.status_code
        return _account_page(request, account, status, current_error=text)
    if fault := passwords.fault_of(password, again, account.name):
        return _account_page(request, account, 422, error=fault)
    hashed = await passwords.hash_password(password)
    await site.database.ask(accounts.set_password, account, hashed)
    return await _enter(request, site, account, f"{HOME}?changed=1")


@router.get("/sign-in/provider", dependencies=_FORM)
async def leave_for_provider(
    request: Request, site: SiteOf, next: str = HOME
) -> Response:
    """Go to the identity provider."""
    # 12 MB of authlib, which only a configured provider needs
    from . import oidc

    request.session["next"] = local_path(next)
    return await oidc.leave(request, site)


@router.get("/sign-in/provider/back", dependencies=_FORM)
async def come_from_provider(request: Request, site: SiteOf) -> Response:
    """Begin a session for the person whom the identity provider names."""
    from . import oidc

    try:
        account = await oidc.come_back(request, site)
    except CheckFailed as error:
        text = "refused after the identity provider: %s (%s)"
        _log.warning(text, error, error.__cause__)
        refusal = HTTPException(403, str(error))
        return await _sign_in_page(request, site, HOME, refusal=refusal)
    return await _enter(request, site, account, request.session.get("next", HOME))


async def _sign_in_page(
    request: Request,
    site: Site,
    next: str,
    name: str = "",
    refusal: HTTPException | None = None,
) -> Response:
    empty = not await site.database.ask(accounts.has_accounts)
    response = render(
        request,
        "accounts/sign_in.html",
        200 if refusal is None else refusal.status_code,
        name=name,
        next=local_path(next),
        by_provider=site.settings.web.oidc is not None,
        empty=empty,
        error=None if refusal is None else refusal.detail,
    )
    if refusal is not None:
        response.headers.update(refusal.headers or {})
    return response


def _account_page(
    request: Request,
    account: Account,
    status: int = 200,
    *,
    changed: bool = False,
    current_error: str | None = None,
    error: str | None = None,
) -> Response:
    """An account's own page; `current_error` is about the current password, `error` about the new one."""
    return render(
        request,
        "accounts/account.html",
        status,
        account=account,
        changed=changed,
        current_error=current_error,
        error=error,
    )


async def _check_password(
    request: Request, site: Site, name: str, password: str
) -> Account:
    """The account whose password this is; attempts are counted before. Raises HTTPException (422, 429)."""
    spelled = accounts.account_name(name) or ""
    network = _network(request)
    limits = {
        f"address:{network}": ADDRESS_ATTEMPTS,
        accounts.attempts_subject(spelled, network): ACCOUNT_ATTEMPTS,
    }
    for subject, most in limits.items():
        attempts, until = await site.database.ask(accounts.count_attempt, subject)
        if attempts > most:
            seconds = max(1, round((until - datetime.now(UTC)).total_seconds()))
            minutes = ceil(seconds / 60)
            text = "too many attempts to sign in: %d, %d minutes left"
            _log.warning(text, attempts, minutes)
            raise HTTPException(
                429,
                f"Too many attempts. Try again in {minutes} min.",
                headers={"Retry-After": str(seconds)},
            )
    everywhere = accounts.attempts_subject(spelled)
    attempts, _ = await site.database.ask(accounts.count_attempt, everywhere)
    if attempts > SLOW_ATTEMPTS:
        text = "%d attempts to sign in to one account: each takes longer"
        _log.warning(text, attempts)
        await asyncio.sleep(SLOW_S)
    account = await site.database.ask(accounts.find_with_password, spelled)
    stored = None if account is None else account.password_hash
    is_right = await passwords.verify(stored, password)
    if not is_right or account is None or stored is None:
        raise HTTPException(422, "The name or the password is wrong.")
    return account


def _network(request: Request) -> str:
    """The sender's address; of IPv6 its network, of which one sender has all addresses."""
    try:
        address = read_address(request.client.host if request.client else "")
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


async def _enter(
    request: Request, site: Site, account: Account, place: str
) -> Response:
    """Begin a session in place of the browser's earlier one, and redirect to `place`."""
    async with site.database.begin() as session:
        if known := request.session.get(TOKEN):
            await accounts.end_session(session, known)
        if not await accounts.is_current(session, account):
            text = "The account was changed while you signed in. Try again."
            raise HTTPException(403, text)
        await accounts.forget_attempts(session, account, _network(request))
        token = await accounts.start_session(session, account)
    # Another token of forms too: nothing that was known before goes on.
    request.session.clear()
    request.session[TOKEN] = token
    _log.info("signed in: %s", account.name)
    return RedirectResponse(local_path(place), 303)


def _unless_over(account: Account | None) -> Account:
    """The account that a link invites. Raises HTTPException (410) for a link that is used or too old."""
    if account is None:
        text = (
            "This link was used, or is older than two days. If you have just set your password, sign in by it; "
            "otherwise ask an admin for another link."
        )
        raise HTTPException(410, text)
    return account
