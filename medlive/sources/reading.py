"""Read text, media, dates and structured data (schema.org JSON-LD) from a page's markup."""

import json
import re
from calendar import month_abbr
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.guard.bounds import PAGE_BYTES, PAGE_DEPTH
from medlive.text.lists import read_lists

from .source import LayoutError, ListEntry, Page, PageRequest, link

_ELEMENTS = {
    use: frozenset(" ".join(lines).split())
    for use, lines in read_lists("medlive.sources", "elements.txt").items()
}
_VOID, _SILENT, _BLOCK = (_ELEMENTS[use] for use in ("void", "silent", "block"))
_GAPS = dict.fromkeys(_BLOCK | {"br"}, "\n")
_GAPS |= {"td": " ", "th": " "}
"""The white space that stands in for an element's beginning."""
_WITHOUT_GAP = _VOID | {"script", "style", "noscript", "template"}
_SELF_CLOSING = {name.encode() for name in _VOID | _ELEMENTS["self-closing"]}
_MEDIA = {
    "img": "image",
    "picture": "image",
    "video": "video",
    "audio": "audio",
    "iframe": "video",
    "object": "file",
    "embed": "file",
}
_DECORATION = frozenset(
    ["smilie", "emoji", "avatar", "icon", "reaction-sprite", "bbCodeSpoiler-button"]
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_TAG_NAME = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
# Bytes of markup, and of a tag, above which attributes are counted; the most attributes
_SMALL, _LONG_TAG, _MAX_ATTRIBUTES = 2**17, 4096, 2000
_WHOLE_TAG = re.compile(
    rb"<[a-zA-Z](?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+(?:[\"'][^>]*+)?"
)
# As the parser reads values: one without quotes goes on to the next space whatever it holds.
_VALUE = re.compile(
    rb"(?<=[^\s/=])=\s*+(?:\"[^\"]*+\"=*+|'[^']*+'=*+|[^\s>\"'][^\s>]*+)"
)
_BETWEEN = re.compile(rb"[\s/\"']+")
_END = re.compile(rb"</html", re.IGNORECASE)
_NEWLINES = re.compile(r"\n{3,}")


class Readable(NamedTuple):
    """The text of a part of a page as a visitor reads it, and its kinds of media."""

    text: str
    media: tuple[str, ...]


def clean(text: str) -> str:
    """Remove control characters, and replace lone surrogates by U+FFFD."""
    if text.isprintable():
        return text
    return _CONTROL.sub(lambda m: "\ufffd" if m[0] >= "\ud800" else "", text)


def parse(source: Page | str) -> LexborHTMLParser:
    """Parse a page or a fragment of markup.

    Raises:
        LayoutError: if a page is cut off or too large, or its nesting or a tag's attributes would take the parser
            quadratic time.
    """
    if isinstance(source, Page):
        markup, url = source.text.encode("utf-8"), source.url
        if _END.search(markup) is None:
            raise LayoutError(url, "</html> at the page's end")
    else:
        # A string from JSON may contain lone surrogates, which the parser refuses.
        markup, url = clean(source).encode("utf-8"), "a fragment of markup"
    if len(markup) > PAGE_BYTES:
        raise LayoutError(
            url,
            f"at most {PAGE_BYTES} bytes of markup",
            found=str(len(markup)),
        )
    if _is_too_deep(markup):
        raise LayoutError(url, f"markup nested less than {PAGE_DEPTH} deep")
    for tag in _WHOLE_TAG.finditer(markup) if len(markup) > _SMALL else ():
        if len(tag[0]) > _LONG_TAG:
            # The parser compares each attribute with all before it.
            names, values = _VALUE.subn(b"", tag[0])
            if values + len(_BETWEEN.findall(names)) > _MAX_ATTRIBUTES:
                raise LayoutError(url, f"at most {_MAX_ATTRIBUTES} attributes in a tag")
    return LexborHTMLParser(markup)


def _is_too_deep(markup: bytes) -> bool:
    """Whether elements are nested deeper than browsers accept."""
    if markup.count(b"<") < 4 * PAGE_DEPTH:
        return False
    depth = 0
    for closing, tag in _TAG_NAME.findall(markup):
        if tag.lower() not in _SELF_CLOSING:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > PAGE_DEPTH:
                return True
    return False


def readable(
    node: LexborNode | None, *, skip_classes: frozenset[str] = frozenset()
) -> Readable:
    """Extract the text and the media of an element, without elements of `skip_classes`; empty for None.

    Blocks and line breaks become newlines (at most two in a row), other white space single spaces. Decorations
    (smilies, avatars, icons) do not count as media.
    """
    if node is None:
        return Readable("", ())
    out: list[str] = []
    media: dict[str, None] = {}
    # What is left to read, the next one last: elements, texts, and the lines' ends behind blocks.
    left: list[tuple[LexborNode | str, bool]] = [(node, False)]
    while left:
        item, keeps_lines = left.pop()
        if isinstance(item, str):
            out.append(item)
        elif item.is_element_node:
            name, own_classes = item.tag or "", set(classes(item))
            is_skipped = not skip_classes.isdisjoint(own_classes)
            if name in _MEDIA and not (is_skipped or _is_decoration(item, own_classes)):
                media[_MEDIA[name]] = None
            is_silent = is_skipped or name in _SILENT
            # A space replaces what is left out, unless no visitor sees anything of it.
            gap = ""
            if is_silent and name not in _WITHOUT_GAP:
                gap = " "
            out.append(_GAPS.get(name, gap))
            if not (is_silent or name in _VOID):
                left += _inside(item, keeps_lines or name == "pre")
    return Readable(_tidy("".join(out)), tuple(media))


def _inside(
    node: LexborNode,
    keeps_lines: bool,
) -> list[tuple[LexborNode | str, bool]]:
    """What is to read inside an element, as `readable` puts it on its stack: the first last."""
    left: list[tuple[LexborNode | str, bool]] = []
    if node.tag in _BLOCK:
        left.append(("\n", False))
    for child in reversed(list(node.iter(include_text=True))):
        text = child.text_content
        if text is None:
            left.append((child, keeps_lines))
        else:
            left.append((text if keeps_lines else text.replace("\n", " "), False))
    return left


def _is_decoration(node: LexborNode, own_classes: set[str]) -> bool:
    """Whether it is a smiley, an avatar, a tracking pixel or an inline placeholder."""
    if own_classes & _DECORATION:
        return True
    attributes = node.attributes
    if "1" in (attributes.get("width"), attributes.get("height")):
        return True
    inline = (attributes.get("src") or "").startswith("data:")
    return inline and "data-src" not in attributes


def _tidy(text: str) -> str:
    """Normalise white space: single spaces, at most one empty line, none at the ends."""
    lines = [" ".join(part.split()) for part in text.split("\n")]
    if not all(map(str.isprintable, lines)):
        # Zero-width and control characters may hide white space from `split`.
        text = clean(text).replace("\u200b", "").replace("\ufeff", "")
        lines = [" ".join(part.split()) for part in text.split("\n")]
    return _NEWLINES.sub("\n\n", "\n".join(lines)).strip()


def line(node: LexborNode | None) -> str:
    """Return the text of an element on one line; "" for no element."""
    if node is None:
        return ""
    text = " ".join(node.text(separator=" ").split())
    return " ".join(clean(text).split())


def required(
    page: Page,
    scope: LexborHTMLParser | LexborNode,
    selectors: Sequence[str],
) -> LexborNode:
    """Return the first element that a selector finds. Raises LayoutError naming all selectors."""
    for selector in selectors:
        if (node := scope.css_first(selector)) is not None:
            return node
    raise LayoutError(page, " or ".join(selectors))


def classes(node: LexborNode) -> list[str]:
    """Return the class names of an element."""
    return (node.attributes.get("class") or "").split()


def following(node: LexborNode) -> Iterator[LexborNode]:
    """Iterate over the elements behind an element, under the same parent."""
    sibling = node.next
    while sibling is not None:
        if sibling.is_element_node:
            yield sibling
        sibling = sibling.next


def linked_threads(
    page: Page,
    tree: LexborHTMLParser,
    selector: str,
    path: re.Pattern[str],
) -> tuple[ListEntry, ...]:
    """Return the threads that a list's anchors lead to; a thread's id is the first group of `path` in its address."""
    entries: dict[str, ListEntry] = {}
    for anchor in tree.css(selector):
        url = link(page, anchor.attributes.get("href")) or ""
        if match := path.search(url):
            entries.setdefault(match[1], ListEntry(url, match[1]))
    return tuple(entries.values())


def following_list_page(
    page: Page,
    tree: LexborHTMLParser,
    parameter: str,
) -> PageRequest | None:
    """The list page after this one: a link to the same path whose page number is one higher.

    `parameter` is the page number's name in the address. The link's address is used, not its class: a site may rename
    the class of its pager.
    """

    def place_of(url: str) -> tuple[str, str, int]:
        parts = urlsplit(url)
        number = dict(parse_qsl(parts.query)).get(parameter, "1")
        is_number = re.fullmatch("[0-9]{1,7}", number)
        return parts.netloc, parts.path.rstrip("/"), int(number) if is_number else 1

    host, path, number = place_of(page.url)
    for anchor in tree.css(f'a[href*="{parameter}="], link[rel="next"]'):
        url = link(page, anchor.attributes.get("href")) or ""
        if place_of(url) == (host, path, number + 1):
            return PageRequest(url)
    return None


INDIA = timezone(timedelta(hours=5, minutes=30), "Asia/Kolkata")
CHINA = timezone(timedelta(hours=8), "Asia/Shanghai")

# Communities of this kind began in the late 1990s; a number outside these years is no date of a message.
_FIRST_YEAR, _LAST_YEAR = 1995, 2100

_MONTHS = [month.lower() for month in month_abbr]
"""The first is empty, so that the index of a month is its number."""
_NUMERIC = re.compile(
    r"(?<!\d)(\d{4})\s?[-/.年]\s?(\d{1,2})\s?[-/.月]\s?(\d{1,2})(?!\d)日?"
    r"(?:[T\s]{1,3}(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?\s?(Z|[+-]\d{2}:?\d{2})?)?"
)
_MONTH_FIRST = re.compile(
    r"\b([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})(?!\d)"
)


def shown_date(text: str, zone: tzinfo) -> datetime | None:
    """The first date in a text, in UTC, or None.

    Reads ISO 8601, `2025-03-01 08:00` (also with `/`, `.` or `年月日`) and `Jul 06, 2018`.
    A time without offset is taken in `zone`. A date without a time names a day: midnight UTC of that day,
    so that no conversion moves it to another.
    """
    matches = filter(None, [_NUMERIC.search(text), _MONTH_FIRST.search(text)])
    for match in sorted(matches, key=re.Match.start):
        try:
            moment = _moment(match, zone)
        except (ValueError, OverflowError):
            continue
        if _FIRST_YEAR <= moment.year <= _LAST_YEAR:
            return moment.astimezone(UTC)
    return None


def _moment(match: re.Match[str], zone: tzinfo) -> datetime:
    """The moment of a match. Raises ValueError and OverflowError for what is not a date."""
    if match.re is _NUMERIC:
        year, month, day, hour, minute, second, offset = match.groups()
        if hour is None:
            return datetime(int(year), int(month), int(day), tzinfo=UTC)
        date = f"{int(year):04}-{int(month):02}-{int(day):02}"
        time = f"{int(hour):02}:{int(minute):02}:{int(second or 0):02}{offset or ''}"
        local = datetime.fromisoformat(f"{date}T{time}")
        return local if offset else local.replace(tzinfo=zone)
    name, day, year = match.groups()
    month = _MONTHS.index(name[:3].lower())
    return datetime(int(year), month, int(day), tzinfo=UTC)


def stated_moment(value: Any, zone: tzinfo) -> datetime | None:
    """A moment from structured data: a date text or an epoch in (milli)seconds; None for anything else."""
    if isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            return shown_date(value[:100], zone)
        value = int(value[:14])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = datetime.fromtimestamp(value / 1000 if value > 10**11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _FIRST_YEAR < moment.year <= _LAST_YEAR else None


_WRAPPER = re.compile(
    r"\A\s*(?:<!--|//<!\[CDATA\[|<!\[CDATA\[)|(?:-->|//\]\]>|\]\]>)\s*\Z"
)
_EXCERPT = re.compile(r"(?:…|\.\.\.|&hellip;|&#8230;)\s*(?:</[a-z]+>\s*)*\Z")
_HAS_MARKUP = re.compile(r"<[a-zA-Z/!]|&[#a-zA-Z]")
_CONTAINERS = ("@graph", "mainEntity", "mainEntityOfPage", "itemListElement", "item")
_REPLIES = ("acceptedAnswer", "suggestedAnswer", "comment")
_DISCUSSIONS = ("Question", "DiscussionForumPosting")
_MAX_LEVELS = 40  # Of nested JSON-LD


class Posting(NamedTuple):
    """One contribution as structured data states it."""

    author: str | None
    text: str
    posted_at: datetime | None
    excerpt: bool
    """Whether the text ends in an ellipsis: sites cut long posts here, so it must not replace the page's words."""


class Discussion(NamedTuple):
    """A question or opening post, and the answers or comments that structured data states."""

    kind: str
    """Question or DiscussionForumPosting."""
    title: str
    opening: Posting
    replies: tuple[Posting, ...]

    @property
    def whole(self) -> bool:
        """Whether there is an answer and no text is an excerpt or empty."""
        return bool(self.replies) and all(
            p.text and not p.excerpt for p in (self.opening, *self.replies)
        )


def discussions(tree: LexborHTMLParser, zone: tzinfo = UTC) -> list[Discussion]:
    """Every question and forum posting that a page's JSON-LD states, outermost first; invalid JSON is left out.

    A time without offset is taken in `zone`.
    """
    discussions_read: list[Discussion] = []
    for script in tree.css('script[type*="ld+json"]'):
        with suppress(ValueError, RecursionError):
            discussions_read += _discussions(
                json.loads(_WRAPPER.sub("", script.text()), strict=False), 0, zone
            )
    return discussions_read


def _discussions(value: Any, depth: int, zone: tzinfo) -> Iterator[Discussion]:
    """The discussions in a JSON-LD value, at `depth` containers from its top."""
    if isinstance(value, dict):
        names = map(str, _listed(value.get("@type")))
        kinds = [name.rpartition("/")[2] for name in names]
        kinds = [kind for kind in kinds if kind in _DISCUSSIONS]
        if kinds:
            replies: dict[Posting, None] = {}
            for key in _REPLIES:
                for item in _listed(value.get(key)):
                    if isinstance(item, dict):
                        replies[_posting(item, zone)] = None
            title = _text(value.get("headline") or value.get("name"))
            yield Discussion(kinds[0], title, _posting(value, zone), tuple(replies))
            return
        value = [value[key] for key in _CONTAINERS if key in value]
    if isinstance(value, list) and depth < _MAX_LEVELS:
        for item in value:
            yield from _discussions(item, depth + 1, zone)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _posting(entry: dict[str, Any], zone: tzinfo) -> Posting:
    """The contribution that a JSON-LD object states."""
    author = next(iter(_listed(entry.get("author"))), None)
    name = _text(author.get("name") if isinstance(author, dict) else author)
    raw = entry.get("text") or entry.get("articleBody")
    posted_at = stated_moment(
        entry.get("datePublished") or entry.get("dateCreated"), zone
    )
    excerpt = isinstance(raw, str) and _EXCERPT.search(raw[-60:]) is not None
    return Posting(name or None, _text(raw), posted_at, excerpt)


def _text(value: Any) -> str:
    """The readable text of a field, which may hold markup, or entities."""
    if not isinstance(value, str):
        return ""
    if not _HAS_MARKUP.search(value):
        return clean(value).strip()
    has_breaks = "<p" in value or "<br" in value
    return readable(
        parse(value if has_breaks else value.replace("\n", "<br>")).body
    ).text
