"""MedlinePlus health topics in English: the daily XML file, packed or not, or a folder with one.

A topic's summary is HTML within the XML; its headings are sections. It is dated by the day of the file, because
the file says when a topic was made and not when its words were last changed.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.files import (
    LARGE_MEMBER,
    begins_with,
    xml_roots,
)
from medlive.evidence.corpora.parsing.html import lines_of

_FILES = (".xml", ".zip")
_ROOTS = ("health-topics",)
_HEADING = re.compile(r"(?is)<h[1-4]\b[^<>]*>(.*?)</h[1-4]>")


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    for name, root in xml_roots(path, _FILES, _ROOTS, log, LARGE_MEMBER):
        day = _day(root.get("date-generated", ""))
        for topic in root.iter("health-topic"):
            if topic.get("language") == "English":
                yield from _topic(topic, day, name, log)


def _topic(
    topic: Element, day: date | None, name: str, log: ReadLog
) -> Iterator[Document]:
    identity, title = topic.get("id"), topic.get("title")
    if not identity or not title:
        log.problem(name, "a health topic without id or title")
        return
    sections = _sections(topic.findtext("full-summary") or "")
    if not sections:
        log.empty += 1
        return
    others = [also.text for also in topic.findall("also-called") if also.text]
    if others:
        first = sections[0]
        text = f"{first.text}\nAlso called: {', '.join(others)}"
        sections[0] = Section(first.label, text)
    yield Document(
        id=identity,
        title=title,
        sections=tuple(sections),
        language="en",
        published=day,
        url=topic.get("url", ""),
    )


def _day(text: str) -> date | None:
    try:
        day = datetime.strptime(text[:10], "%m/%d/%Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day.date()


def _sections(summary: str) -> list[Section]:
    first, *rest = _HEADING.split(summary)
    texts = zip(["", *rest[::2]], [first, *rest[1::2]], strict=True)
    sections = [Section(lines_of(label), lines_of(text)) for label, text in texts]
    return [section for section in sections if section.text.strip()]


READER = Reader(
    kind="medlineplus",
    about="MedlinePlus health topics: the XML file or its zip (mplus_topics_…), or a folder with it",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=_documents,
    licence="public domain",
)
"""Summaries are the library's own; what a topic links to is not read."""
