"""A served site, and browsers that fill in its forms as people do."""

import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
from itsdangerous import TimestampSigner

from medlive.cli.site import served_evaluation
from medlive.config import Settings
from medlive.db import accounts
from medlive.db.accounts import Account
from medlive.db.session import Database
from medlive.db.tables.accounts import Role
from medlive.web.accounts.passwords import hash_password
from medlive.web.app import ROOMS, build_app, serve_web
from medlive.web.site import Room, Site

PASSWORD = "correct horse battery"


def site_of(database: Database, folder: Path, **web: Any) -> Site:
    """A site whose settings for the web are these."""
    return Site(database, Settings.model_validate({"home": folder, "web": web}), folder)


def whole_site(
    database: Database, settings: Settings, snapshots: Path, preview: bool = False
) -> Site:
    """A site with what it shows of the evaluation, as `medlive serve` makes it."""
    evaluation = served_evaluation(settings, snapshots, preview)
    return Site(database, settings, snapshots, preview, evaluation)


@asynccontextmanager
async def served(
    site: Site, rooms: Iterable[Room] = ROOMS, host: str = "127.0.0.1"
) -> AsyncIterator["Browser"]:
    """A browser at the site that is served while the context lasts; by IPv4, also where it listens on `::`."""
    async with (
        serve_web(build_app(site, rooms), host, 0) as url,
        Browser(base_url=url.replace("[::]", "127.0.0.1")) as browser,
    ):
        yield browser


class Browser(httpx2.AsyncClient):
    """Keeps cookies, follows no redirect by itself, and sends the form that a page shows."""

    def __init__(self, **options: Any) -> None:
        # A page that verifies a folder takes seconds on a busy machine; without TLS no certificates are read.
        super().__init__(verify=False, **{"timeout": 60, **options})

    async def fill(
        self, page: str, action: str | None = None, /, **fields: str
    ) -> httpx2.Response:
        """Open a page and send its form: with the hidden fields that it has, and these."""
        shown = await self.get(page)
        return await self.post(action or page, data=hidden_fields(shown.text) | fields)

    async def sign_in(self, name: str, password: str = PASSWORD) -> httpx2.Response:
        """Send the form of `/sign-in`."""
        return await self.fill("/sign-in", name=name, password=password)

    def another(self, **options: Any) -> "Browser":
        """A browser at the same site without this one's cookies."""
        return Browser(base_url=self.base_url, **options)


def hidden_fields(page: str) -> dict[str, str]:
    """Name and value of a page's hidden fields."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


async def add_account(
    database: Database, name: str, role: Role = Role.ADMIN
) -> Account:
    """Make an account whose password is `PASSWORD`."""
    hashed = await hash_password(PASSWORD)
    async with database.begin() as session:
        account = await accounts.use_link(
            session, await accounts.invite(session, name, role), hashed
        )
    assert account is not None
    return account


async def session_of(site: Site, account: Account | None) -> dict[str, str]:
    """The cookie and the header of forms of a browser, in which the account is signed in."""
    held = {"csrf": "token of forms"}
    if account is not None:
        async with site.database.begin() as session:
            held["token"] = await accounts.start_session(session, account)
    cookie = TimestampSigner(site.key.hex()).sign(b64encode(json.dumps(held).encode()))
    return {"Cookie": f"medlive={cookie.decode()}", "X-CSRF-Token": held["csrf"]}
