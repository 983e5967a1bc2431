"""A folder of plain text and Markdown files: one document a file, Markdown headings as sections.

The title is the first `# ` heading, else the file's name. Files are UTF-8, UTF-16 with its mark, or GB18030.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from medlive.evidence.corpora.chunk import Document, Section
from medlive.evidence.corpora.members import members
from medlive.evidence.corpora.model import Reader, ReadLog

_SUFFIXES = (".txt", ".md", ".markdown")
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")


def _sniff(path: Path) -> bool:
    return path.is_dir() and any(f.name.lower().endswith(_SUFFIXES) for f in path.rglob("*"))


def _documents(path: Path, log: ReadLog) -> Iterator[Document]:
    for name, data in members(path, _SUFFIXES, log):
        text = _decode(data)
        if text is None:
            log.problem(name, "neither UTF-8, UTF-16 nor GB18030")
            continue
        if not text.strip():
            log.empty += 1
            continue
        stem = PurePosixPath(name).stem.replace("_", " ").replace("-", " ")
        if name.lower().endswith(".txt"):
            yield Document(id=name, title=stem, sections=(Section("", text),))
        else:
            title, sections = _markdown(text)
            yield Document(id=name, title=title or stem, sections=sections)


def _decode(data: bytes) -> str | None:
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "gb18030")
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


def _markdown(text: str) -> tuple[str, tuple[Section, ...]]:
    """(title, sections); a heading inside a fenced block is text."""
    title = ""
    label = ""
    fenced = False
    held: list[str] = []
    sections: list[Section] = []
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading is None:
            held.append(line)
            continue
        sections.append(Section(label, "\n".join(held)))
        held = []
        words = heading[2].strip().rstrip("#").strip()
        if not title and len(heading[1]) == 1:
            title, label = words, ""
        else:
            label = words
    sections.append(Section(label, "\n".join(held)))
    return title, tuple(s for s in sections if s.text.strip())


READER = Reader(
    kind="folder",
    about="a folder of .txt and .md files",
    sniff=_sniff,
    documents=_documents,
    licence="unstated",
)
