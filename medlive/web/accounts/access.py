"""Who sends a request, and whether a page of ours did: sessions, roles (`require`), and a token against forged forms.

A signed cookie holds the session's token and the token of forms; the database decides whose session it is.
"""

import os
import secrets
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, HTTPException, Request
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware

from medlive.db.accounts import SESSION_LASTS, Account, find_session, has_accounts
from medlive.db.tables.accounts import Role
from medlive.errors import AccountMissing, ConfigError
from medlive.guard.trust import is_loopback
from medlive.web.pages import back_to
from medlive.web.site import Site, site_of

SIGN_IN = "/sign-in"
# Fields of the session: its token, and the token of forms
TOKEN = "token"
_FORMS = "csrf"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


async def check_exposure(site: Site, host: str) -> None:
    """Check that the private rooms may be served at an address, and can sign people in.

    Raises:
        AccountMissing: If other machines could reach it and there is nobody to sign in.
        ConfigError: If the identity provider's secret is missing.
    """
    provider = site.settings.web.oidc
    if provider is not None and not os.environ.get(provider.client_secret_env):
        raise ConfigError(
            f"web.oidc.client_secret_env: the variable {provider.client_secret_env} is not set"
        )
    open_to_all = provider is None and not await site.database.ask(has_accounts)
    if open_to_all and not is_loopback(host):
        raise AccountMissing(
            f"the private rooms are not served at {host}, since there is no account",
            hint="medlive user invite NAME --role admin makes one; --part public serves site and downloads alone",
        )


def session_cookie(site: Site) -> Middleware:
    """The cookie of the private rooms: signed, not for scripts, not sent by other sites' forms."""
    secure = site.settings.web.base_url.startswith("https:")
    return Middleware(
        SessionMiddleware,
        secret_key=site.key.hex(),
        session_cookie="__Host-medlive" if secure else "medlive",
        max_age=int(SESSION_LASTS.total_seconds()),
        same_site="lax",
        https_only=secure,
    )


async def check_form(request: Request) -> None:
    """Check that a page of ours sent a request that changes something; a dependency of all such routes.

    The token is the form's field `csrf` or the header `X-CSRF-Token`. Raises HTTPException (403).
    """
    if _FORMS not in request.session:
        request.session[_FORMS] = secrets.token_urlsafe(16)
    request.state.csrf_token = expected = request.session[_FORMS]
    if request.method not in _SAFE:
        token = request.headers.get("X-CSRF-Token") or (await request.form()).get(
            _FORMS
        )
        if not isinstance(token, str) or not secrets.compare_digest(
            token.encode(), expected.encode()
        ):
            raise HTTPException(
                403,
                "This page was open for too long. Go back, load it again and send it again.",
            )


@cache  # One dependency for a role, which a request then meets once
def require(role: Role) -> Callable[[Request], Awaitable[Account]]:
    """A dependency that lets in accounts that may use pages of `role`, and gives the route the account.

    Who is not signed in is sent to the page for it; others get 403. Forms are checked too (`check_form`).
    """

    async def check(request: Request) -> Account:
        account, token = None, request.session.get(TOKEN)
        if token is not None:
            async with site_of(request).database.read() as session:
                account = await find_session(session, token)
            request.state.account = account
        if account is None:
            place = f"{SIGN_IN}?next={quote(back_to(request))}"
            if request.method == "GET" and "HX-Request" not in request.headers:
                raise HTTPException(303, headers={"Location": place})
            raise HTTPException(401, headers={"HX-Redirect": SIGN_IN})
        if not account.may(role):
            raise HTTPException(
                403, f"Your account is {account.role.value}; this needs {role.value}."
            )
        await check_form(request)
        return account

    return check


Viewer = Annotated[Account, Depends(require(Role.VIEWER))]
Reviewer = Annotated[Account, Depends(require(Role.REVIEWER))]
Admin = Annotated[Account, Depends(require(Role.ADMIN))]
