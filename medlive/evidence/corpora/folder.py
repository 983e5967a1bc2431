"""A folder of plain text and Markdown files: one document a file, Markdown headings as sections.

The title is the first `# ` heading, else the file's name. Files are UTF-8 or GB18030.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from .model import (
    Document,
    Reader,
    ReadLog,
    Section,
    path_label,
)
from .parsing.files import CorpusFiles

_FILES = CorpusFiles((".txt", ".md", ".markdown"))
_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_EMPHASIS = re.compile(r"\A([*_]{1,3})(.+)\1\Z")


def documents(path: Path, log: ReadLog) -> Iterator[Document]:
    """A document for every file with text."""
    for name, data in _FILES.members(path, log):
        text = None
        for encoding in ("gb18030", "utf-8-sig"):
            with suppress(UnicodeDecodeError):
                text = data.decode(encoding)
        if text is None:
            log.problem(name, "neither UTF-8 nor GB18030")
            continue
        if not text.strip():
            log.left_out += 1
            continue
        title = ""
        sections: tuple[Section, ...] = (Section("", text),)
        if not name.lower().endswith(".txt"):
            title, sections = titled_sections(text)
        stem = PurePosixPath(name).stem.replace("_", " ").replace("-", " ")
        yield Document(id=name, title=title or stem, sections=sections)


def titled_sections(text: str) -> tuple[str, tuple[Section, ...]]:
    """The first heading of the first level (empty without one), and the sections in reading order.

    A section's label is the path of its headings without the title; a heading inside a fenced block is text.
    """
    title = ""
    path: list[tuple[int, str]] = []
    fenced = False
    lines: list[str] = []
    sections = []

    def close() -> None:
        label = path_label([words for _, words in path])
        text = "\n".join(lines)
        if text.strip():
            sections.append(Section(label, text))
        lines.clear()

    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        close()
        level = len(heading[1])
        words = heading[2].strip().rstrip("#").strip()
        if emphasised := _EMPHASIS.match(words):
            words = emphasised[2].strip()
        path = [above for above in path if above[0] < level]
        if not title and level == 1:
            title = words
        else:
            path.append((level, words))
    close()
    return title, tuple(sections)


READER = Reader(
    kind="folder",
    about="a folder of .txt and .md files",
    sniff=lambda path: path.is_dir() and bool(_FILES.below(path, ReadLog())),
    documents=documents,
    licence="unstated",
)
