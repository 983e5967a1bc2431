"""Text out of inline markup: superscripts stay powers, fractions stay fractions, citation marks go."""

from xml.etree.ElementTree import Element

MAX_DEPTH = 100
_UP = {"sup", "msup", "mover"}
_SKIPPED = {"annotation", "annotation-xml", "tex-math", "object-id", "label", "fn", "graphic", "media"}
_BREAKS = {"p", "break", "title", "list-item", "td", "th", "tr", "def-item"}


def local(tag: object) -> str:
    """An element's name without its namespace; empty for a comment or a processing instruction."""
    return tag.rpartition("}")[2].rpartition(":")[2] if isinstance(tag, str) else ""


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
    if depth > MAX_DEPTH:
        parts.extend(element.itertext())
        return
    name = local(element.tag)
    mathematical = name in ("msup", "mfrac")
    if name == "sup":
        _add_power_sign("".join(element.itertext()), parts)
    _write(element.text, parts)
    for position, child in enumerate(element):
        kind = local(child.tag)
        if kind and kind not in _SKIPPED and not _is_citation(child, kind):
            if kind in _BREAKS:
                parts.append(" ")
            if mathematical and position == 1:
                if name == "mfrac":
                    parts.append("/")
                else:
                    _add_power_sign("".join(child.itertext()), parts)
            _walk(child, parts, depth + 1)
            if kind in _BREAKS:
                parts.append(" ")
        # White space between the parts of a formula is the file's layout, not its text.
        _write(child.tail if not _is_formula(name) or (child.tail or "").strip() else "", parts)


def _write(text: str | None, parts: list[str]) -> None:
    if text:
        parts.append(text)


def _add_power_sign(power: str, parts: list[str]) -> None:
    before = next((text.rstrip() for text in reversed(parts) if text.strip()), "")
    raised = power.strip()
    if before[-1:].isdigit() and (raised[:1].isdigit() or raised[:1] in "-−–+"):
        parts.append("^")


def _is_formula(name: str) -> bool:
    return name == "math" or (name.startswith("m") and name in _FORMULA)


_FORMULA = {
    "mrow", "mfrac", "msup", "msub", "msubsup", "munder", "mover", "munderover", "msqrt", "mroot", "mstyle",
    "mmultiscripts", "mtable", "mtr", "mtd", "mpadded", "mphantom", "mfenced", "menclose", "merror",
}  # fmt: skip


def _is_citation(element: Element, kind: str) -> bool:
    return kind == "xref" and element.get("ref-type") in ("bibr", "fn", "table-fn")
