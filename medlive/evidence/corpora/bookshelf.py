"""NCBI Bookshelf's books (StatPearls, GeneReviews, LiverTox …) and articles: BITS and JATS XML.

The archive as it is published, or a folder of its `.nxml` or `.xml` files. A chapter is a document; its
sections are labelled with the titles above them.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from .model import (
    Document,
    Reader,
    ReadLog,
    Section,
    path_label,
)
from .parsing.dates import last_day
from .parsing.files import CorpusFiles
from .parsing.text import is_retracted_title
from .parsing.xml import ELEMENTS, NO_ELEMENT, find, flat

_FILES = CorpusFiles(
    (".nxml", ".xml"), ("book-part-wrapper", "book-part", "book", "article")
)
# The accession number of a book or chapter
_NBK = re.compile(r"(?<![A-Za-z0-9])NBK\d{1,9}(?!\d)")
_ACCESSION = "accession"
_XLINK = "xlink:href"
_ID_TYPES = ("book-part-id-type", "book-id-type", "pub-id-type")
_CC = re.compile(
    r"creativecommons\.org/(?:licenses/([a-z-]+)/(\d\.\d)|publicdomain/zero/(\d\.\d))"
)
# Titles of chapters that say too little without the book's
_GENERAL_TITLE = re.compile(
    r"(?i)\W*(?:(?:chapter|part|section|appendix|module|annex)\b.{0,12}|(?:executive )?summary|introduction"
    r"|background|overview|methods?|results|discussion|conclusions?|recommendations?|evidence"
    r"|abstract)\W*"
)
_NO_EVIDENCE = (
    "retracted-article",
    "retraction",
    "partial-retraction",
    "expression-of-concern",
)
"""Types of articles that do not count as evidence."""
_PARTS = ("book-part", "article")
# Titles of sections that say nothing of medicine
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
_ABSTRACTS = (None, "executive-summary", "summary", "key-points")
"""Types of abstracts that are read; others are pictures, lists of contents or advertisements."""
_EMPTY_MARKS = re.compile(r"\s*[\[(](?:[\s,;–-]|and)*[\])]")
_LOOSE_MARK = re.compile(r" ([.,;:])(?= |$)")
"""What a citation left behind."""


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """One document for each part with text of its own; a part within a part is not read twice."""
    number = _NBK.search(path.name)
    shelf = number[0] if number else None
    for name, root in _FILES.xml_roots(path, log):
        book = find(root, ".//book-meta")
        parts = [each for each in root.iter() if each.tag in _PARTS] or [root]
        for position, part in enumerate(parts):
            place = f"{name}#{position}" if position else name
            document = _chapter(part, book, place, shelf)
            withdrawn = part.get("article-type") in _NO_EVIDENCE
            # Without sections: a table of contents, or the cover of the parts below.
            sections = _sections_of(part)
            if withdrawn or is_retracted_title(document.title) or not sections:
                log.left_out += 1
            else:
                yield replace(document, sections=tuple(sections))


def _chapter(
    part: Element,
    book: Element,
    name: str,
    shelf: str | None,
) -> Document:
    """The document of a chapter or article, without its sections."""
    article = find(part, "front/article-meta")
    meta = find(part, "book-part-meta")
    if meta is NO_ELEMENT:
        meta = article
    is_article = article is not NO_ELEMENT
    titles = find(meta, "title-group")
    title = flat(titles.find("title")) or flat(titles.find("article-title"))
    whole = flat(book.find("book-title-group/book-title"))
    if not title or (whole and _GENERAL_TITLE.fullmatch(title)):
        title = f"{whole}: {title}".strip(": ")
    file = PurePosixPath(name)
    stem = file.name if "#" in name else file.stem
    identity, url = _address(meta, book, shelf, stem)
    published = _published(meta, is_article=is_article)
    if published is None and not is_article:
        published = _published(book, is_article=False)
    return Document(
        id=identity,
        title=title or file.stem,
        sections=(),
        published=published,
        url=url,
        licence=_licence(meta) or _licence(book),
    )


def _address(
    meta: Element,
    book: Element,
    shelf: str | None,
    stem: str,
) -> tuple[str, str]:
    """The chapter's identifier and its page: by its own accession number, else by its place in its book."""
    kinds = _identifiers(meta, "book-part-id", "article-id", "object-id")
    # The chapter's link to itself, without a number of its own.
    links = "\n".join(link.get(_XLINK, "") for link in meta.iter("self-uri"))
    own = _NBK.search(links)
    if accession := kinds.get(_ACCESSION) or (own and own[0]):
        return accession, f"https://www.ncbi.nlm.nih.gov/books/{accession}/"
    if "pmc" in kinds or kinds.get("pmcid", "").upper().startswith("PMC"):
        number = (kinds.get("pmc") or kinds["pmcid"]).upper().removeprefix("PMC")
        return f"PMC{number}", f"https://pmc.ncbi.nlm.nih.gov/articles/PMC{number}/"
    books = _identifiers(book, "book-id")
    if "pmcid" in kinds and "pmcid" in books:
        place = f"{books['pmcid']}/{kinds['pmcid']}"
        return place, f"https://www.ncbi.nlm.nih.gov/books/n/{place}/"
    if shelf is not None:
        return f"{shelf}/{stem}", f"https://www.ncbi.nlm.nih.gov/books/{shelf}/"
    return stem, ""


def _identifiers(meta: Element, *names: str) -> dict[str, str]:
    """Kind → the first identifier of it."""
    identifiers: dict[str, str] = {}
    for child in meta:
        text = (child.text or "").strip()
        if text and child.tag in names:
            kind = next(filter(None, map(child.get, _ID_TYPES)), "")
            kind = _ACCESSION if _NBK.fullmatch(text) else kind
            identifiers.setdefault(kind, text)
    return identifiers


def _published(meta: Element, *, is_article: bool) -> date | None:
    """The day from which a chapter's or article's words could be read.

    A chapter is read as it was last revised. An article stays as it was published: on the electronic day, else by
    the last day of its issue.
    """
    days = []
    electronic = []
    for child in meta:
        whole = child.tag in ("pub-history", "history")
        for each in child if whole else [child]:
            day = last_day(each)
            kind = (each.get("date-type") or each.get("pub-type") or "").lower()
            other = each.tag not in ("pub-date", "date")
            if day is None or other or kind in ELEMENTS["other dates"]:
                continue
            days.append(day)
            if kind in ("epub", "pub"):
                electronic.append(day)
    if not is_article:
        return max(days, default=None)
    return min(electronic or days, default=None)


def _licence(meta: Element) -> str | None:
    """The Creative Commons licence, else the beginning of the licence's or copyright's words; None without any."""
    licence = find(meta, "permissions/license")
    for each in licence.iter():
        shared = _CC.search(each.get(_XLINK) or each.text or "")
        if shared and shared[3]:
            return f"CC0-{shared[3]}"
        if shared:
            return f"CC-{shared[1].upper()}-{shared[2]}"
    words = flat(licence) or flat(meta.find("permissions/copyright-statement"))
    return words[:200] or None


def _sections_of(part: Element) -> list[Section]:
    """The part's sections in reading order, but for those that say nothing of medicine.

    References, glossaries, questions for readers, acknowledgements and the like are left out, with all that
    is below them. A part within the part is not this part's text.
    """
    reading = _Reading()
    for child in part:
        name = child.tag
        if name in ("front", "book-part-meta"):
            for each in child.iter():
                kind = each.get("abstract-type")
                if each.tag == "abstract" and kind in _ABSTRACTS:
                    reading.section(each, (), "Abstract")
        elif name == "body":
            reading.block(child, ())
        elif name == "back":
            for group in child:
                for each in group if group.tag == "app-group" else [group]:
                    if each.tag in ("app", "book-app"):
                        reading.section(each, ())
    reading.close()
    return reading.sections


class _Reading:
    """Collects the sections of a part while its elements are read in order."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._path: tuple[str, ...] = ()
        self._lines: list[str] = []

    def close(self) -> None:
        """Make a section of the lines read so far."""
        if self._lines:
            self.sections.append(
                Section(path_label(self._path), "\n".join(self._lines))
            )
        self._lines = []

    def section(
        self,
        element: Element,
        path: tuple[str, ...],
        untitled: str = "",
    ) -> None:
        """Read an element, titled by itself or `untitled`, below the titles of `path`; skip kinds that are left out."""
        own = element.find("title")
        if own is None:
            own = element.find("caption/title")
        title = flat(own) or untitled
        if (
            _LEFT_OUT.fullmatch(title)
            or element.get("sec-type") in ELEMENTS["kinds left out"]
        ):
            return
        self.close()
        self.block(element, (*path, title) if title else path)
        self.close()
        self._path = path

    def block(self, element: Element, path: tuple[str, ...]) -> None:
        """Read a section, a box or the body; a paragraph of bold words alone is a title of its own."""
        self._path = path
        for child in element:
            name = child.tag
            if name in ELEMENTS["no text"]:
                continue
            if name in ("sec", "boxed-text", "app"):
                self.section(child, path)
            elif name == "p" and (heading := _bold_alone(child)):
                self.close()
                self._path = (*path, heading)
            else:
                self.text(child)

    def text(self, element: Element, mark: str = "") -> None:
        """Read an element's words; what is set apart in it (a list's item, a table's row) has lines of its own."""
        if element.tag == "tr":
            words = list(map(flat, element))
            self._line(" | ".join(words) if any(words) else "")
            return
        if element.tag == "def-item":
            self._line("- " + ": ".join(filter(None, map(flat, element))))
            return
        plain = Element("p")
        plain.text = element.text
        for child in element:
            if child.tag not in ELEMENTS["pieces"]:
                plain.append(child)
                continue
            if words_before := flat(plain):
                self._line(mark + words_before)
                mark = ""
            self.text(child, "- " if child.tag == "list-item" else mark)
            mark = ""
            plain = Element("p")
            plain.text = child.tail
        if rest := flat(plain):
            self._line(mark + rest)

    def _line(self, text: str) -> None:
        text = _LOOSE_MARK.sub(r"\1", _EMPTY_MARKS.sub("", text)).strip()
        if text:
            self._lines.append(text)


def _bold_alone(element: Element) -> str:
    """The words of a paragraph that holds nothing but bold ones: StatPearls' lowest titles."""
    if len(element) != 1 or element[0].tag not in ("bold", "b"):
        return ""
    around = (element.text or "") + (element[0].tail or "")
    words = flat(element[0]).rstrip(":").strip()
    return words if len(words) <= 100 and not around.strip() else ""


READER = Reader(
    kind="bookshelf",
    about="NCBI Bookshelf and StatPearls: the tar archive, or a folder of its .nxml or .xml files",
    sniff=_FILES.recognise,
    documents=documents,
    licence="unstated",
)
