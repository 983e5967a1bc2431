"""The text of a BITS or JATS chapter, section by section, under the titles it stands under."""

import re
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.parsing.chunk import Section, path_label
from medlive.evidence.corpora.parsing.markup import MAX_DEPTH, flat, local

_LEFT_OUT = re.compile(
    r"""(?ix) \W* (?:
        references? | bibliography | literature\ cited | further\ reading | suggested\ (?:reading|resources)
      | review\ questions? | (?:self[-\ ]assessment\ )?(?:quiz|questions) | continuing\ education(?:\ activity)?
      | learning\ objectives? | glossary | abbreviations(?:\ and\ acronyms)? | acronyms | contents | see\ also
      | acknowledge?ments? | contributors | authors?['’]?(?:\ (?:contributions|affiliations|notes?))?
      | conflicts?\ of\ interests?(?:\ statement)? | competing\ interests | disclosures? | funding(?:\ sources)?
      | chapter\ notes | (?:revision|(?:pre-?)?publication)\ history | copyright(?:\ notice)?
      | how\ to\ cite.{0,30}
      | (?:supplementary|additional)\ (?:materials?|data) | data\ availability(?:\ statement)?
    ) \W* """
)
_LEFT_OUT_KINDS = ("ref-list", "glossary", "ack", "supplementary-material", "review-questions", "disclosure")
_ABSTRACTS = (None, "executive-summary", "summary", "key-points")
"""Not the ones that a reader sees as a picture, a contents list or an advertisement."""
_EMPTY_MARKS = re.compile(r"\s*[\[(](?:[\s,;–-]|and)*[\])]")
_LOOSE_MARK = re.compile(r" ([.,;:])(?= |$)")
"""What a citation left behind."""
_SKIPPED = {
    "title", "label", "ref-list", "glossary", "ack", "fn-group", "fn", "notes", "object-id", "book-part",
    "graphic", "media", "supplementary-material", "sec-meta", "related-object", "permissions", "question-wrap",
    "answer-set", "question-wrap-group", "book-part-meta", "front", "front-stub", "sub-article", "response",
}  # fmt: skip


def sections_of(part: Element) -> tuple[list[Section], int]:
    """The part's sections in reading order, and how many were left out as saying nothing of medicine.

    References, glossaries, questions for readers, acknowledgements and the like are left out, whatever stands
    below them. A part within the part is not this part's text.
    """
    reading = _Reading()
    for child in part:
        name = local(child.tag)
        if name in ("front", "book-part-meta"):
            for abstract in child.iter():
                if local(abstract.tag) == "abstract" and abstract.get("abstract-type") in _ABSTRACTS:
                    reading.section(abstract, (), 0, "Abstract")
        elif name == "body":
            reading.block(child, (), 0)
        elif name == "back":
            for group in child:
                for each in group if local(group.tag) == "app-group" else [group]:
                    if local(each.tag) in ("app", "book-app"):
                        reading.section(each, (), 0)
    reading.close()
    return reading.sections, reading.omitted


class _Reading:
    def __init__(self) -> None:
        self.sections: list[Section] = []
        self.omitted = 0
        self._path: tuple[str, ...] = ()
        self._lines: list[str] = []

    def close(self) -> None:
        if self._lines:
            self.sections.append(Section(path_label(self._path), "\n".join(self._lines)))
        self._lines = []

    def section(self, element: Element, path: tuple[str, ...], depth: int, untitled: str = "") -> None:
        holders = [element, *(child for child in element if local(child.tag) == "caption")]
        title = next((flat(child) for holder in holders for child in holder if local(child.tag) == "title"), "")
        title = title or untitled
        if _LEFT_OUT.fullmatch(title) or element.get("sec-type") in _LEFT_OUT_KINDS:
            self.omitted += 1
            return
        self.close()
        below = (*path, title) if title else path
        self._path = below
        self.block(element, below, depth)
        self.close()
        self._path = path

    def block(self, element: Element, path: tuple[str, ...], depth: int) -> None:
        """What stands in a section, a box or the body; a paragraph of bold words alone is a title of its own."""
        under = path
        for child in element:
            name = local(child.tag)
            if not name or name in _SKIPPED:
                continue
            if depth > MAX_DEPTH:
                self._line(flat(child))
            elif name in ("sec", "boxed-text", "app"):
                self.section(child, path, depth + 1)
                under = path
            elif name == "p":
                heading = _bold_alone(child)
                if heading:
                    self.close()
                    under = (*path, heading)
                    self._path = under
                else:
                    self._path = under
                    self.paragraph(child, depth)
            else:
                self._path = under
                self.piece(child, depth)

    def paragraph(self, element: Element, depth: int) -> None:
        """A paragraph's words, then what is set within it: lists, tables, figures."""
        inner = [child for child in element if local(child.tag) in _PIECES]
        if not inner:
            self._line(flat(element))
            return
        plain = Element("p")
        plain.text = element.text
        for child in element:
            if local(child.tag) in _PIECES:
                self._line(flat(plain))
                self.piece(child, depth + 1)
                plain = Element("p")
                plain.text = child.tail
            else:
                plain.append(child)
        self._line(flat(plain))

    def piece(self, element: Element, depth: int) -> None:
        name = local(element.tag)
        if depth > MAX_DEPTH:
            self._line(flat(element))
        elif name in ("list", "def-list"):
            self._list(element, depth)
        elif name in ("table-wrap", "table"):
            self._table(element)
        elif name in ("fig", "fig-group"):
            for each in element.iter():
                if local(each.tag) == "caption":
                    self._line(flat(each))
        elif name in ("disp-quote", "statement", "verse-group", "speech", "table-wrap-group"):
            self.block(element, self._path, depth + 1)
        elif name not in _SKIPPED:
            self._line(flat(element))

    def _list(self, element: Element, depth: int) -> None:
        for item in element:
            kind = local(item.tag)
            if kind == "list-item":
                self._item(item, depth)
            elif kind == "def-item":
                self._line("- " + ": ".join(words for part in item if (words := flat(part))))

    def _item(self, item: Element, depth: int) -> None:
        first = True
        for child in item:
            name = local(child.tag)
            if name in _PIECES:
                self.piece(child, depth + 1)
            elif name not in _SKIPPED and (words := flat(child)):
                self._line(f"- {words}" if first else words)
                first = False

    def _table(self, element: Element) -> None:
        for each in element.iter():
            name = local(each.tag)
            if name == "caption":
                self._line(flat(each))
            elif name == "tr":
                cells = [flat(cell) for cell in each if local(cell.tag) in ("td", "th")]
                if any(cells):
                    self._line(" | ".join(cells))
            elif name == "table-wrap-foot":
                self._line(flat(each))

    def _line(self, text: str) -> None:
        text = _LOOSE_MARK.sub(r"\1", _EMPTY_MARKS.sub("", text)).strip()
        if text:
            self._lines.append(text)


_PIECES = {"list", "def-list", "table-wrap", "table", "fig", "fig-group", "disp-quote", "boxed-text"}


def _bold_alone(element: Element) -> str:
    """The words of a paragraph that holds nothing but bold ones: StatPearls' lowest titles."""
    if len(element) != 1 or (element.text or "").strip() or (element[0].tail or "").strip():
        return ""
    if local(element[0].tag) not in ("bold", "b"):
        return ""
    words = flat(element[0]).rstrip(":").strip()
    return words if len(words) <= 100 else ""
