"""Block pages are known whatever their status, and ordinary pages are never taken for one."""
# ruff: noqa: E501 - a table of pages

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from medlive.sources.fetching.block_pages import block_page
from medlive.sources.fetching.fetch import Fetcher
from medlive.sources.fetching.policy import FetchSettings
from tests.support.communities import site_at
from tests.support.refusals import refused

TESTS = Path(__file__).parents[2]
REAL = TESTS.parents[1] / "shared" / "realdata" / "pages"
HTML = {"content-type": "text/html; charset=utf-8"}

BLOCKED = {
    "cloudflare": (
        503,
        "<html><head><title>Just a moment...</title></head><body><noscript>Enable JavaScript</noscript>"
        "<script>window._cf_chl_opt={cvId:'3'};</script></body></html>",
    ),
    "cloudflare-other-language": (
        200,
        "<title>Einen Moment…</title><script>(function(){window._cf_chl_opt={}})()</script>",
    ),
    "cloudflare-1020": (
        403,
        "<title>Access denied | example</title><div id='cf-error-details'><p>You are banned</p></div>"
        "<span data-x='Cloudflare Ray ID'>Cloudflare Ray ID: <b>1</b></span>",
    ),
    "imperva": (
        200,
        '<html><body><iframe id="main-iframe" src="/_Incapsula_Resource?CWUDNSAI=1&incident_id=1">'
        "Request unsuccessful. Incapsula incident ID: 1</iframe></body></html>",
    ),
    "akamai-denied": (
        200,
        "<HTML><HEAD>\n<TITLE>Access Denied</TITLE>\n</HEAD><BODY><H1>Access Denied</H1>You don't have "
        "permission to access this. Reference&#32;&#35;18.1</BODY></HTML>",
    ),
    "akamai-challenge": (
        200,
        '<html><head></head><body><div id="sec-if-cpt-container"></div></body></html>',
    ),
    "datadome": (
        200,
        "<html><body><script>var dd={'rt':'c','host':'geo.captcha-delivery.com'}</script></body></html>",
    ),
    "human": (
        429,
        '<title>Access to this page has been denied</title><div id="px-captcha"></div>',
    ),
    "aws": (
        202,
        '<body><div id="challenge-container"></div><script>window.gokuProps = {"key":"x"};</script></body>',
    ),
    "aliyun-cookie": (
        200,
        "<html><script>var arg1='0123';document.cookie='acw_sc__v2='+arg1;</script></html>",
    ),
    "aliyun-405": (
        405,
        "<html><head><title>405</title></head><body><h2>很抱歉，由于您访问的URL有可能对网站造成安全威胁，"
        "您的访问被阻断。</h2></body></html>",
    ),
    "jiasule": (
        200,
        "<script>document.cookie=('_')+('_jsl');var a='__jsl_clearance=1'</script>",
    ),
    "visit": (
        200,
        "<html><head><title>访问验证</title></head><body><div id=c></div></body></html>",
    ),
    "safety": (
        200,
        "<html><head><title> 安全验证 </title></head><body>请完成下方拼图</body></html>",
    ),
    "slide": (200, "<title>滑动验证页面</title>"),
    "human-zh": (429, "<title>人机验证</title><p>请点击</p>"),
}

ORDINARY = {
    "a thread on captchas": "<title>Captcha, robot check and access denied? | Forum</title><p>The captcha says 安全验证.</p>",
    "a thread with a firewall's title": "<title>访问验证</title><article>"
    + "他二甲双胍服用三个月后出现腹泻。" * 90
    + "</article>",
    "quoted code": "<title>Help | Forum</title><p>What does window._cf_chl_opt mean, or acw_sc__v2?</p>",
    "quoted refusal": "<title>Help</title><p>I got: Request unsuccessful. Incapsula incident ID: 7</p>",
    "behind cloudflare": "<title>T | Forum</title><p>Short.</p><script>window.__CF$cv$params={};a.src="
    "'/cdn-cgi/challenge-platform/scripts/jsd/main.js'</script>",
    "behind imperva": "<title>T</title><p>Short.</p><script src='/_Incapsula_Resource?SWJIYLWA=1'></script>",
    "behind datadome": "<title>T</title><p>Short.</p><script>window.ddjskey='1'</script><script src=https://js.datadome.co/tags.js>"
    "</script>",
    "with a captcha to log in": "<title>T</title><p>Short.</p><div class=g-recaptcha></div><form action=/login></form>",
    "nothing": "",
    "a page gone": "<title>404 Not Found</title><h1>Not Found</h1>",
}


@pytest.mark.parametrize("name", BLOCKED)
def test_block_pages_are_known(name: str) -> None:
    status, page = BLOCKED[name]
    assert block_page(status, HTML, page.encode()), name
    assert block_page(status, {}, page.encode("gb18030")), (
        "in a Chinese encoding, and with no declared type"
    )


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_pages_are_none(name: str) -> None:
    for status in (200, 404, 503):
        assert block_page(status, HTML, ORDINARY[name].encode()) is None


def test_headers_alone_are_enough_and_other_types_are_not_read() -> None:
    assert block_page(202, {"x-amzn-waf-action": "challenge"}, b"")
    assert block_page(200, {"cf-mitigated": "Challenge"}, b"")
    _, page = BLOCKED["cloudflare"]
    assert block_page(200, {"content-type": "application/json"}, page.encode()) is None
    assert block_page(200, HTML, page.encode() + b" " * 1_000_000) is None
    assert block_page(405, HTML, b"<title>405</title>")
    assert block_page(200, HTML, b"<title>405</title>") is None


@pytest.mark.parametrize(
    "content",
    [
        b"\x00" * 5000,
        b"<title>" * 5000,
        b"<title" + b" " * 90_000,
        b"<" * 50_000,
        b"\xff\xfe<",
    ],
)
def test_rubbish_is_no_block_page(content: bytes) -> None:
    assert block_page(200, HTML, content) is None


def test_no_page_of_the_tests_is_taken_for_a_block() -> None:
    pages = [
        path
        for path in (TESTS / "pages").rglob("*")
        if path.suffix in (".html", ".htm")
    ]
    assert len(pages) > 10
    assert [
        path.name for path in pages if block_page(200, HTML, path.read_bytes())
    ] == []


@pytest.mark.skipif(not REAL.is_dir(), reason="no real pages beside the repository")
def test_no_real_page_is_taken_for_a_block() -> None:
    pages = [
        path
        for path in REAL.rglob("*")
        if path.is_file() and path.suffix in (".html", ".htm")
    ]
    assert len(pages) > 20
    assert [
        path.name for path in pages if block_page(200, HTML, path.read_bytes())
    ] == []


async def test_a_block_page_ends_the_host_whatever_its_status() -> None:
    for name in ("cloudflare", "visit", "aws", "human-zh", "aliyun-405"):
        status, page = BLOCKED[name]
        asked: list[str] = []

        async def answer(
            request: web.Request,
            status: int = status,
            page: str = page,
            asked: list[str] = asked,
        ) -> web.Response:
            asked.append(request.path)
            found = web.Response(text="User-agent: *\nAllow: /")
            return (
                found
                if request.path == "/robots.txt"
                else web.Response(text=page, status=status, content_type="text/html")
            )

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        async with (
            TestServer(app) as server,
            Fetcher(FetchSettings(allow_loopback=True, backoff_s=0.0)) as fetcher,
        ):
            site = site_at(f"http://127.0.0.1:{server.port}")
            for path in ("/a", "/b"):
                with refused("blocked") as caught:
                    await fetcher.fetch(f"http://127.0.0.1:{server.port}{path}", site)
                assert caught.value.status == status
        assert asked == ["/robots.txt", "/a"]
