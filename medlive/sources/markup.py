"""Readable text and media from markup, in one pass over the parser's own serialisation."""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.sources.source import LayoutError, Page, PageRequest, link

# The parser's output is well formed: attribute values stand in double quotes, text has no bare "<". The three
# alternatives start differently, so the expression is linear.
_TOKEN = re.compile(r"<!--.*?-->|<(/?)([a-zA-Z][^\s/>]*)((?:[^>\"]|\"[^\"]*\")*)>|([^<]+)|<", re.DOTALL)
_ATTRIBUTE = re.compile(r"([^\s=\"]+)=\"([^\"]*)\"")
_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_SILENT = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "svg",
        "button",
        "select",
        "textarea",
        "head",
        "iframe",
        "object",
        "video",
        "audio",
    ]
)
_BLOCK = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "dd",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    ]
)
_INVISIBLE = frozenset(["script", "style", "noscript", "template"])
# Elements that need no end tag: leaving it out does not nest them.
_SELF_CLOSING = _VOID | {"dd", "dt", "li", "option", "p", "tbody", "td", "tfoot", "th", "thead", "tr"}
_MEDIA = {"img": "image", "picture": "image", "video": "video", "audio": "audio", "iframe": "video",
          "object": "file", "embed": "file"}  # fmt: skip
_DECORATION = frozenset(["smilie", "emoji", "avatar", "icon", "reaction-sprite", "bbCodeSpoiler-button"])
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_SPACES = re.compile(r"[^\S\n]+")
_AROUND_NEWLINE = re.compile(r" ?\n ?")
_MAX_DEPTH = 512
_TAG_NAME = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_END = re.compile(r"</html", re.IGNORECASE)
_NEWLINES = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Readable:
    """What a visitor reads in a piece of a page, and the kinds of media that it shows."""

    text: str
    media: tuple[str, ...]


def clean(text: str) -> str:
    """A text that any store can hold: control characters are dropped, lone surrogates become U+FFFD."""
    return _CONTROL.sub(lambda m: "\ufffd" if m[0] >= "\ud800" else "", text)


def parse(source: Page | str) -> LexborHTMLParser:
    """The tree of a page or of a fragment of markup.

    Raises LayoutError for a page that does not reach its end (what a parser mends of it would be half a page), and
    for markup nested so deeply that parsing it would take quadratic time.
    """
    if isinstance(source, Page):
        text, url = source.text, source.url
        if _END.search(text) is None:
            raise LayoutError(url, "</html> at the page's end")
    else:
        # A decoded page cannot hold a lone surrogate, which the parser refuses; a string out of JSON can.
        text, url = clean(source), "a fragment of markup"
    if _is_too_deep(text):
        raise LayoutError(url, f"markup nested less than {_MAX_DEPTH} deep")
    return LexborHTMLParser(text)


def _is_too_deep(text: str) -> bool:
    """Whether elements are nested beyond any page for people; browsers stop at the same depth."""
    # Tags opened and not closed so far, void elements included: an upper bound that counting finds quickly.
    bound = 0
    for start in range(0, len(text), 8192):
        bound += text.count("<", start, start + 8192) - 2 * text.count("</", start, start + 8192)
        if bound > 4 * _MAX_DEPTH:
            break
    else:
        return False
    depth = 0
    for closing, tag in _TAG_NAME.findall(text):
        if tag.lower() not in _SELF_CLOSING:
            depth = max(0, depth - 1) if closing else depth + 1
            if depth > _MAX_DEPTH:
                return True
    return False


def readable(
    node: LexborNode,
    *,
    skip_classes: Iterable[str] = (),
    skip_tags: Iterable[str] = (),
) -> Readable:
    """The text of an element and its media, without anything inside an element of a skipped class or tag.

    Blocks and line breaks become newlines (at most two in a row), other runs of white space one space.
    Pictures that decorate (smilies, avatars, icons) are no media.
    """
    skipped = frozenset(skip_classes)
    silent = _SILENT | frozenset(skip_tags)
    out: list[str] = []
    media: dict[str, None] = {}
    silent_tag = ""  # while inside a skipped element: its tag, and how deeply tags of that name are nested in it
    depth = 0
    pre = 0
    for match in _TOKEN.finditer(node.html or ""):
        closing, tag, attributes, text = match.groups()
        if text is not None:
            if not silent_tag:
                out.append(html.unescape(text) if pre else html.unescape(text).replace("\n", " "))
            continue
        if tag is None:
            continue
        tag = tag.lower()
        if silent_tag:
            if tag == silent_tag and tag not in _VOID:
                depth += -1 if closing else 1
                if depth == 0:
                    silent_tag = ""
                    if tag not in _INVISIBLE:
                        out.append("\n" if tag in _BLOCK else " ")
            continue
        if closing:
            if tag in _BLOCK:
                out.append("\n")
                pre -= tag == "pre"
            continue
        named = dict(_ATTRIBUTE.findall(attributes)) if attributes else {}
        classes = frozenset(named.get("class", "").split())
        if classes & skipped:
            if tag not in _VOID:
                silent_tag, depth = tag, 1
            continue
        if tag in _MEDIA and not classes & _DECORATION and not _is_spacer(named):
            media[_MEDIA[tag]] = None
        if tag in silent:
            if tag not in _VOID:
                silent_tag, depth = tag, 1
            continue
        if tag == "br" or tag in _BLOCK:
            out.append("\n")
            pre += tag == "pre"
        elif tag in ("td", "th"):
            out.append(" ")
    return Readable(tidy("".join(out)), tuple(media))


def _is_spacer(attributes: dict[str, str]) -> bool:
    """Whether a picture is a counting pixel or an inline placeholder."""
    if attributes.get("width") == "1" or attributes.get("height") == "1":
        return True
    return attributes.get("src", "").startswith("data:") and "data-src" not in attributes


def tidy(text: str) -> str:
    """White space as a reader sees it: single spaces, at most one empty line, none at the ends."""
    text = _SPACES.sub(" ", clean(text).replace("\u200b", "").replace("\ufeff", ""))
    return _NEWLINES.sub("\n\n", _AROUND_NEWLINE.sub("\n", text)).strip()


def line(node: LexborNode | None) -> str:
    """The text of an element on one line; "" when there is no element."""
    return " ".join(clean(node.text(separator=" ")).split()) if node is not None else ""


def required(page: Page, scope: LexborHTMLParser | LexborNode, selectors: Iterable[str]) -> LexborNode:
    """The first element that a selector finds, newest first. Raises LayoutError naming all selectors."""
    wanted = tuple(selectors)
    for selector in wanted:
        found = scope.css_first(selector)
        if found is not None:
            return found
    raise LayoutError(page.url, " or ".join(wanted))


def ancestors(node: LexborNode) -> Iterator[LexborNode]:
    """The elements that an element stands in, nearest first."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def following_list_page(page: Page, tree: LexborHTMLParser, parameter: str) -> PageRequest | None:
    """The list page after this one: a link to the same path whose page number is one higher.

    Asking for what the link says, rather than for its class, outlives a renamed pager.
    """
    here = urlsplit(page.url)
    wanted = _page_number(here.query, parameter) + 1
    for anchor in tree.css(f'a[href*="{parameter}="], link[rel="next"]'):
        url = link(page, anchor.attributes.get("href"))
        if url is None:
            continue
        there = urlsplit(url)
        same_place = (there.netloc, there.path.rstrip("/")) == (here.netloc, here.path.rstrip("/"))
        if same_place and _page_number(there.query, parameter) == wanted:
            return PageRequest(url)
    return None


def _page_number(query: str, parameter: str) -> int:
    try:
        value = parse_qs(query, max_num_fields=50).get(parameter, ["1"])[-1]
    except ValueError:
        return 1
    return int(value) if value.isascii() and value.isdigit() and len(value) < 8 else 1
