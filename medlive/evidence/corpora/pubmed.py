"""PubMed as the National Library of Medicine publishes it: baseline and update files, packed or not.

A file or a folder of them; files count in the order of their names, as the library numbers them. Read twice:
first for which record of each article is the valid one (a later version or file replaces, a deletion removes),
then for the text. Memory: four bytes an article and one record's text.
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from io import BufferedIOBase
from pathlib import Path
from typing import cast
from xml.etree.ElementTree import Element, ParseError, fromstring

import numpy as np
from numpy.typing import NDArray

from medlive.errors import BadInput
from medlive.text.normalise import dominant_language

from .model import Document, Reader, ReadLog, Section
from .parsing.dates import element_period, last_day
from .parsing.files import CorpusFiles, open_unpacked
from .parsing.frames import Frame, frames
from .parsing.text import (
    is_retracted_title,
    language_of,
)
from .parsing.xml import UnsafeXml, flat

_FILES = CorpusFiles((".xml", ".xml.gz"), ("PubmedArticleSet",))
LICENCE = "NLM terms; the abstract is its publisher's"
PMID = re.compile(rb"<PMID(?:\s[^>]*)?>\s*(\d{1,8})\s*</PMID>")
NOTICE = re.compile(
    rb"<CommentsCorrections\s[^>]*RefType\s*=\s*[\"'](\w+)[\"'][^>]*>(.*?)</CommentsCorrections>",
    re.S,
)
NOTICES = (b"RetractionOf", b"ExpressionOfConcernFor")
"""One is in each record that retracts another article, or says that there is concern about it."""
# Notices in a record that another article was retracted or is in question
_AGAINST = {"RetractionOf", "PartialRetractionOf", "ExpressionOfConcernFor"}
_NO_EVIDENCE = _AGAINST | {
    "RetractionIn",
    "PartialRetractionIn",
    "RetractedandRepublishedIn",
    "Retracted Publication",
    "Retraction of Publication",
    "Retraction Notice",
    "ExpressionOfConcernIn",
    "Expression of Concern",
}
"""Notices of a record, and types of its article, that make it no evidence."""
_LISTS = (
    b"ReferenceList",
    b"AuthorList",
    b"MeshHeadingList",
    b"ChemicalList",
    b"InvestigatorList",
    b"GrantList",
)
"""Lists that no passage is made of; an article's record has each in one place, a book's may not."""
# Namespaces that a file may declare once, at its top.
_OPENING = (
    b'<x xmlns:mml="http://www.w3.org/1998/Math/MathML" xmlns:xlink="http://www.w3.org/1999/xlink"'
    b' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
)


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every article whose record is the valid one, and is neither retracted nor questioned."""
    valid = _Valid()
    readable = []
    files = _FILES.below(path, log)
    if not files:
        endings = " or ".join(_FILES.suffixes)
        raise BadInput(f"{path} contains no file that ends in {endings}")
    for name, file in sorted(files, key=lambda named: (named[1].name, named[0])):
        try:
            valid.take(_frames(file))
            readable.append((name, file))
        except (UnsafeXml, OSError) as exc:
            log.problem(name, str(exc))
    number = 0
    for name, file in readable:
        for frame in _frames(file):
            number += 1
            if valid.holds(frame, number, name, log):
                yield from documents_of_record(frame, log, name)


def _frames(file: Path) -> Iterator[Frame]:
    with open_unpacked(file) as stream:
        yield from frames(cast("BufferedIOBase", stream))


@dataclass
class _Valid:
    """Which record of each article is valid, by the record's number over all files, from 1."""

    numbers: NDArray[np.uint32] = field(
        default_factory=lambda: np.zeros(10**8, dtype=np.uint32)
    )
    """PMID → number of its valid record, 0 for none; only memory pages that are written are allocated."""
    withdrawn: set[int] = field(default_factory=set)
    """PMIDs that a notice of retraction or concern names."""
    count: int = 0  # Records so far

    def take(self, records: Iterator[Frame]) -> None:
        """Note a file's records; none of them if reading them raises an error."""
        articles = array("I")
        deleted: list[int] = []
        withdrawn = set[int]()
        for frame in records:
            article = 0
            if frame.kind == "DeleteCitation":
                deleted += map(int, PMID.findall(frame.data))
            else:
                article = int(pmid_of(frame.data) or 0)
            articles.append(article)
            if any(map(frame.data.__contains__, NOTICES)):
                withdrawn |= _named_by(frame.data)
        # Of several records of an article the last one's number stays.
        self.numbers[articles] = self.count + np.arange(1, len(articles) + 1)
        self.numbers[deleted] = 0
        self.count += len(articles)
        self.withdrawn |= withdrawn

    def holds(
        self,
        frame: Frame,
        number: int,
        file: str,
        log: ReadLog,
    ) -> bool:
        """Whether the record of that number is the valid one of its article; says in the log why it is not."""
        place = f"{file}, line {frame.line}"
        article = int(pmid_of(frame.data) or 0)
        if not frame.kind:
            log.problem(place, frame.damage)
        elif frame.kind == "DeleteCitation":
            return False
        elif not article:
            log.problem(place, "a record without a PMID")
        elif self.numbers[article] != number or article in self.withdrawn:
            log.left_out += 1
        else:
            return True
        return False


def _named_by(data: bytes) -> set[int]:
    """The articles that a record's notices of retraction or concern are about."""
    articles = set()
    for notice in NOTICE.finditer(data):
        if notice[1].decode() in _AGAINST:
            articles.add(int(pmid_of(notice[2]) or 0))
    return articles


def pmid_of(data: bytes) -> str | None:
    """Return the PMID of a record; None if it names none."""
    match = PMID.search(data)
    return None if match is None else match[1].decode()


def documents_of_record(
    frame: Frame,
    log: ReadLog,
    file: str = "",
) -> Iterator[Document]:
    """Yield the abstracts of one record, unless it was retracted, is in question, or has no date.

    Args:
        frame: A record with a PMID.
        log: Counts what is left out.
        file: The name of the file that it stands in.
    """
    article, place = pmid_of(frame.data), f"{file}, line {frame.line}"
    try:
        root = parse_record(frame.data)
    except ParseError as exc:
        log.problem(place, f"PMID {article}: {exc} of its record")
        return
    marks = {notice.get("RefType") for notice in root.iter("CommentsCorrections")}
    marks |= set(map(flat, root.iter("PublicationType")))
    titles = map(flat, root.iter("ArticleTitle"))
    withdrawn = marks & _NO_EVIDENCE or any(map(is_retracted_title, titles))
    documents = list(_texts(root, str(article), publication_day(root)))
    if withdrawn or not documents:
        log.left_out += 1
    elif documents[0].published is None:
        # Undated evidence counts as known at all times, which a new article must not.
        log.problem(place, f"PMID {article}: no date of publication can be read")
    else:
        yield from documents


def parse_record(data: bytes) -> Element:
    """The record's element, perhaps without the lists that say nothing of medicine.

    No document type reaches this parser, so no entity exists for it. Raises ParseError.
    """
    # Without its authors, references and headings: half of its bytes, most of its elements.
    trimmed = data
    for name in _LISTS if data.startswith(b"<PubmedArticle") else ():
        start = trimmed.find(b"<" + name)
        end = trimmed.rfind(b"</" + name + b">", start) if start >= 0 else -1
        if end >= 0:
            trimmed = trimmed[:start] + trimmed[end + len(name) + 3 :]
    try:
        return fromstring(_OPENING + trimmed + b"</x>")[0]
    except ParseError:
        return fromstring(_OPENING + data + b"</x>")[0]


def _texts(
    root: Element,
    article: str,
    published: date | None,
) -> Iterator[Document]:
    """The abstract, and the abstracts in further scripts, each a document of its own."""
    holder = root.find("MedlineCitation/Article")
    if holder is None:
        holder = root.find("BookDocument")
    if holder is None:
        return
    title, url = _title(holder), f"https://pubmed.ncbi.nlm.nih.gov/{article}/"
    seen = ""
    others = root.findall("MedlineCitation/OtherAbstract")
    for abstract in [*holder.findall("Abstract"), *others]:
        sections = []
        for part in abstract.findall("AbstractText"):
            if words := flat(part):
                label = part.get("Label", "").strip()
                label = "" if label.upper() == "UNLABELLED" else label
                sections.append(Section(label, words))
        if not sections:
            continue
        text = " ".join(section.text for section in sections)
        notice = flat(abstract.find("CopyrightInformation")) or None
        stated = abstract.get("Language", flat(holder.find("Language")))
        language = _language(text, stated)
        if seen and language in (seen, "en", "other"):
            # A summary for laymen, the publisher's own wording of the same, or a language that is not read.
            continue
        yield Document(
            id=article if not seen else f"{article}-{language}",
            title=title,
            sections=tuple(sections),
            language=language,
            published=published,
            url=url,
            licence=notice and f"{LICENCE}: {notice[:200]}",
            continuous=True,
        )
        seen = seen or language


def _title(holder: Element) -> str:
    """The title, in English if possible: the library sets translated titles in brackets. A whole book has its own."""
    title = flat(holder.find("ArticleTitle"))
    bare = title.rstrip(".")
    if bare.startswith("[") and bare.endswith("]"):
        title = bare[1:-1].strip()
    if title.rstrip(".").lower() in ("", "not available"):
        title = flat(holder.find("VernacularTitle")) or flat(
            holder.find("Book/BookTitle")
        )
    return title


def _language(text: str, stated: str) -> str:
    """An abstract's language by its script.

    Latin is English, unless another language is stated and the words are not English either: then it is "other".
    """
    script = language_of(text)
    is_stated = script != "en" or stated in ("", "eng")
    return script if is_stated or dominant_language(text) == "en" else "other"


def publication_day(root: Element) -> date | None:
    """The last day on which the article may first have been read.

    The day of its electronic publication; without one the last day that its issue's date may mean, or the day
    on which PubMed had it when that is earlier. (For an article that it takes in late, the library writes the first
    day of the issue's date there: such a day is not used.) A book's text is as old as its last revision.
    """
    book = root.find("BookDocument")
    if book is not None:
        places = (
            "DateRevised",
            "ContributionDate",
            "Book/EndingDate",
            "Book/PubDate",
            "Book/BeginningDate",
        )
        days = map(last_day, map(book.find, places))
        return max(filter(None, days), default=None)
    electronic = last_day(root.find("MedlineCitation/Article/ArticleDate"))
    if electronic is not None:
        return electronic
    issue = element_period(
        root.find("MedlineCitation/Article/Journal/JournalIssue/PubDate")
    )
    listed = last_day(root.find("PubmedData/History/*[@PubStatus='pubmed']"))
    if issue is None:
        return last_day(root.find("MedlineCitation/DateRevised")) or listed
    first, last = issue
    if listed is not None and listed.year >= 2000 and listed != first:
        return min(last, listed)
    return last


READER = Reader(
    kind="pubmed",
    about="PubMed's baseline and update files: an .xml or .xml.gz file, or a folder of them",
    sniff=_FILES.recognise,
    documents=documents,
    licence=LICENCE,
)
