"""Discussions as pages state them in schema.org JSON-LD: QAPage and DiscussionForumPosting."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from selectolax.lexbor import LexborHTMLParser

from medlive.sources.reading.dates import stated_moment
from medlive.sources.reading.markup import clean, parse, readable

_WRAPPER = re.compile(r"\A\s*(?:<!--|//<!\[CDATA\[|<!\[CDATA\[)|(?:-->|//\]\]>|\]\]>)\s*\Z")
_EXCERPT = re.compile(r"(?:…|\.\.\.|&hellip;|&#8230;)\s*(?:</[a-z]+>\s*)*\Z")
_MARKUP = re.compile(r"<[a-zA-Z/!]|&[#a-zA-Z]")
_CONTAINERS = ("@graph", "mainEntity", "mainEntityOfPage", "itemListElement", "item")
_REPLIES = ("acceptedAnswer", "suggestedAnswer", "comment")
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
    opening: Posting
    replies: tuple[Posting, ...]

    @property
    def whole(self) -> bool:
        """Whether there is an answer and no text is an excerpt or empty."""
        posts = (self.opening, *self.replies)
        return bool(self.replies) and all(p.text and not p.excerpt for p in posts)


def discussions(tree: LexborHTMLParser) -> tuple[Discussion, ...]:
    """Every question and forum posting that a page's JSON-LD states, outermost first; invalid JSON is left out."""
    found: list[Discussion] = []
    for script in tree.css('script[type*="ld+json"]'):
        with suppress(ValueError, RecursionError):
            found += _discussions(json.loads(_WRAPPER.sub("", script.text()), strict=False), 0)
    return tuple(found)


def _discussions(value: Any, depth: int) -> Iterator[Discussion]:
    if isinstance(value, dict) and (kind := _kind(value)) is not None:
        replies = (
            item for key in ("acceptedAnswer", "suggestedAnswer", "comment") for item in _listed(value.get(key))
        )
        postings = dict.fromkeys(_posting(reply) for reply in replies if isinstance(reply, dict))
        title = _text(value.get("headline") or value.get("name"))
        yield Discussion(kind, title, _posting(value), tuple(postings))
        return
    if isinstance(value, dict):
        value = [value[key] for key in _CONTAINERS if key in value]
    if isinstance(value, list) and depth < _MAX_DEPTH:
        for item in value:
            yield from _discussions(item, depth + 1)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _kind(value: dict[str, Any]) -> Literal["Question", "DiscussionForumPosting"] | None:
    for name in _listed(value.get("@type")):
        if (short := str(name).rsplit("/", 1)[-1]) in ("Question", "DiscussionForumPosting"):
            return short  # type: ignore[return-value]
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
