"""MedlinePlus health topics in English: the daily XML file, packed or not, or a folder with one.

A topic's summary is HTML within the XML; its headings are sections. It is dated by the day of the file, because
the file says when a topic was made and not when its words were last changed.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from medlive.evidence.corpora.model import Document, Reader, ReadLog, Section
from medlive.evidence.corpora.parsing.files import (
    LARGE_MEMBER,
    begins_with,
    xml_roots,
)
from medlive.evidence.corpora.parsing.text import lines_of

_FILES = (".xml", ".zip")
_ROOTS = ("health-topics",)
_HEADING = re.compile(r"(?is)<h[1-4]\b[^<>]*>(.*?)</h[1-4]>")


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every topic in English."""
    for name, root in xml_roots(path, _FILES, _ROOTS, log, LARGE_MEMBER):
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
                log.empty += 1
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


READER = Reader(
    kind="medlineplus",
    about="MedlinePlus health topics: the XML file or its zip (mplus_topics_…), or a folder with it",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=documents,
    licence="public domain",
)
"""Summaries are the library's own; what a topic links to is not read."""
