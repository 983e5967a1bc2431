"""Decoding, dates, readable text and structured data, and what hostile pages do to them."""

import contextlib
import itertools
import json
import time
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.sources.reading import (
    CHINA,
    INDIA,
    discussions,
    parse,
    readable,
    shown_date,
    stated_moment,
)
from medlive.sources.registry import SITES, build_site
from medlive.sources.source import LayoutError, NotAThread, Page, host_of, link
from tests.support.site_pages import SHELLS, URLS

CHINESE = (
    "<html><p>患者女，32岁，反复发热十天，体温最高39.5℃。建议查血常规。</p></html>"
)


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "gb18030", "utf-16"],
)
def test_text_is_decoded_by_what_its_bytes_are(encoding: str) -> None:
    body = CHINESE.encode(encoding)
    text = Page("https://x/", body).text
    assert "患者女" in text
    assert "最高39.5" in text
    assert "\ufffd" not in text


def test_a_few_damaged_bytes_do_not_turn_a_page_into_another_encoding() -> None:
    body = CHINESE.replace("</p>", "血" * 100 + "</p>").encode()
    damaged = body[:60] + b"\xff" + body[60:]
    text = Page("https://x/", damaged).text
    assert text.count("\ufffd") <= 4
    assert "血" * 50 in text
    latin = "<p>Sjögren, café au lait</p>".encode("cp1252")
    assert "Sjögren" in Page("https://x/", latin).text


@given(st.binary(max_size=400))
def test_every_body_decodes_to_text_that_can_be_stored(body: bytes) -> None:
    Page("https://x/", body).text.encode("utf-8")


CHINESE_WORDS = st.lists(
    st.sampled_from(
        [
            "患者",
            "，",
            "反复发热",
            "39.5℃",
            " mg ",
            "。",
            "阿司匹林",
            "\n",
            "血压160/95",
        ]
    ),
    min_size=4,
    max_size=60,
).map("".join)


@given(
    # Not of 血压 alone: its bytes in GB18030 happen to be valid UTF-8, which nothing can tell apart.
    CHINESE_WORDS.filter(lambda t: "患者" in t),
    st.sampled_from(["gb18030", "utf-8", "utf-8-sig", "utf-16"]),
)
def test_chinese_is_read_by_its_bytes(text: str, encoding: str) -> None:
    body = f"<html>{text}</html>".encode(encoding)
    assert Page("https://x/", body).text == f"<html>{text}</html>"


@given(st.text(alphabet="abcdefg éèüöñçß.,", min_size=5, max_size=80))
def test_western_text_is_not_taken_for_chinese(words: str) -> None:
    text = "café au lait " + words.replace("\n", " ")
    single = " ".join(part for part in text.split() if not _double_accent(part))
    assert Page("https://x/", single.encode("cp1252")).text == single


def _double_accent(word: str) -> bool:
    return any(a > "\x7f" and b > "\x7f" for a, b in itertools.pairwise(word))


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_utf8_is_read_as_utf8(text: str) -> None:
    body = text.encode()
    if not body.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        assert Page("https://x/", body).text == text


def test_a_page_that_holds_replacement_characters_is_still_utf8() -> None:
    text = "caf\ufffd \ufffd"
    assert Page("https://x/", text.encode()).text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "published on Jul 06, 2018 and last reviewed on: Jul 18, 2023",
            datetime(2018, 7, 6, tzinfo=UTC),
        ),
        ("2025-03-01 08:00", datetime(2025, 3, 1, 0, 0, tzinfo=UTC)),
        ("发表于 2025年3月1日 08:00:30", datetime(2025, 3, 1, 0, 0, 30, tzinfo=UTC)),
        ("2025/3/1", datetime(2025, 3, 1, tzinfo=UTC)),
        ("2025-03-01T08:00:00-0500", datetime(2025, 3, 1, 13, 0, tzinfo=UTC)),
        ("2025-03-01T08:00:00.123Z", datetime(2025, 3, 1, 8, 0, tzinfo=UTC)),
        ("2025-02-30, really 2025-03-02", None),
        ("12:33 AM", None),
        ("call 2345-67-89", None),
        ("0001-01-01", None),
        ("Zzz 06, 2018", None),
        ("", None),
    ],
)
def test_shown_dates(text: str, expected: datetime | None) -> None:
    assert shown_date(text, CHINA) == expected


def test_stated_moments() -> None:
    moment = datetime(2025, 3, 1, tzinfo=UTC)
    seconds = int(moment.timestamp())
    for value in (seconds, str(seconds), seconds * 1000, "2025-03-01 05:30:00"):
        assert stated_moment(value, INDIA) == moment
    odd: list[Any] = [
        None,
        True,
        -1,
        10**30,
        float("nan"),
        float("inf"),
        "9" * 5000,
        [],
        {},
        "soon",
    ]
    for value in odd:
        assert stated_moment(value, INDIA) is None


@given(st.text(max_size=200), st.sampled_from([CHINA, INDIA, UTC]))
def test_no_text_breaks_a_date(text: str, zone: object) -> None:
    moment = shown_date(text, zone)  # type: ignore[arg-type]
    assert moment is None or moment.tzinfo is UTC


def test_readable_text() -> None:
    body = parse(
        "<p>one  two<br>three</p><div>four<script>no()</script><b>five</b></div>"
        "<table><tr><td>6</td><td>7</td></tr></table>"
        "<p class='x q'>quoted <i>a</i><p class=q>b</p></p><ul><li>8<li>9</ul><pre>a\n  b</pre>"
        "<p title='1 > 0'>a &lt; b &amp; c</p><img src=a.jpg><img class=smilie src=b.jpg><video src=c></video>"
        "<!-- <p>hidden</p> -->\u200bend"
    ).body
    assert body is not None
    got = readable(body, skip_classes=frozenset(["q"]))
    assert (
        got.text
        == "one two\nthree\n\nfourfive\n\n6 7\n\n8\n\n9\n\na\nb\n\na < b & c\nend"
    )
    assert got.media == ("image", "video")


@given(st.text(max_size=200))
def test_readable_text_of_anything_can_be_stored(text: str) -> None:
    body = parse(f"<p>{text}</p>").body
    assert body is not None
    got = readable(body).text
    got.encode("utf-8")
    assert "\x00" not in got
    assert "\n\n\n" not in got


HOSTILE = {
    "deep": b"<div>" * 50_000,
    "deep quotes": b'<blockquote class="bbCodeBlock--quote">' * 50_000,
    "open quotes": b'<a href="' * 50_000,
    "angle brackets": b"<" * 150_000,
    "comments": b"<!--" * 100_000,
    "digits": b"2025-" * 100_000,
    "labels": b"Patient " * 100_000,
    "long state": b"<script>window.$$data={" + b'"a":{' * 100_000 + b"</script>",
    "huge number": b'<script>window.$$data={"questionDialog":['
    + b"9" * 200_000
    + b"]}</script>",
    "deep json-ld": b'<script type="application/ld+json">'
    + b"[" * 150_000
    + b"</script>",
    "zero bytes": b"\x00" * 1_000_000,
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", sorted(SITES))
@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_a_hostile_page_is_read_or_refused_in_time(name: str, kind: str) -> None:
    page = Page(URLS[name], SHELLS[name] + HOSTILE[kind] + b"</html>")
    site = build_site(name)
    started = time.process_time()
    for read in (
        lambda p: site.parse_thread([p], str),
        site.parse_listing,
        site.next_page,
    ):
        try:
            read(page)
        except (LayoutError, NotAThread):
            continue
    assert time.process_time() - started < 5, (
        "no text makes a parser take quadratic time"
    )


def test_quotation_marks_in_a_script_are_not_attributes() -> None:
    script = "if (a<b) s = y" + ' + "x = \'" + y' * 3000
    assert readable(parse(f"<p>hi</p><script>{script}</script>").body).text == "hi"


def test_scripts_and_pages_are_not_kept_in_memory() -> None:
    opening, url = SHELLS["sdn"], URLS["sdn"]
    site, script, ends = (
        build_site("sdn"),
        b"x" * 10_000,
        b"</div></div></article></html>",
    )
    tracemalloc.start()
    for number in range(80):
        inline = b"<script>%d%s</script>" % (number, script)
        with contextlib.suppress(LayoutError):
            site.next_page(Page(url, opening + b"%d" % number + inline + ends))
        readable(parse(f"<body>{inline.decode()}</body>").body)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000


def test_structured_data_in_its_usual_wrappers() -> None:
    question = {
        "@type": ["Question"],
        "name": "T",
        "text": "a &amp; b<br>c",
        "author": [{"name": "Q"}],
        "dateCreated": "2025-03-01",
        "suggestedAnswer": [
            {"@type": "Answer", "text": "yes", "author": "R"},
            {"text": "cut off…"},
            7,
        ],
    }
    graph = {
        "@context": "https://schema.org",
        "@graph": [{"@type": "WebPage", "mainEntity": question}, None],
    }
    markup = (
        f'<html><script type="application/ld+json">/* x */ no json</script>'
        f'<script type="application/ld+json"><!-- {json.dumps(graph)} --></script></html>'
    )
    (found,) = discussions(parse(markup))
    assert (found.kind, found.title) == ("Question", "T")
    assert (found.opening.author, found.opening.text) == ("Q", "a & b\nc")
    assert [(r.author, r.text, r.excerpt) for r in found.replies] == [
        ("R", "yes", False),
        (None, "cut off…", True),
    ]
    assert not found.whole


def test_a_stated_time_without_offset_is_the_sites_own() -> None:
    answer = {"@type": "Answer", "text": "yes", "author": "R"}
    question = {
        "@type": "Question",
        "name": "T",
        "text": "Q",
        "datePublished": "2018-07-09T02:00:00",
        "acceptedAnswer": answer,
    }
    script = f'<script type="application/ld+json">{json.dumps(question)}</script>'
    page = Page(
        "https://www.icliniq.com/qa/knee-pain/is-it-serious",
        f"<html><head>{script}</head><body></body></html>".encode(),
    )
    thread = build_site("icliniq").parse_thread([page], str)
    assert thread.posted_at == datetime(2018, 7, 8, 20, 30, tzinfo=UTC)


def test_addresses() -> None:
    page = Page("https://Forum.example:443/a/b?x=1", b"")
    assert link(page, " ../c#top ") == "https://Forum.example:443/c"
    for bad in (
        None,
        "",
        "javascript:alert(1)",
        "mailto:a@b",
        "data:text/html,x",
        "http://[::1",
        "http://",
    ):
        assert link(page, bad) is None, bad
    assert host_of("https://Forum.Example:443/") == "forum.example"
    assert host_of("http://forum.example.:8080/") == "forum.example:8080"
    assert host_of("http://x:99999/") == host_of("nowhere") == ""
