"""Parse XML of strangers safely (nothing fetched, nothing declared, bounded depth); `flat` reads its text."""

import re
from html.entities import html5
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from medlive.guard.bounds import XML_DEPTH, XML_TEXT_DEPTH
from medlive.text.lists import read_words

_ENCODINGS = re.compile(
    r"utf-?8|utf-?16(?:[lb]e)?|(?:us-)?ascii|iso-8859-[0-9]{1,2}|latin-?1|(?:windows-|cp)125[0-8]",
    re.IGNORECASE,
)
"""Encodings that a file may declare. UTF-7 hides markup in letters, and the parser knows no other multi-byte ones."""
_LOOKED_BACK = 20  # Pieces of text before a superscript
_CITATIONS = ("bibr", "fn", "table-fn")
"""Kinds of references to a bibliography or a note."""
ELEMENTS = read_words("medlive.evidence", "elements.txt")
"""Use (skipped, breaks, formula, …) → names of elements."""


NO_ELEMENT = Element("")
"""Returned where there is none: it has no text, no attributes and no children."""


class UnsafeXml(ValueError):
    """The file is not whole XML, or is XML that medlive refuses to read."""


def parse(data: bytes) -> Element:
    """The root element; its names and those below it are without their prefixes.

    A document type that only names its definition is passed over and the definition never fetched; one with
    declarations of its own is refused before anything in it takes effect, so that neither an entity bomb nor an
    external entity exists for this parser. The character names of HTML, which the definitions of journals
    share, are read; another entity is an error. Raises UnsafeXml with line and cause.
    """
    builder = TreeBuilder()
    depth = 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def doctype(
        _name: str,
        _system: str | None,
        _public: str | None,
        declares: bool,
    ) -> None:
        if declares:
            raise UnsafeXml(
                f"line {parser.CurrentLineNumber}: a document type declaration with content of its own"
                " is not accepted"
            )

    def undefined(name: str, _is_parameter: bool) -> None:
        if f"{name};" not in html5:
            raise UnsafeXml(
                f"line {parser.CurrentLineNumber}: undefined entity {name[:40]!r}"
            )
        builder.data(html5[f"{name};"])

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > XML_DEPTH:
            raise UnsafeXml(
                f"line {parser.CurrentLineNumber}: nested deeper than {XML_DEPTH}"
            )
        builder.start(local(tag), attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(local(tag))

    parser.XmlDeclHandler = _check_encoding
    parser.StartDoctypeDeclHandler = doctype
    parser.SkippedEntityHandler = undefined
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as exc:
        raise UnsafeXml(
            f"line {exc.lineno}: {expat.errors.messages.get(exc.code, 'not XML')}"
        ) from exc
    except LookupError as exc:
        raise UnsafeXml(f"unreadable encoding: {str(exc)[:200]}") from exc
    return builder.close()


def local(tag: str) -> str:
    """An element's name without its namespace or prefix."""
    return tag.rpartition("}")[2].rpartition(":")[2]


def _check_encoding(_version: str, encoding: str | None, _standalone: int) -> None:
    if encoding is not None and not _ENCODINGS.fullmatch(encoding):
        raise UnsafeXml(
            f"line 1: the declared encoding {encoding[:40]!r} is not read; save it as UTF-8"
        )


def find(element: Element, path: str) -> Element:
    """The first element at that path of names; `NO_ELEMENT` without one."""
    first = element.find(path)
    return NO_ELEMENT if first is None else first


def flat(element: Element | None) -> str:
    """The element's text on one line.

    A superscript number after a digit keeps its meaning ("10<sup>9</sup>" is 10^9, "m<sup>2</sup>" is m2);
    references to a bibliography and what only a typesetter reads are left out.
    """
    if element is None:
        return ""
    if not len(element):
        return " ".join((element.text or "").split())
    parts: list[str] = []
    _walk(element, parts, 0)
    return " ".join("".join(parts).split())


def _walk(element: Element, parts: list[str], depth: int) -> None:
    """Append the pieces of an element's text; far below, its markup is ignored."""
    if depth > XML_TEXT_DEPTH:
        parts.extend(element.itertext())
        return
    name = local(element.tag)
    if name == "sup":
        _add_power_sign(element, parts)
    parts.append(element.text or "")
    for position, child in enumerate(element):
        if _is_read(child):
            space = " " if local(child.tag) in ELEMENTS["breaks"] else ""
            parts.append(space)
            if position == 1 and name == "mfrac":
                parts.append("/")
            elif position == 1 and name == "msup":
                _add_power_sign(child, parts)
            _walk(child, parts, depth + 1)
            parts.append(space)
        # White space between the parts of a formula is the file's layout, not its text.
        if child.tail and (name not in ELEMENTS["formula"] or child.tail.strip()):
            parts.append(child.tail)


def _is_read(element: Element) -> bool:
    """Whether it is neither a reference to a bibliography nor for a typesetter alone."""
    kind = local(element.tag)
    is_citation = kind == "xref" and element.get("ref-type") in _CITATIONS
    return kind not in ELEMENTS["skipped"] and not is_citation


def _add_power_sign(power: Element, parts: list[str]) -> None:
    """Append "^" if `power` is a superscript number after a digit."""
    # Bounded, since a document may hold a hundred thousand powers after nothing but space.
    before = "".join(parts[-_LOOKED_BACK:]).rstrip()
    raised = [power.text or ""]
    cites = False
    for child in power:
        if _is_read(child):
            raised += child.itertext()
        else:
            cites = True
        raised.append(child.tail or "")
    first = "".join(raised).strip()[:1]
    # Of citations, which are left out, a dash may remain.
    is_signed = first in ("-", "−", "–", "+") and not cites
    if before[-1:].isdigit() and (first.isdigit() or is_signed):
        parts.append("^")
