"""Signing in at an identity provider: OpenID Connect's code flow with PKCE, nonce and state, by authlib."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError, StarletteOAuth2App
from fastapi import HTTPException, Request
from fastapi.responses import Response
from joserfc.errors import JoseError

from medlive.config import OidcSection
from medlive.db.accounts import Account, save_external
from medlive.db.tables.accounts import Role
from medlive.errors import CheckFailed
from medlive.guard.trust import tls_context
from medlive.web.site import Site

_log = logging.getLogger(__name__)
_UNREADABLE = (
    AttributeError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What authlib raises, without a class of its own, of documents that are not as OpenID Connect has them."""
BACK = "/sign-in/provider/back"


async def leave(request: Request, site: Site) -> Response:
    """Redirect to the identity provider. Raises HTTPException where it is not configured (404) or away (503)."""
    with _unavailable_as_503():
        answer = await _client(request, site).authorize_redirect(
            request, site.settings.web.base_url + BACK
        )
    return cast(Response, answer)


async def come_back(request: Request, site: Site) -> Account:
    """The account of the person whom the provider names, with the role that the claims give now. Raises CheckFailed."""
    client, settings = _client(request, site), site.settings.web.oidc
    assert settings is not None
    try:
        with _unavailable_as_503():
            token = await client.authorize_access_token(request)
            claims = token.get("userinfo")  # Of the ID token
            if (
                claims
                and not {settings.name_claim, settings.role_claim.partition(".")[0]}
                <= claims.keys()
            ):
                more = await client.userinfo(token=token)
                claims = {**more, **claims} if more["sub"] == claims["sub"] else None
    except (OAuthError, JoseError) as error:
        raise CheckFailed(
            "The identity provider did not confirm who you are. Try again."
        ) from error
    if not claims or claims["iss"] != settings.issuer:
        raise CheckFailed("The identity provider did not say who you are.")
    role, name = role_of(settings, claims), claims.get(settings.name_claim)
    if role is None or not isinstance(name, str):
        raise CheckFailed(
            "Your account at the identity provider has no role here. Ask an admin for one."
        )
    try:
        subject = f"{settings.issuer}#{claims['sub']}"
        account = await site.database.ask(save_external, subject, name, role)
    except CheckFailed as error:
        raise CheckFailed(f"You cannot sign in: {error.message}.") from error
    if account is None:
        raise CheckFailed("Your account is disabled.")
    return account


@contextmanager
def _unavailable_as_503() -> Iterator[None]:
    """Raise HTTPException 503 where the provider cannot be reached or its answer cannot be read."""
    try:
        yield
    except (OAuthError, JoseError):
        raise
    except httpx2.HTTPError as error:
        raise HTTPException(
            503, "The identity provider cannot be reached. Try again in a moment."
        ) from error
    except _UNREADABLE as error:
        _log.error("the identity provider's answer cannot be read: %r", error)
        raise HTTPException(
            503, "The identity provider's answer cannot be read. Tell an admin."
        ) from error


def role_of(settings: OidcSection, claims: dict[str, Any]) -> Role | None:
    """The highest role that the claim's value or values give; None if none does."""
    claim: Any = claims.get(settings.role_claim)
    if settings.role_claim not in claims:
        claim = claims
        for key in settings.role_claim.split("."):
            claim = claim.get(key) if isinstance(claim, dict) else None
    values = claim if isinstance(claim, list) else [claim]
    names = [settings.roles.get(value) for value in values if isinstance(value, str)]
    return max(
        map(Role, filter(None, names)),
        key=list(Role).index,
        default=None,
    )


def _client(request: Request, site: Site) -> StarletteOAuth2App:
    """The client of the provider, made once for an application, with what it learnt of the provider."""
    settings = site.settings.web.oidc
    if settings is None:
        raise HTTPException(404)
    if not hasattr(request.app.state, "oidc"):
        request.app.state.oidc = OAuth().register(
            "medlive",
            client_id=settings.client_id,
            client_secret=os.environ[settings.client_secret_env],
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": settings.scope,
                "code_challenge_method": "S256",
                "verify": tls_context(),
            },
        )
    return cast(StarletteOAuth2App, request.app.state.oidc)
