"""Templates and their contexts, static files, and what every response has, without a database."""

import ast
import re
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import meta

import medlive.web
from medlive.config import Settings
from medlive.db.session import Database
from medlive.web.app import build_app, serve_web
from medlive.web.pages import TEMPLATES, local_path, quote_path
from medlive.web.site import Site


def contexts() -> Iterator[tuple[str, set[str]]]:
    """Each place that fills a template: its name, and what is given to it."""
    for path in sorted(Path(medlive.web.__path__[0]).rglob("*.py")):
        module = path.read_text(encoding="utf-8")
        if ".html" not in module:
            continue
        for node in ast.walk(ast.parse(module)):
            for own in node.args if isinstance(node, ast.Call) else ():
                if isinstance(own, ast.Constant) and re.fullmatch(
                    r"[a-z_]+.*\.html", str(own.value)
                ):
                    assert isinstance(node, ast.Call)
                    yield str(own.value), {str(word.arg) for word in node.keywords}


@cache
def used_names(template: str) -> frozenset[str]:
    """What a template, and those that it extends or includes, takes from its context."""
    assert TEMPLATES.loader is not None
    tree = TEMPLATES.parse(TEMPLATES.loader.get_source(TEMPLATES, template)[0])
    used = meta.find_undeclared_variables(tree) - TEMPLATES.globals.keys()
    return frozenset(used).union(
        *(used_names(other) for other in meta.find_referenced_templates(tree) if other)
    )


@given(st.lists(st.sampled_from([".", "..", "", "a", "%2e", "\\", "?", "x y", "中"])))
@example(["..", "..", "acts", "take-down", "test", "2"])
@example(["", "", "..", ""])
def test_no_address_of_a_thread_leads_to_another_page(parts: list[str]) -> None:
    path = "/audit/threads/test/" + "/".join(parts)
    address = quote_path(path)
    assert unquote(address) == path
    # As a browser reads a link, and as a proxy merges slashes.
    read = urljoin("http://site.example/audit/threads", address)
    merged = re.sub("//+", "/", address)
    assert unquote(urlsplit(read).path) == path
    assert unquote(merged) == path
    assert TEMPLATES.from_string("{{ x | path }}").render(x=path) == address


@pytest.mark.parametrize(("template", "names"), list(contexts()))
def test_a_template_uses_exactly_its_context(template: str, names: set[str]) -> None:
    around = {"sections", "user_name", "csrf"}
    assert used_names(template) - around == names


def test_every_template_is_filled_somewhere() -> None:
    shared = {
        name
        for name in TEMPLATES.list_templates()
        if name in ("base.html", "table.html") or "/_" in name
    }
    filled = {template for template, _ in contexts()}
    assert filled == set(TEMPLATES.list_templates()) - shared


def test_no_template_has_inline_script_or_style() -> None:
    inline = re.compile(
        r"<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", re.IGNORECASE
    )
    assert TEMPLATES.loader is not None
    for name in TEMPLATES.list_templates():
        assert not inline.search(TEMPLATES.loader.get_source(TEMPLATES, name)[0]), name


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a site whose database is away."""
    away = Database.connect("postgresql://nobody:verysecret@127.0.0.1:1/none")
    app = build_app(Site(away, Settings(home=tmp_path), tmp_path))
    async with (
        serve_web(app, "127.0.0.1", 0) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        yield client
    await away.aclose()


async def test_every_response_has_the_security_headers(
    http: httpx2.AsyncClient,
) -> None:
    for path in (
        "/",
        "/nothing",
        "/readyz",
        "/static/nothing",
    ):
        headers = (await http.get(path)).headers
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in headers


async def test_errors_are_pages(
    http: httpx2.AsyncClient,
) -> None:
    page = await http.get("/<script>alert(1)</script>")
    assert (page.status_code, page.headers["Content-Type"]) == (
        404,
        "text/html; charset=utf-8",
    )
    assert "There is nothing at this address" in page.text
    assert "<script>alert" not in page.text
    assert (await http.post("/readyz")).status_code == 405


async def test_a_database_that_is_away_is_said_without_its_address(
    http: httpx2.AsyncClient,
) -> None:
    for path in ("/", "/readyz"):
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
        assert "verysecret" not in answer.text
    # Restarting the process would not bring the database back.
    assert (await http.get("/healthz")).json()["status"] == "ok"


async def test_the_files_of_a_page_are_asked_for_again_each_time(
    http: httpx2.AsyncClient,
) -> None:
    page = await http.get("/nothing")
    names = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
    assert len(names) == 4
    for name in names:
        answer = await http.get(name)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "no-cache"
        known = {"If-None-Match": answer.headers["ETag"]}
        assert (await http.get(name, headers=known)).status_code == 304


@pytest.mark.parametrize(
    ("back", "location"),
    [
        ("/errata?x=1", "/errata?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\r\nSet-Cookie: a=b", "/"),
        ("/\t/evil.example", "/"),
    ],
)
def test_a_form_leads_back_to_this_site_alone(back: str, location: str) -> None:
    assert local_path(back) == location


def test_htmx_is_the_published_file() -> None:
    """Its digest is that of htmx.org 4.0.1 in npm's registry, whose licence lies beside it."""
    from medlive.integrity.digest import digest_file

    folder = Path(__file__).parents[3] / "medlive/web/static"
    digest = "sha256:a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
    assert digest_file(folder / "htmx.min.js") == digest
    assert (folder / "htmx.LICENSE").read_text().startswith("Zero-Clause BSD")
