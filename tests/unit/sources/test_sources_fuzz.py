"""Whatever bytes come, a parser gives what the page shows or a typed error, in work that grows evenly."""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medlive.guard.bounds import PAGE_BYTES
from medlive.sources.reading import discussions, parse, readable
from medlive.sources.registry import SITES, build_site
from medlive.sources.source import LayoutError, NotAThread, Page
from medlive.threads.model import Thread
from tests.support.site_pages import PAGES, URLS

FILES = sorted(path for path in PAGES.glob("*/*") if path.suffix in (".html", ".json"))
FORM = (("branch", "case"), ("page", "1"), ("size", "20"), ("_token", "t"))
fuzzed = settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck)
)


def enter(site_name: str, body: bytes) -> list[object]:
    """What every way into a site's parser gives; a typed error is a result, any other exception fails the test."""
    site = build_site(site_name)
    page = Page(URLS[site_name], body)
    posted = Page("https://www.medlive.cn/new/articlelist", body, FORM)
    results: list[object] = []
    ways: list[Callable[[], object]] = [
        lambda: site.parse_thread([page], lambda handle: f"h:{handle}"),
        lambda: site.parse_thread([page, page], str),
        lambda: site.parse_listing(page),
        lambda: site.parse_listing(posted),
        lambda: site.next_page(page),
        lambda: discussions(parse(page)),
    ]
    for way in ways:
        try:
            results.append(way())
        except (LayoutError, NotAThread) as error:
            results.append(error)
    page.text.encode("utf-8")
    return results


def check(result: object) -> None:
    """What holds for every thread, whatever page it came from."""
    if not isinstance(result, Thread):
        return
    assert [m.id for m in result.messages] == [
        f"m{n}" for n in range(len(result.messages))
    ]
    assert result.messages[0].role == "patient"
    for message in result.messages:
        assert message.verified == (message.role == "physician")
        assert message.verified or message.verified_by is None
        message.text.encode("utf-8")
        assert "\x00" not in message.text
    assert result.digest


@pytest.mark.parametrize("site", sorted(SITES))
@fuzzed
@given(
    body=st.binary(max_size=600),
)
def test_any_bytes(site: str, body: bytes) -> None:
    for result in enter(site, body + b"</html>"):
        check(result)


@pytest.mark.matrix
@pytest.mark.parametrize("file", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
@fuzzed
@given(data=st.data())
def test_pieces_of_a_page_lost_doubled_and_moved(
    file: Path, data: st.DataObject
) -> None:
    pieces = re.split(rb"(<[^>]*>)", file.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(pieces) - 1))
        other = data.draw(st.integers(0, len(pieces) - 1))
        change = data.draw(st.sampled_from(["lose", "double", "move", "foreign"]))
        if change == "lose":
            pieces[at] = b""
        elif change == "double":
            pieces[at] *= 2
        elif change == "move":
            pieces[at], pieces[other] = pieces[other], pieces[at]
        else:
            pieces[at] += data.draw(
                st.sampled_from(
                    [b"<!--", b"</div>", b"<script>", b"]]>", b'"', b"<table>", b"\x00"]
                )
            )
    for result in enter(file.parent.name, b"".join(pieces)):
        check(result)


@pytest.mark.matrix
@pytest.mark.parametrize("file", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_pages_cut_and_bytes_flipped_at_regular_places(file: Path) -> None:
    body = file.read_bytes()
    step = max(1, len(body) // 12)
    for at in range(0, len(body), step):
        for result in enter(file.parent.name, body[:at]):
            check(result)
        for flip in (0x01, 0x80):
            flipped = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
            for result in enter(file.parent.name, flipped):
                check(result)


POST = (
    b'<article class="message--post" data-author="a" data-content="post-%d"><div class="message-attribution">'
    b'<time datetime="2025-03-01T08:00:00+0000"></time></div><div class="message-userContent">'
    b'<div class="bbWrapper">x<script>y("<</p>")</script></div></div></article>'
)
THREAD = (
    b'<html id="XF" data-template="thread_view" data-content-key="thread-1"><h1 class="p-title-value">t</h1>'
    b"%s</html>"
)
BOARD = b'<html id="XF" data-template="forum_view">%s</html>'
ROW = b'<div class="structItem--thread"><div class="structItem-title"><a href="/threads/a.%d/">t</a></div></div>'
ANSWER = b'<div class="answerDiv"><p class="doctor-name">Dr. A</p><div class="ansExtCon">x</div></div>'
TURN = b'<div class="theme-%s"><div class="dialog-content">x</div></div>'
CONSULTATION = (
    b'<html><div class="doctor-info"><div class="doctor-detail"><div class="doctor-header"><div>a</div></div>'
    b'<div class="doctor-body"><div>b</div><div>c</div><div>d</div></div></div></div>'
    b'<h1 class="question-title">t</h1><div class="question-detail-dialogs">%s</div></html>'
)
COMMENT = b'<dl><dd><a href="/u/%d">u%d</a><i title="x"></i><span>2025-01-01</span></dd><dd>x</dd></dl>'
CASE = (
    b'<html><div class="title_cms">t</div><a class="color_888">a</a><div class="content_body">x</div>'
    b'<div class="inc_c">%s</div></html>'
)
GROWING: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "posts": ("sdn", lambda n: THREAD % b"".join(POST % k for k in range(n))),
    "rows": ("sdn", lambda n: BOARD % b"".join(ROW % k for k in range(n))),
    "strays": (
        "sdn",
        lambda n: THREAD % (POST % 1 + b'<div class="message-attribution"></div>' * n),
    ),
    "links": (
        "sdn",
        lambda n: (
            THREAD % (POST % 1 + b'<p class="pageNav"><a href="/page-2x">2</a></p>' * n)
        ),
    ),
    "answers": (
        "icliniq",
        lambda n: (
            b'<html><h1>t</h1><div class="articleConDiv"><div class="qContent">q</div>'
            + ANSWER * n
            + b"</div></html>"
        ),
    ),
    "turns": (
        "dxy",
        lambda n: CONSULTATION % (TURN % b"dark" + TURN % b"white" * n),
    ),
    "comments": (
        "medlive",
        lambda n: CASE % b"".join(COMMENT % (k, k) for k in range(n)),
    ),
    "stated answers": (
        "icliniq",
        lambda n: (
            b'<html><script type="application/ld+json">{"@type":"Question","name":"t","text":"q",'
            b'"suggestedAnswer":[%s]}</script></html>'
            % b",".join(b'{"text":"<p>%d","author":"a"}' % k for k in range(n))
        ),
    ),
}


def calls(work: Callable[[], list[object]]) -> tuple[int, list[object]]:
    """The calls, of Python and of C functions, that a piece of work makes, and what it gives."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        results = work()
    finally:
        sys.setprofile(before)
    return count, results


@pytest.mark.matrix
@pytest.mark.parametrize("kind", sorted(GROWING))
def test_twice_the_page_is_at_most_twice_the_work(kind: str) -> None:
    site, made = GROWING[kind]
    counts = []
    for size in (150, 300):
        body = made(size)
        count, results = calls(partial(enter, site, body))
        counts.append(count)
        assert any(
            not isinstance(r, LayoutError | NotAThread | tuple) and r is not None
            for r in results
        ), "it is read"
    assert counts[1] < 2.3 * counts[0]


HOSTILE: dict[str, bytes] = {
    "nested tags": b"<div>" * 30_000,
    "siblings": b"<div></div>" * 50_000,
    "attributes": b"<p " + b" ".join(b"a%d" % n for n in range(50_000)) + b">",
    "attributes without spaces": b"<p "
    + b"".join(b'a%d=""' % n for n in range(50_000))
    + b">",
    "attributes behind a quotation mark": b"<p x' "
    + b" ".join(b"a%d" % n for n in range(50_000))
    + b">",
    "one attribute": b'<p title="' + b"a " * 1_000_000 + b'">',
    "entities": b"&amp;lt;" * 200_000,
    "json-ld nested": b'<script type="application/ld+json">'
    + b'{"mainEntity":' * 30_000
    + b"</script>",
    "json-ld numbers": b'<script type="application/ld+json">{"@type":"Question","dateCreated":NaN,"text":1e999,'
    b'"name":-Infinity,"acceptedAnswer":{"dateCreated":' + b"9" * 4000 + b"}}</script>",
    "json-ld number": b'<script type="application/ld+json">{"@type":"Question","x":'
    + b"9" * 9999
    + b"}</script>",
    "links": b'<a class="pageNav-jump--next" href="javascript:alert(1)">n</a><a href="data:text/html,x">d</a>',
    "unclosed scripts": b"<xmp>" + b"<script>" * 20_000 + b"</xmp>",
}


@pytest.mark.matrix
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_hostile_pages_are_read_or_refused(kind: str) -> None:
    for site, opening in {
        "sdn": THREAD % (POST % 1 + b"%s"),
        "icliniq": b"<html><h1>t</h1>%s</html>",
    }.items():
        for result in enter(site, opening.replace(b"%s", HOSTILE[kind])):
            check(result)


@pytest.mark.parametrize(
    "kind", [kind for kind in sorted(HOSTILE) if kind.startswith("attributes")]
)
def test_a_tag_whose_attributes_would_take_hours_is_not_parsed(kind: str) -> None:
    with pytest.raises(LayoutError):
        parse(HOSTILE[kind].decode())


def test_the_size_of_a_page_is_capped() -> None:
    page = Page(URLS["sdn"], b"x" * PAGE_BYTES + b"</html>")
    with pytest.raises(LayoutError):
        parse(page)


def test_one_text_of_a_million_characters_is_whole() -> None:
    body = THREAD % (POST % 1).replace(
        b">x<script", b">" + b"word " * 200_000 + b"<script"
    )
    thread = build_site("sdn").parse_thread([Page(URLS["sdn"], body)], str)
    assert len(thread.messages[0].text) == 5 * 200_000 - 1


def test_scripts_in_every_field_say_nothing() -> None:
    script = b"<script>steal('<p>\"')</script>"
    body = (PAGES / "sdn" / "thread_page2.html").read_bytes()
    loaded = re.sub(
        rb"(<(?:h1|h4|li|p|div|time|a)\b[^>]*>)",
        rb"\1" + script.replace(b"\\", b"\\\\"),
        body,
    )
    url = URLS["sdn"] + "page-2"
    first = Page(URLS["sdn"], (PAGES / "sdn" / "thread_page1.html").read_bytes())
    site = build_site("sdn")
    clean = site.parse_thread([first, Page(url, body)], str)
    thread = site.parse_thread([first, Page(url, loaded)], str)
    assert [m.text for m in thread.messages] == [m.text for m in clean.messages]


@given(
    before=st.text(max_size=30),
    after=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_no_script_hides_what_stands_after_it(before: str, after: str) -> None:
    script = before.replace("<", "").replace("\x00", "")
    word = "".join(after.split()) and "tail"
    body = parse(
        f'<p>head</p><script>if (a<b) "{script}</script><p>{word}</p><p title="x">end</p>'
    ).body
    assert body is not None
    assert readable(body).text.split() == ["head", *([word] if word else []), "end"]
