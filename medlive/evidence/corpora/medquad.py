"""MedQuAD: question-answer pages of the NIH and CDC, as its archive or the unpacked folder of XML files.

Only pairs with an answer are read (three of the twelve collections were published without). The focus is the
title, the question type the section; the collection's folder and the file name make the id, because the ids
inside the files repeat between collections.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.files import begins_with, xml_roots

_FILES = (".xml",)
_ROOTS = ("Document",)


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every pair with an answer."""
    for name, root in xml_roots(path, _FILES, _ROOTS, log):
        if root.find(".//QAPair") is None:
            log.empty += 1
        focus = (root.findtext("Focus") or "").strip()
        place = PurePosixPath(name)
        folder = f"{place.parent.name}/" if place.parent.name else ""
        for position, pair in enumerate(root.iter("QAPair"), start=1):
            reply, question = pair.find("Answer"), pair.find("Question")
            answer = "" if reply is None else "".join(reply.itertext())
            if not answer.strip():
                log.empty += 1
                continue
            kind = "" if question is None else question.get("qtype", "")
            yield Document(
                id=f"{folder}{place.stem}-{pair.get('pid') or position}",
                title=focus or (pair.findtext("Question") or "").strip(),
                sections=(Section(kind, answer),),
                url=root.get("url", ""),
            )


READER = Reader(
    kind="medquad",
    about="MedQuAD question-answer pages: the tar archive, or a folder of its XML files",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=documents,
    licence="CC-BY-4.0",
)
