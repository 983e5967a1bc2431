"""Recognise pages that refuse access to a program, whatever their status: `block_page`.

They are challenges, captchas and firewalls' refusals, known by marks that only they have. A thread that talks about
captchas, or a page of a site that merely is behind one of these firewalls, is not a block page: the marks must be in
markup or script, not in text, and the page must have next to nothing to read.
"""

import re
from collections.abc import Mapping
from importlib.resources import files

from selectolax.lexbor import LexborHTMLParser

_HEAD_BYTES = 24 * 1024
"""The beginning of a page, where a mark must be: block pages are short, or say at once what they are."""
_MOST_BYTES = 256 * 1024
"""No block page is longer."""
_MOST_TEXT = 1200
"""The most characters to read on a block page, which explains itself in a few lines."""

# Header, its values, what they show
_HEADERS = (
    ("cf-mitigated", ("challenge", "block"), "a Cloudflare challenge"),
    ("x-amzn-waf-action", ("challenge", "captcha"), "an AWS WAF challenge"),
)

_DATA = files("medlive.sources.fetching") / "data"
_MARKS = [
    (marks.encode().split(b"\t"), what)
    for line in (_DATA / "block_page_marks.tsv")
    .read_text(encoding="utf-8")
    .splitlines()
    for what, _, marks in [line.partition("\t")]
]
"""Marks, which must all be in the page and not all in its text, and what they show."""

_TITLES = frozenset(
    (_DATA / "block_page_titles.txt").read_text(encoding="utf-8").splitlines()
)
"""Complete titles in lower case; a thread's title includes its site's name."""

_ANY_STATUS_TITLE = re.compile(
    rb"<title[^>]{0,200}>([^<]{1,200})</title", re.IGNORECASE
)
_REFUSALS = (
    "request unsuccessful. incapsula incident id",
    "您的请求被阻断",
    "由于您访问的url有可能对网站造成安全威胁",
)
"""How the text of a firewall's refusal begins, in lower case."""
_SIGNS = [marks[0] for marks, _ in _MARKS] + [
    b"Incapsula incident ID",
    *map(str.encode, ("请求被阻断", "安全威胁")),
]
"""A page without any of these and with another title is not read further."""


def block_page(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
) -> str | None:
    """Return what refused access, in words; None for a page that is not a block page.

    `headers` by lower-case names; `body` decompressed, its first part is enough. A page of anything but markup
    is judged by its headers alone.
    """
    for name, values, what in _HEADERS:
        if headers.get(name, "").strip().lower() in values:
            return what
    kind, _, _ = headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if len(body) > _MOST_BYTES or kind not in (
        "",
        "text/html",
        "application/xhtml+xml",
    ):
        return None
    return _refusal(status, body)


def _refusal(status: int, body: bytes) -> str | None:
    """As `block_page`, by the page's markup alone."""
    head = body[:_HEAD_BYTES]
    titled = _suspect_title(head, status)
    if not (titled or any(part in head for part in _SIGNS)):
        return None
    tree = LexborHTMLParser(body.decode("utf-8", "replace"))
    node = tree.css_first("title")
    title = "" if node is None else " ".join(node.text().split())[:100]
    tree.strip_tags(["script", "style", "noscript", "title"])
    # The text that a visitor reads
    text = tree.root.text(separator=" ") if tree.root is not None else ""
    text = " ".join(text.split())
    if len(text) > _MOST_TEXT:
        return None
    for marks, what in _MARKS:
        # A mark that the page shows to its reader is what somebody wrote.
        if all(mark in head for mark in marks) and not all(
            mark.decode() in text for mark in marks
        ):
            return what
    if titled:
        return f"a page titled {title!r}"
    return "a firewall's refusal" if text.lower().startswith(_REFUSALS) else None


def _suspect_title(head: bytes, status: int) -> bool:
    """Whether a page has a block page's title."""
    match = _ANY_STATUS_TITLE.search(head)
    if match is None:
        return False
    for encoding in ("utf-8", "gb18030"):
        title = " ".join(match[1].decode(encoding, "replace").split()).lower()
        # Alibaba Cloud's firewall titles its page by its status.
        if title in _TITLES or (title == "405" and status == 405):
            return True
    return False
