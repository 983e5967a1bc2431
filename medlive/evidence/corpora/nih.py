"""Readers of the NIH's publications: DailyMed drug labels, MedlinePlus health topics, MedQuAD questions and answers.

- DailyMed (`labels`): the full releases (zips of zips of SPL XML), or a folder of them or of SPL files. It reads the
  sections that say what a drug is for, how much, when not, and what to look out for, with their subsections.
- MedlinePlus (`topics`): the daily XML file, packed or not, or a folder with one; its topics in English. A topic's
  summary is HTML within the XML; its headings are sections. It is dated by the day of the file, because the file says
  when a topic was made and not when its words were last changed.
- MedQuAD (`pages`): question-answer pages of the NIH and CDC, as its archive or the unpacked folder of XML files. Only
  pairs with an answer are read (three of the twelve collections were published without). The focus is the title, the
  question type the section; the collection's folder and the file name make the id, because the ids inside the files
  repeat between collections.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from medlive.text.lists import read_lists

from .model import Document, Reader, ReadLog, Section
from .parsing.files import LARGE_MEMBER, CorpusFiles
from .parsing.text import lines_of
from .parsing.xml import find, flat

_LABELS = CorpusFiles((".xml", ".zip"), ("document",), LARGE_MEMBER)
_TOPICS = CorpusFiles((".xml", ".zip"), ("health-topics",), LARGE_MEMBER)
_PAGES = CorpusFiles((".xml",), ("Document",))
_SECTIONS = {
    code: section
    for section, codes in read_lists("medlive.evidence", "label_sections.txt").items()
    for code in codes
}
"""LOINC code → label, of the sections that are read."""
# Elements whose text is a line; elements without text of the section
_LINES = frozenset({"paragraph", "item", "tr", "caption"})
_NO_TEXT = ("code", "effectiveTime", "id", "title")


def labels(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every label with one of the sections that are read."""
    for name, root in _LABELS.xml_roots(path, log):
        number = find(root, "setId").get("root", "")
        sections = tuple(_sections(root))
        day = None
        with suppress(ValueError):
            stated = find(root, "effectiveTime").get("value", "")
            day = date.fromisoformat(stated[:8])
        if not number:
            log.problem(name, "not a structured product label: <setId> is missing")
        elif not sections:
            log.left_out += 1
        else:
            yield Document(
                id=number,
                title=_title(root),
                sections=sections,
                language="en",
                published=day,
                url=f"https://dailymed.nlm.nih.gov/dailymed/drugInfo.cfm?setid={number}",
            )


def _title(root: Element) -> str:
    """The product's name and what it is made of: the label's own title is a sentence about the label."""
    for product in root.iter("manufacturedProduct"):
        if name := flat(product.find("name")):
            substance = flat(product.find(".//genericMedicine/name"))
            if substance.lower() not in ("", name.lower()):
                name = f"{name} ({substance})"
            return f"{name}: drug label"
    return flat(root.find("title"))


def _sections(element: Element) -> Iterator[Section]:
    """The sections of a label that are read, at any depth."""
    for child in element:
        label = _SECTIONS.get(find(child, "code").get("code", ""))
        if child.tag == "section" and label is not None:
            text = "\n".join(_lines(child))
            if text:
                yield Section(label, text)
        else:
            yield from _sections(child)


def _lines(element: Element, *, titled: bool = False) -> Iterator[str]:
    """The lines of a section and its subsections, with the titles of these."""
    for child in element:
        kind = child.tag
        if kind in _LINES or (titled and kind == "title"):
            text = flat(child)
            if text:
                yield f"- {text}" if kind == "item" else text
        elif kind not in _NO_TEXT:
            if kind == "text" and not len(child) and (child.text or "").strip():
                yield flat(child)
            yield from _lines(child, titled=True)


DAILYMED = Reader(
    kind="dailymed",
    about="DailyMed drug labels: release zips (dm_spl_release_…), SPL XML files, or a folder of them",
    sniff=_LABELS.recognise,
    documents=labels,
    licence="public domain",
)


_HEADING = re.compile(r"(?is)<h[1-4]\b[^<>]*>(.*?)</h[1-4]>")


def topics(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every topic in English."""
    for name, root in _TOPICS.xml_roots(path, log):
        day = None
        with suppress(ValueError):
            stated = root.get("date-generated", "")[:10]
            day = datetime.strptime(stated, "%m/%d/%Y").replace(tzinfo=UTC).date()
        for topic in root.iter("health-topic"):
            if topic.get("language") != "English":
                continue
            identity, title = topic.get("id"), topic.get("title")
            # What stands before the first heading has none.
            parts = ["", *_HEADING.split(topic.findtext("full-summary") or "")]
            sections = []
            for label, words in zip(parts[::2], parts[1::2], strict=True):
                text = lines_of(words)
                if text.strip():
                    sections.append(Section(lines_of(label), text))
            if not identity or not title:
                log.problem(name, "a health topic without id or title")
            elif not sections:
                log.left_out += 1
            else:
                others = filter(None, [n.text for n in topic.findall("also-called")])
                if names := ", ".join(others):
                    text = f"{sections[0].text}\nAlso called: {names}"
                    sections[0] = replace(sections[0], text=text)
                yield Document(
                    id=identity,
                    title=title,
                    sections=tuple(sections),
                    language="en",
                    published=day,
                    url=topic.get("url", ""),
                )


MEDLINEPLUS = Reader(
    kind="medlineplus",
    about="MedlinePlus health topics: the XML file or its zip (mplus_topics_…), or a folder with it",
    sniff=_TOPICS.recognise,
    documents=topics,
    licence="public domain",
)
"""Summaries are the library's own; what a topic links to is not read."""


def pages(path: Path, log: ReadLog) -> Iterator[Document]:
    """A document for every pair with an answer."""
    for name, root in _PAGES.xml_roots(path, log):
        pairs = list(root.iter("QAPair"))
        log.left_out += not pairs
        focus = (root.findtext("Focus") or "").strip()
        place = "/".join(PurePosixPath(name).with_suffix("").parts[-2:])
        for position, pair in enumerate(pairs, start=1):
            question = find(pair, "Question")
            answer = "".join(find(pair, "Answer").itertext())
            if not answer.strip():
                log.left_out += 1
                continue
            yield Document(
                id=f"{place}-{pair.get('pid') or position}",
                title=focus or (question.text or "").strip(),
                sections=(Section(question.get("qtype", ""), answer),),
                url=root.get("url", ""),
            )


MEDQUAD = Reader(
    kind="medquad",
    about="MedQuAD question-answer pages: the tar archive, or a folder of its XML files",
    sniff=_PAGES.recognise,
    documents=pages,
    licence="CC-BY-4.0",
)
