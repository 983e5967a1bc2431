"""MedQuAD: question-answer pages of the NIH and CDC, as its archive or the unpacked folder of XML files.

Only pairs with an answer are read (three of the twelve collections were published without). The focus is the
title, the question type the section; the collection's folder and the file name make the id, because the ids
inside the files repeat between collections.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.files import members, root_of_path
from medlive.evidence.corpora.parsing.xml_files import xml_roots


def _sniff(path: Path) -> bool:
    return root_of_path(path, (".xml",)) == "Document"


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    found = members(path, (".xml",), log)
    for name, root in xml_roots(found, ("Document",), log):
        if root.find(".//QAPair") is None:
            log.empty += 1
        yield from _pairs(root, name, log)


def _pairs(root: Element, name: str, log: ReadLog) -> Iterator[Document]:
    focus = (root.findtext("Focus") or "").strip()
    place = PurePosixPath(name)
    stem = f"{place.parent.name}/{place.stem}" if place.parent.name else place.stem
    for position, pair in enumerate(root.iter("QAPair"), start=1):
        question, reply = pair.find("Question"), pair.find("Answer")
        answer = "" if reply is None else "".join(reply.itertext())
        if not answer.strip():
            log.empty += 1
            continue
        question_text = "" if question is None else (question.text or "").strip()
        yield Document(
            id=f"{stem}-{pair.get('pid') or position}",
            title=focus or question_text,
            sections=(
                Section(
                    "" if question is None else question.get("qtype") or "", answer
                ),
            ),
            url=root.get("url") or "",
        )


READER = Reader(
    kind="medquad",
    about="MedQuAD question-answer pages: the tar archive, or a folder of its XML files",
    sniff=_sniff,
    documents=_documents,
    licence="CC-BY-4.0",
)
