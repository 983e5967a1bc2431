"""Extract readable text and media from markup, in one pass over the parser's serialisation."""

import html
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources.source import LayoutError, Page, PageRequest, link

# The parser's output is well formed: neither text nor attribute values contain a bare "<" or ">". The content of
# scripts and the like is not escaped, so it is one token with their start tag. The expression is linear: no
# alternative looks further than it matches.
_TOKEN = re.compile(
    "(<!--.*?-->"
    + "".join(
        rf"|<{name}\b[^>]*>.*?(?=</{name}>|\Z)" for name in ("script", "style", "iframe", "noembed", "noframes")
    )
    + "|<[^>]*>)",
    re.DOTALL,
)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)([^>]*)>")
_ATTRIBUTE = re.compile(r"([^\s=\"]+)=\"([^\"]*)\"")
_VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
_SILENT = frozenset((
    "script", "style", "noscript", "template", "svg", "button", "select", "textarea", "head", "iframe", "object",
    "video", "audio",
))  # fmt: skip
_BLOCK = frozenset((
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre",
    "section", "table", "tbody", "tfoot", "thead", "tr", "ul",
))  # fmt: skip
_INVISIBLE = frozenset(["script", "style", "noscript", "template"])
# Elements that need no end tag: leaving it out does not nest them.
_SELF_CLOSING = {name.encode() for name in _VOID} | set(b"dd dt li option p tbody td tfoot th thead tr".split())
_MEDIA = {"img": "image", "picture": "image", "video": "video", "audio": "audio", "iframe": "video",
          "object": "file", "embed": "file"}  # fmt: skip
_DECORATION = frozenset(["smilie", "emoji", "avatar", "icon", "reaction-sprite", "bbCodeSpoiler-button"])
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_MAX_DEPTH = 512
MAX_BYTES = 8 * 2**20
"""Most bytes of one page's markup; the fetcher cuts bodies off at the same size."""
_TAG_NAME = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
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
        LayoutError: if a page is cut off, too large, or so deeply nested that parsing takes quadratic time.
    """
    if isinstance(source, Page):
        markup, url = source.text.encode("utf-8"), source.url
        if _END.search(markup) is None:
            raise LayoutError(url, "</html> at the page's end")
    else:
        # A string from JSON may contain lone surrogates, which the parser refuses.
        markup, url = clean(source).encode("utf-8"), "a fragment of markup"
    if len(markup) > MAX_BYTES:
        raise LayoutError(url, f"at most {MAX_BYTES} bytes of markup", found=str(len(markup)))
    if _is_too_deep(markup):
        raise LayoutError(url, f"markup nested less than {_MAX_DEPTH} deep")
    return LexborHTMLParser(markup)


def _is_too_deep(markup: bytes) -> bool:
    """Whether elements are nested deeper than browsers accept."""
    if markup.count(b"<") < 4 * _MAX_DEPTH:
        return False
    depth = 0
    for closing, tag in _TAG_NAME.findall(markup):
        if tag.lower() not in _SELF_CLOSING:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > _MAX_DEPTH:
                return True
    return False


class _Tag(NamedTuple):
    """The effect of a tag on the text around it."""

    name: str
    closing: bool = False
    gap: str = ""
    """The white space that replaces it."""
    classes: frozenset[str] = frozenset()
    media: str | None = None


@lru_cache(maxsize=4096)
def _tag(token: str) -> _Tag:
    match = _TAG.match(token)
    if match is None:
        return _Tag("")
    name = match[2].lower()
    block = "\n" if name in _BLOCK else ""
    if match[1]:
        return _Tag(name, True, block)
    named = dict(_ATTRIBUTE.findall(match[3]))
    classes = frozenset(named.get("class", "").split())
    gap = "\n" if name == "br" else " " if name in ("td", "th") else block
    decoration = bool(classes & _DECORATION) or _is_spacer(named)
    return _Tag(name, False, gap, classes, None if decoration else _MEDIA.get(name))


def _is_spacer(attributes: dict[str, str]) -> bool:
    """Whether an image is a tracking pixel or an inline placeholder."""
    if attributes.get("width") == "1" or attributes.get("height") == "1":
        return True
    return attributes.get("src", "").startswith("data:") and "data-src" not in attributes


def _audible(markup: str, skip_classes: frozenset[str]) -> Iterator[tuple[_Tag, str]]:
    """Each tag with the text behind it, without the content of silent elements and of those of skipped classes."""
    silent = ""  # while inside such an element: its tag, and how deeply tags of that name are nested in it
    depth = 0
    pieces = iter(_TOKEN.split(markup))
    yield _Tag(""), next(pieces)
    for token, text in zip(pieces, pieces, strict=True):
        tag = _tag(token)
        if silent:
            if tag.name == silent:
                depth += -1 if tag.closing else 1
                if depth == 0:
                    silent = ""
                    yield _Tag("", gap=tag.gap or ("" if tag.name in _INVISIBLE else " ")), text
        elif not tag.closing and (tag.name in _SILENT or not skip_classes.isdisjoint(tag.classes)):
            skipped = not skip_classes.isdisjoint(tag.classes)
            if tag.name not in _VOID:
                silent, depth = tag.name, 1
            yield _Tag("", media=None if skipped else tag.media), "" if silent else text
        else:
            yield tag, text


def readable(node: LexborNode, *, skip_classes: frozenset[str] = frozenset()) -> Readable:
    """Extract the text and the media of an element, without elements of the skipped classes.

    Blocks and line breaks become newlines (at most two in a row), other white space single spaces. Decorations
    (smilies, avatars, icons) do not count as media.
    """
    out: list[str] = []
    media: dict[str, None] = {}
    pre = 0
    for tag, text in _audible(node.html or "", skip_classes):
        if tag.media is not None:
            media[tag.media] = None
        if tag.name == "pre":
            pre += -1 if tag.closing else 1
        out += (tag.gap, text if pre else text.replace("\n", " "))
    text = "".join(out)
    return Readable(_tidy(html.unescape(text) if "&" in text else text), tuple(media))


def _tidy(text: str) -> str:
    """Normalise white space: single spaces, at most one empty line, none at the ends."""
    lines = [" ".join(part.split()) for part in text.split("\n")]
    if not all(map(str.isprintable, lines)):
        # Zero-width and control characters may hide white space from `split`.
        text = clean(text).replace("\u200b", "").replace("\ufeff", "")
        lines = [" ".join(part.split()) for part in text.split("\n")]
    text = "\n".join(lines)
    return (_NEWLINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()


def line(node: LexborNode | None) -> str:
    """Return the text of an element on one line; "" for no element."""
    if node is None:
        return ""
    text = " ".join(node.text(separator=" ").split())
    return text if text.isprintable() else " ".join(clean(text).split())


def required(page: Page, scope: LexborHTMLParser | LexborNode, selectors: Iterable[str]) -> LexborNode:
    """Return the first element that a selector finds. Raises LayoutError naming all selectors."""
    tried = tuple(selectors)
    for selector in tried:
        found = scope.css_first(selector)
        if found is not None:
            return found
    raise LayoutError(page.url, " or ".join(tried))


def ancestors(node: LexborNode) -> Iterator[LexborNode]:
    """Iterate over the ancestors of an element, nearest first."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def following_list_page(page: Page, tree: LexborHTMLParser, parameter: str) -> PageRequest | None:
    """The list page after this one: a link to the same path whose page number is one higher.

    Asking for what the link says, rather than for its class, outlives a renamed pager.
    """
    current = urlsplit(page.url)
    tried = _page_number(current.query, parameter) + 1
    for anchor in tree.css(f'a[href*="{parameter}="], link[rel="next"]'):
        url = link(page, anchor.attributes.get("href"))
        if url is None:
            continue
        target = urlsplit(url)
        same_place = (target.netloc, target.path.rstrip("/")) == (current.netloc, current.path.rstrip("/"))
        if same_place and _page_number(target.query, parameter) == tried:
            return PageRequest(url)
    return None


def _page_number(query: str, parameter: str) -> int:
    try:
        value = parse_qs(query, max_num_fields=50).get(parameter, ["1"])[-1]
    except ValueError:
        return 1
    return int(value) if value.isascii() and value.isdigit() and len(value) < 8 else 1
