"""Discussions as pages state them in schema.org JSON-LD: QAPage and DiscussionForumPosting."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from selectolax.lexbor import LexborHTMLParser

from medlive.sources.reading.dates import stated_moment
from medlive.sources.reading.markup import clean, parse, readable

_WRAPPER = re.compile(r"\A\s*(?:<!--|//<!\[CDATA\[|<!\[CDATA\[)|(?:-->|//\]\]>|\]\]>)\s*\Z")
_EXCERPT = re.compile(r"(?:…|\.\.\.|&hellip;|&#8230;)\s*(?:</[a-z]+>\s*)*\Z")
_MARKUP = re.compile(r"<[a-zA-Z/!]|&[#a-zA-Z]")
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Posting:
    """One contribution as structured data states it."""

    author: str | None
    text: str
    posted_at: datetime | None
    excerpt: bool
    """The text ends in an ellipsis: sites cut long posts here, so it cannot replace the page's words."""


@dataclass(frozen=True, slots=True)
class Discussion:
    """A question or opening post with its answers or comments, those that the page states."""

    kind: Literal["Question", "DiscussionForumPosting"]
    title: str
    url: str | None
    opening: Posting
    replies: tuple[Posting, ...]
    keywords: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether there is an answer and no text is an excerpt or empty."""
        posts = (self.opening, *self.replies)
        return bool(self.replies) and all(p.text and not p.excerpt for p in posts)


def json_ld(tree: LexborHTMLParser) -> tuple[Any, ...]:
    """Return the values of a page's JSON-LD scripts; invalid JSON (cut off, malformed) is left out."""
    values: list[Any] = []
    for script in tree.css('script[type*="ld+json"]'):
        try:
            values.append(json.loads(_WRAPPER.sub("", script.text()), strict=False))
        except (ValueError, RecursionError):
            continue
    return tuple(values)


def discussions(tree: LexborHTMLParser) -> tuple[Discussion, ...]:
    """Every question and forum posting that a page's JSON-LD states, outermost first."""
    found = []
    for value in json_ld(tree):
        for entry in _entries(value, 0):
            found.append(_discussion(entry))
    return tuple(found)


def _entries(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _entries(item, depth + 1)
    elif isinstance(value, dict):
        if _kind(value) is not None:
            yield value
            return
        for key in ("@graph", "mainEntity", "mainEntityOfPage", "itemListElement", "item"):
            if key in value:
                yield from _entries(value[key], depth + 1)


def _kind(value: dict[str, Any]) -> Literal["Question", "DiscussionForumPosting"] | None:
    stated = value.get("@type")
    names = stated if isinstance(stated, list) else [stated]
    for name in names:
        short = str(name).rsplit("/", 1)[-1]
        if short == "Question":
            return "Question"
        if short == "DiscussionForumPosting":
            return "DiscussionForumPosting"
    return None


def _discussion(entry: dict[str, Any]) -> Discussion:
    kind = _kind(entry)
    assert kind is not None
    replies: dict[Posting, None] = {}
    for key in ("acceptedAnswer", "suggestedAnswer", "comment"):
        listed = entry.get(key)
        for item in listed if isinstance(listed, list) else [listed]:
            if isinstance(item, dict):
                replies[_posting(item)] = None
    keywords = entry.get("keywords")
    if isinstance(keywords, str):
        keywords = keywords.split(",")
    return Discussion(
        kind=kind,
        title=_text(entry.get("headline") or entry.get("name")),
        url=_address(entry),
        opening=_posting(entry),
        replies=tuple(replies),
        keywords=tuple(k for k in map(_text, keywords if isinstance(keywords, list) else []) if k),
    )


def _address(entry: dict[str, Any]) -> str | None:
    for key in ("url", "@id", "mainEntityOfPage"):
        value = entry.get(key)
        if isinstance(value, dict):
            value = value.get("@id")
        if isinstance(value, str) and value:
            return clean(value)
    return None


def _posting(entry: dict[str, Any]) -> Posting:
    author = entry.get("author")
    if isinstance(author, list):
        author = author[0] if author else None
    name = _text(author.get("name") if isinstance(author, dict) else author)
    raw = entry.get("text") or entry.get("articleBody") or ""
    raw = raw if isinstance(raw, str) else ""
    return Posting(
        author=name or None,
        text=_text(raw),
        posted_at=stated_moment(entry.get("datePublished") or entry.get("dateCreated"), UTC),
        excerpt=bool(_EXCERPT.search(raw[-60:])),
    )


def _text(value: Any) -> str:
    """The readable text of a field, which may hold markup, or entities."""
    if not isinstance(value, str):
        return ""
    if not _MARKUP.search(value):
        return clean(value).strip()
    body = parse(value.replace("\n", "<br>") if "<p" not in value and "<br" not in value else value).body
    return readable(body).text if body is not None else ""
