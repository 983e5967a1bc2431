"""A folder of plain text and Markdown files: one document a file, Markdown headings as sections.

The title is the first `# ` heading, else the file's name. Files are UTF-8, UTF-16 with its mark, or GB18030.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from medlive.evidence.corpora.model import Reader, ReadLog
from medlive.evidence.corpora.parsing.chunk import Document, Section
from medlive.evidence.corpora.parsing.markdown import titled_sections
from medlive.evidence.corpora.parsing.members import members

_SUFFIXES = (".txt", ".md", ".markdown")


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
            title, sections = titled_sections(text)
            yield Document(id=name, title=title or stem, sections=sections)


def _decode(data: bytes) -> str | None:
    encodings = ("utf-16",) if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig", "gb18030")
    for encoding in encodings:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None


READER = Reader(
    kind="folder", about="a folder of .txt and .md files", sniff=_sniff, documents=_documents, licence="unstated"
)
