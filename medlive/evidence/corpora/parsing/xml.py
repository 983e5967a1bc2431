"""XML of strangers: nothing fetched, nothing declared, bounded depth; then the usual element tree."""

from html.entities import html5
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

MAX_DEPTH = 200


class UnsafeXml(ValueError):
    """The file is not XML, or is XML that medlive refuses to read."""


def parse(data: bytes) -> Element:
    """The root element.

    A document type that only names its definition is passed over and the definition never fetched; one with
    declarations of its own is refused before anything in it takes effect, so that neither an entity bomb nor an
    external entity exists for this parser. The character names of HTML, which the definitions of journals
    share, are read; another entity is an error. Raises UnsafeXml with line and cause.
    """
    builder = TreeBuilder()
    depth = 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def doctype(_name: str, _system: str | None, _public: str | None, declares: bool) -> None:
        if declares:
            raise UnsafeXml(
                f"line {parser.CurrentLineNumber}: a document type declaration with content of its own"
                " is not accepted"
            )

    def undefined(name: str, _is_parameter: bool) -> None:
        if f"{name};" not in html5:
            raise UnsafeXml(f"line {parser.CurrentLineNumber}: undefined entity {name[:40]!r}")
        builder.data(html5[f"{name};"])

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsafeXml(f"line {parser.CurrentLineNumber}: nested deeper than {MAX_DEPTH}")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    parser.StartDoctypeDeclHandler = doctype
    parser.SkippedEntityHandler = undefined
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as exc:
        raise UnsafeXml(f"line {exc.lineno}: {expat.errors.messages.get(exc.code, 'not XML')}") from exc
    except (LookupError, UnicodeError) as exc:
        raise UnsafeXml(f"unreadable encoding: {exc}") from exc
    return builder.close()
