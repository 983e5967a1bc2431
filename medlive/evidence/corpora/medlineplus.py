"""MedlinePlus health topics in English: the daily XML file, packed or not, or a folder with one.

A topic's summary is HTML within the XML; its headings are sections. It is dated by the day of the file, because
the file says when a topic was made and not when its words were last changed.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.files import (
    LARGE_MEMBER,
    begins_with,
    xml_roots,
)

_FILES = (".xml", ".zip")
_ROOTS = ("health-topics",)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4"})
_LINES = frozenset({"p", "br", "ul", "ol", "li", "div", "tr"})


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


class _Summary(HTMLParser):
    """Collects the text of a summary, by its headings."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.sections: list[Section] = []
        self._label: list[str] = []
        self._text: list[str] = []
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HEADINGS:
            self.finish()
            self._label, self._in_heading = [], True
        elif tag in _LINES:
            self._text.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HEADINGS:
            self._in_heading = False
        elif tag in _LINES:
            self._text.append("\n")

    def handle_data(self, data: str) -> None:
        # A line end in the file is white space of its HTML.
        (self._label if self._in_heading else self._text).append(
            data.replace("\n", " ")
        )

    def finish(self) -> None:
        """End the section that is being read."""
        text = "".join(self._text)
        if text.strip():
            self.sections.append(Section("".join(self._label), text))
        self._text = []


def _sections(summary: str) -> list[Section]:
    parser = _Summary()
    parser.feed(summary)
    parser.close()
    parser.finish()
    return parser.sections


READER = Reader(
    kind="medlineplus",
    about="MedlinePlus health topics: the XML file or its zip (mplus_topics_…), or a folder with it",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=_documents,
    licence="public domain",
)
"""Summaries are the library's own; what a topic links to is not read."""
