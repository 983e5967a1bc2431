"""XML of strangers: no document type, no entities, bounded depth; then the usual element tree."""

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

MAX_DEPTH = 200


class UnsafeXml(ValueError):
    """The file is not XML, or is XML that medlive refuses to read."""


def parse(data: bytes) -> Element:
    """The root element.

    A document type declaration is refused before anything in it takes effect, so that neither an entity bomb
    nor an external entity exists for this parser. Raises UnsafeXml with line and cause.
    """
    builder = TreeBuilder()
    depth = 0
    parser = expat.ParserCreate()
    parser.buffer_text = True

    def doctype(*_: object) -> None:
        raise UnsafeXml(f"line {parser.CurrentLineNumber}: a document type declaration is not accepted")

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
