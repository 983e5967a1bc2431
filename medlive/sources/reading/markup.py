"""Extract readable text and media from markup, in one pass over the parser's serialisation."""

import html
import re
from collections.abc import Iterable, Iterator
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
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
))  # fmt: skip
_SILENT = frozenset((
    "script", "style", "noscript", "template", "svg", "button", "select", "textarea", "head", "iframe",
    "object", "video", "audio",
))  # fmt: skip
_BLOCK = frozenset((
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "figcaption", "figure", "footer",
    "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre",
    "section", "table", "tbody", "tfoot", "thead", "tr", "ul",
))  # fmt: skip
_INVISIBLE = frozenset(["script", "style", "noscript", "template"])
# Elements that need no end tag: leaving it out does not nest them.
_SELF_CLOSING = {
    name.encode()
    for name in _VOID | {"dd", "dt", "li", "option", "p", "tbody", "td", "tfoot", "th", "thead", "tr"}
}
_MEDIA = {"img": "image", "picture": "image", "video": "video", "audio": "audio", "iframe": "video",
          "object": "file", "embed": "file"}  # fmt: skip
_DECORATION = frozenset(["smilie", "emoji", "avatar", "icon", "reaction-sprite", "bbCodeSpoiler-button"])
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_MAX_DEPTH = 512
_FEW_TAGS = 4 * _MAX_DEPTH
_SHORT_TAG, _MOST_KNOWN = 200, 4096
MAX_BYTES = 8 * 2**20
"""Most bytes of one page's markup; the fetcher cuts bodies off at the same size."""
_SMALL, _LONG_TAG, _MAX_ATTRIBUTES = 2**17, 4096, 2000
_WHOLE_TAG = re.compile(rb"<[a-zA-Z](?:[^>\"']++|\"[^\"]*+\"|'[^']*+')*+(?:[\"'][^>]*+)?")
# As the parser reads values: one without quotes goes on to the next space whatever it holds.
_VALUE = re.compile(rb"(?<=[^\s/=])=\s*+(?:\"[^\"]*+\"=*+|'[^']*+'=*+|[^\s>\"'][^\s>]*+)")
_BETWEEN = re.compile(rb"[\s/\"']+")
_TAG_NAME = re.compile(rb"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_TAIL = 200
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
        markup, url = source.utf8, source.url
        if markup.rfind(b"</html", -_TAIL) < 0 and _END.search(markup) is None:
            raise LayoutError(url, "</html> at the page's end")
    else:
        # A string from JSON may contain lone surrogates, which the parser refuses.
        markup, url = clean(source).encode("utf-8"), "a fragment of markup"
    if len(markup) > MAX_BYTES:
        raise LayoutError(url, f"at most {MAX_BYTES} bytes of markup", found=str(len(markup)))
    if _is_too_deep(markup):
        raise LayoutError(url, f"markup nested less than {_MAX_DEPTH} deep")
    if len(markup) > _SMALL and _is_crowded(markup):
        raise LayoutError(url, f"at most {_MAX_ATTRIBUTES} attributes in a tag")
    return LexborHTMLParser(markup)


def _is_too_deep(markup: bytes) -> bool:
    """Whether elements are nested deeper than browsers accept."""
    if markup.count(b"<") <= _FEW_TAGS:
        return False
    # An upper bound that is quick to count: tags opened and not closed so far, void elements included.
    bound = 0
    for start in range(0, len(markup), 8192):
        bound += markup.count(b"<", start, start + 8192) - 2 * markup.count(b"</", start, start + 8192)
        if bound > _FEW_TAGS:
            break
    else:
        return False
    depth = 0
    for closing, tag in _TAG_NAME.findall(markup):
        if tag.lower() not in _SELF_CLOSING:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > _MAX_DEPTH:
                return True
    return False


def _is_crowded(markup: bytes) -> bool:
    """Whether a tag has so many attributes that the parser, comparing each with all before it, would be slow."""
    for tag in _WHOLE_TAG.finditer(markup):
        start, end = tag.span()
        if end - start > _LONG_TAG:
            names, values = _VALUE.subn(b"", markup[start:end])
            if values + len(_BETWEEN.findall(names)) > _MAX_ATTRIBUTES:
                return True
    return False


class _Tag(NamedTuple):
    """The effect of a tag on the text around it."""

    name: str
    closing: bool
    gap: str
    """The white space that replaces it."""
    plain: bool
    """It has no other effect."""
    classes: frozenset[str] = frozenset()
    media: str | None = None
    silent: bool = False
    """The content of its element is not text."""


_known_tags: dict[str, _Tag] = {}
"""A cache of short tags, since a page repeats a few."""


def _tag(token: str) -> _Tag:
    match = _TAG.match(token)
    if match is None:
        return _Tag("", True, "", True)
    name = match[2].lower()
    if match[1]:
        tag = _Tag(name, True, "\n" if name in _BLOCK else "", name != "pre")
    else:
        named = dict(_ATTRIBUTE.findall(match[3]))
        classes = frozenset(named.get("class", "").split())
        is_media = name in _MEDIA and not classes & _DECORATION and not _is_spacer(named)
        gap = "\n" if name == "br" or name in _BLOCK else " " if name in ("td", "th") else ""
        silent = name in _SILENT
        plain = not (classes or is_media or silent or name == "pre")
        tag = _Tag(name, False, gap, plain, classes, _MEDIA[name] if is_media else None, silent)
    if len(token) <= _SHORT_TAG and len(_known_tags) < _MOST_KNOWN:
        _known_tags[token] = tag
    return tag


def readable(node: LexborNode, *, skip_classes: frozenset[str] = frozenset()) -> Readable:
    """Extract the text and the media of an element, without elements of the skipped classes.

    Blocks and line breaks become newlines (at most two in a row), other white space single spaces. Decorations
    (smilies, avatars, icons) do not count as media.
    """
    markup = node.html or ""
    if "<pre" not in markup:
        markup = markup.replace("\n", " ")
    out: list[str] = []
    media: dict[str, None] = {}
    silent = ""  # while inside a skipped element: its tag, and how deeply tags of that name are nested in it
    depth = 0
    pre = 0
    known = _known_tags.get
    # Text and tags by turns.
    pieces = iter(_TOKEN.split(markup))
    out.append(next(pieces))
    for token, text in zip(pieces, pieces, strict=True):
        tag = known(token) or _tag(token)
        if silent:
            if tag.name == silent:
                depth += -1 if tag.closing else 1
                if depth == 0:
                    silent = ""
                    out.append(tag.gap or ("" if tag.name in _INVISIBLE else " "))
        elif tag.plain:
            out.append(tag.gap)
        elif tag.closing:
            out.append(tag.gap)
            pre -= 1
        else:
            skipped = not skip_classes.isdisjoint(tag.classes)
            if tag.media is not None and not skipped:
                media[tag.media] = None
            if not (skipped or tag.silent):
                out.append(tag.gap)
                pre += tag.name == "pre"
            elif tag.name not in _VOID:
                silent, depth = tag.name, 1
        if text and not silent:
            out.append(text if pre else text.replace("\n", " "))
    text = "".join(out)
    return Readable(tidy(html.unescape(text) if "&" in text else text), tuple(media))


def _is_spacer(attributes: dict[str, str]) -> bool:
    """Whether an image is a tracking pixel or an inline placeholder."""
    if attributes.get("width") == "1" or attributes.get("height") == "1":
        return True
    return attributes.get("src", "").startswith("data:") and "data-src" not in attributes


def tidy(text: str) -> str:
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
