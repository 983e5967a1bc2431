"""Every route of the application by every role and signed out; a new private route needs a line in `NEEDS`."""

import re
from collections.abc import Iterable
from pathlib import Path

from fastapi import APIRouter, Depends
from fastapi.routing import iter_route_contexts

from medlive.config import Settings
from medlive.db.session import Database
from medlive.db.tables.accounts import GRANTS, Role
from medlive.web.accounts.access import require
from medlive.web.app import ROOMS, build_app
from medlive.web.site import Room, Site
from tests.support.web import add_account, served, session_of, site_of, whole_site

METHODS = ("GET", "POST")
NEEDS: dict[str, Role | None] = {
    "GET /": None,
    "GET /sign-in": None,
    "POST /sign-in": None,
    "GET /sign-in/provider": None,
    "GET /sign-in/provider/back": None,
    "GET /invitation/{token}": None,
    "POST /invitation/{token}": None,
    "POST /sign-out": Role.VIEWER,
    "GET /account": Role.VIEWER,
    "GET /acts/log": Role.VIEWER,
    "GET /review": Role.REVIEWER,
    "POST /review/studies": Role.ADMIN,
    "GET /review/studies/{name}": Role.REVIEWER,
    "POST /review/studies/{name}/items/{position}": Role.REVIEWER,
    "GET /review/studies/{name}/results": Role.REVIEWER,
    "POST /review/studies/{name}/close": Role.ADMIN,
    "GET /review/studies/{name}/ratings.csv": Role.ADMIN,
    "GET /acts/case/{case_id}": Role.ADMIN,
    "POST /acts/case/{case_id}/edit": Role.ADMIN,
    "POST /acts/case/{case_id}/prove": Role.ADMIN,
    "GET /acts/take-down/{source}/{thread_id:path}": Role.ADMIN,
    "POST /acts/take-down/{source}/{thread_id:path}": Role.ADMIN,
    "GET /acts/withdraw/{case_id}": Role.ADMIN,
    "POST /acts/withdraw/{case_id}": Role.ADMIN,
    "POST /acts/{kind}/{subject:path}": Role.ADMIN,
    "POST /account/password": Role.VIEWER,
    "GET /audit": Role.VIEWER,
    "GET /audit/gaps": Role.VIEWER,
    "GET /audit/{table}": Role.VIEWER,
    "GET /audit/{table}.csv": Role.VIEWER,
    "GET /audit/threads/{source}/{thread_id:path}": Role.VIEWER,
    "GET /audit/cases/{case_id}": Role.VIEWER,
    "GET /audit/requests/{digest}": Role.VIEWER,
}
"""Route of a private room → the role that it needs; None: it is for who is not signed in yet."""


def routes(public: bool) -> set[str]:
    """The routes that an application has for its public or its private rooms, besides those of every one."""
    site = Site(
        Database.connect("postgresql://127.0.0.1:1/none"),
        Settings(home=Path("/")),
        Path("/"),
    )

    def of(rooms: Iterable[Room]) -> set[str]:
        found = list(iter_route_contexts(build_app(site, rooms).routes))
        unknown = [context.path for context in found if not context.methods]
        assert unknown == ["/static"], "a kind of route unknown to this test"
        return {
            f"{method} {context.path}"
            for context in found
            for method in context.methods or ()
        }

    return of([room for room in ROOMS if room.public is public]) - of([])


async def test_private_rooms_may_be_served_alone(
    database: Database, tmp_path: Path
) -> None:
    async with served(
        site_of(database, tmp_path), [room for room in ROOMS if not room.public]
    ) as browser:
        start = await browser.get("/")
        assert (start.status_code, start.headers["Location"]) == (
            303,
            ROOMS[1].sections[0].href,
        )
        assert (await browser.get("/medlive-2026.W01/manifest.json")).status_code == 404
    site = whole_site(database, site_of(database, tmp_path).settings, tmp_path)
    async with served(site, [room for room in ROOMS if room.public]) as browser:
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/sign-in")).status_code == 404


def test_every_private_route_says_whom_it_is_for() -> None:
    assert routes(public=False) == NEEDS.keys()


def test_public_rooms_change_nothing() -> None:
    assert {route.partition(" ")[0] for route in routes(public=True)} <= {"GET", "HEAD"}


async def test_each_route_lets_in_who_may_and_nobody_else(
    database: Database, web_database: Database, tmp_path: Path
) -> None:
    site = site_of(web_database, tmp_path)
    people: dict[Role | None, dict[str, str]] = {None: await session_of(site, None)}
    for role in Role:
        people[role] = await session_of(
            site, await add_account(database, role.value, role)
        )
    wrong = []
    async with served(site) as browser:
        # Signing out comes last: it ends the sessions.
        for route in sorted(
            routes(public=False) | routes(public=True),
            key=lambda route: "sign-out" in route,
        ):
            method, _, path = route.partition(" ")
            needed = NEEDS.get(route)
            # A public route asks nobody who they are.
            asking = people if route in NEEDS else {None: people[None]}
            for role, headers in asking.items():
                answer = await browser.request(
                    method, re.sub(r"\{[^}]+\}", "x", path), headers=headers
                )
                if needed is None or (role is not None and needed in GRANTS[role]):
                    right = answer.status_code not in (
                        401,
                        403,
                        500,
                    ) and "next=" not in answer.headers.get("Location", "")
                elif role is None:
                    right = answer.status_code == 401 or answer.headers.get(
                        "Location", ""
                    ).startswith("/sign-in?")
                else:
                    right = answer.status_code == 403
                if (
                    needed
                    and role
                    and answer.headers.get("Content-Type", "").startswith("text/html")
                ):
                    # Nobody is led to where they may not go.
                    right = right and ('href="/review"' in answer.text) is (
                        Role.REVIEWER in GRANTS[role]
                    )
                if not right:
                    wrong.append(f"{route} by {role}: {answer.status_code}")
    assert wrong == []


async def test_what_changes_something_needs_the_token_of_forms(
    database: Database, tmp_path: Path
) -> None:
    site = site_of(database, tmp_path)
    signed_in = await session_of(site, await add_account(database, "ada"))
    unsafe = [
        route
        for route in routes(public=False)
        if not route.startswith(("GET ", "HEAD "))
    ]
    assert len(unsafe) >= 4
    async with served(site) as browser:
        for route in unsafe:
            method, _, path = route.partition(" ")
            for given in ("", "wrong"):
                headers = signed_in | {"X-CSRF-Token": given}
                answer = await browser.request(
                    method, re.sub(r"\{[^}]+\}", "x", path), headers=headers
                )
                assert answer.status_code == 403, route


async def test_a_role_opens_its_own_routes_and_those_of_the_roles_it_includes(
    database: Database, tmp_path: Path
) -> None:
    router = APIRouter()
    for needed in Role:
        needs = [Depends(require(needed))]
        router.add_api_route(
            f"/{needed}", lambda: "done", methods=["GET", "POST"], dependencies=needs
        )
    site = site_of(database, tmp_path)
    opened = set()
    async with served(site, [Room(False, router)]) as browser:
        for role in Role:
            headers = await session_of(
                site, await add_account(database, role.value, role)
            )
            for needed in Role:
                got = {
                    (
                        await browser.request(how, f"/{needed}", headers=headers)
                    ).status_code
                    for how in METHODS
                }
                assert got in ({200}, {403})
                opened |= {(role, needed)} if got == {200} else set()
    assert opened == {(role, needed) for role in Role for needed in GRANTS[role]}
