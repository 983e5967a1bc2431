"""The index of archived pages: keys as the common replay tools make them, and lines that can always be read."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.sources.archive import cdxj_line, sort_key
from medlive.sources.ledger import Place
from medlive.sources.source import Fetched

# What the library `surt` 0.3.1 answers, which pywb and cdxj-indexer make their keys with.
KEYS = [
    (
        "https://www.iCliniq.com/qa/Some-Thing/x?b=2&a=1",
        "com,icliniq)/qa/some-thing/x?a=1&b=2",
    ),
    (
        "http://forums.studentdoctor.net:80/threads/foo-bar.123/page-2",
        "net,studentdoctor,forums)/threads/foo-bar.123/page-2",
    ),
    (
        "https://forums.studentdoctor.net/threads/foo-bar.123/",
        "net,studentdoctor,forums)/threads/foo-bar.123",
    ),
    (
        "https://dxy.com/question/12345?x=%E4%B8%AD",
        "com,dxy)/question/12345?x=%e4%b8%ad",
    ),
    (
        "https://dxy.com/问题/12345?x=中",
        "com,dxy)/%e9%97%ae%e9%a2%98/12345?x=%e4%b8%ad",
    ),
    ("http://example.org:8080/a//b/../c/./d/?", "org,example:8080)/a/c/d"),
    ("http://example.org", "org,example)/"),
    ("http://example.org/?", "org,example)/"),
    ("http://example.org/?a&b=&c", "org,example)/?a&b=&c"),
    (
        "http://www2.example.org/a%2Fb%20c+d?q=a+b%20c%26",
        "org,example)/a/b%20c+d?&q=a+b%20c",
    ),
    ("http://user:pw@example.org/x", "org,example)/x"),
    ("http://example.org/a;b=1?c;d", "org,example)/a;b=1?c;d"),
    (
        "http://example.org/index.php?threads/foo.12/&page=2",
        "org,example)/index.php?page=2&threads/foo.12/",
    ),
    ("http://127.0.0.1:8000/a", "1,0,0,127:8000)/a"),
    ("http://EXAMPLE.org/A%7Eb?Z=1&a=%C3%A9", "org,example)/a~b?a=%c3%a9&z=1"),
    ("http://example.org/x?=1&&y", "org,example)/x?&=1&y"),
    ("http://example.org/../../x", "org,example)/x"),
    ("http://example.org/a?b=2&b=1&b=10&a=", "org,example)/a?a=&b=1&b=10&b=2"),
    ("http://example.org/(x)/[y]?q={z}|^", "org,example)/(x)/[y]?q={z}|^"),
    ("https://example.org:443/x#frag", "org,example)/x"),
    ("http://example.org/a/b/..", "org,example)/a"),
    ("http://example.org/%25zz", "org,example)/%25zz"),
]


@pytest.mark.parametrize(("url", "key"), KEYS)
def test_keys_are_those_of_replay_tools(url: str, key: str) -> None:
    assert sort_key(url) == key


_URLS = st.one_of(
    st.text(), st.builds("http://{}/{}?{}".format, st.text(), st.text(), st.text())
)


@given(
    _URLS, st.binary(max_size=20), st.dictionaries(st.just("content-type"), st.text())
)
def test_any_page_has_a_line_of_three_parts(
    url: str, body: bytes, headers: dict[str, str]
) -> None:
    page = Fetched(
        url, body, headers=headers, fetched_at=datetime(2026, 11, 21, 5, tzinfo=UTC)
    )
    line = cdxj_line("a.warc.gz", Place(5, 7), page)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    key, stamp, told = line.split(" ", 2)
    assert key == sort_key(url)
    assert stamp == "20261121050000"
    assert (
        json.loads(told).items()
        >= {"status": "200", "offset": "5", "length": "7"}.items()
    )
