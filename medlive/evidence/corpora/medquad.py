"""MedQuAD: question-answer pages of the NIH and CDC, as its archive or the unpacked folder of XML files.

Only pairs with an answer are read (three of the twelve collections were published without). The focus is the
title, the question type the section; the collection's folder and the file name make the id, because the ids
inside the files repeat between collections.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

from medlive.evidence.corpora.model import Document, Reader, ReadLog, Section
from medlive.evidence.corpora.parsing.files import begins_with, xml_roots
from medlive.evidence.corpora.parsing.xml import find

_FILES = (".xml",)
_ROOTS = ("Document",)


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """Every pair with an answer."""
    for name, root in xml_roots(path, _FILES, _ROOTS, log):
        pairs = list(root.iter("QAPair"))
        log.empty += not pairs
        focus = (root.findtext("Focus") or "").strip()
        place = "/".join(PurePosixPath(name).with_suffix("").parts[-2:])
        for position, pair in enumerate(pairs, start=1):
            question = find(pair, "Question")
            answer = "".join(find(pair, "Answer").itertext())
            if not answer.strip():
                log.empty += 1
                continue
            yield Document(
                id=f"{place}-{pair.get('pid') or position}",
                title=focus or (question.text or "").strip(),
                sections=(Section(question.get("qtype", ""), answer),),
                url=root.get("url", ""),
            )


READER = Reader(
    kind="medquad",
    about="MedQuAD question-answer pages: the tar archive, or a folder of its XML files",
    sniff=partial(begins_with, _FILES, _ROOTS),
    documents=documents,
    licence="CC-BY-4.0",
)
