"""DailyMed's drug labels: the full releases (zips of zips of SPL XML), or a folder of them or of SPL files.

Read are the sections that say what a drug is for, how much, when not, and what to look out for; sections within
them belong to them.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import Document, Reader, ReadLog, Section
from medlive.evidence.corpora.parsing.files import (
    LARGE_MEMBER,
    begins_with,
    xml_roots,
)
from medlive.evidence.corpora.parsing.xml import find, flat
from medlive.text.lists import read_lists

_FILES = (".xml", ".zip")
_ROOTS = ("document",)
_SECTIONS = {
    code: section
    for section, codes in read_lists("medlive.evidence", "label_sections.txt").items()
    for code in codes
}
"""LOINC codes of the sections that are read."""
_LINES = frozenset({"paragraph", "item", "tr", "caption"})
_NO_TEXT = ("code", "effectiveTime", "id", "title")


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every label with one of the sections that are read."""
    for name, root in xml_roots(path, _FILES, _ROOTS, log, LARGE_MEMBER):
        number = find(root, "setId").get("root", "")
        sections = tuple(_sections(root))
        day = None
        with suppress(ValueError):
            stated = find(root, "effectiveTime").get("value", "")
            day = date.fromisoformat(stated[:8])
        if not number:
            log.problem(name, "not a structured product label: <setId> is missing")
        elif not sections:
            log.empty += 1
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
    for child in element:
        label = _SECTIONS.get(find(child, "code").get("code", ""))
        if child.tag == "section" and label is not None:
            text = "\n".join(_lines(child))
            if text:
                yield Section(label, text)
        else:
            yield from _sections(child)


def _lines(element: Element, *, titled: bool = False) -> Iterator[str]:
    """The lines of a section and of those within it, their titles among them."""
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


READER = Reader(
    kind="dailymed",
    about="DailyMed drug labels: release zips (dm_spl_release_…), SPL XML files, or a folder of them",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=documents,
    licence="public domain",
)
