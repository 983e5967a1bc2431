"""Markdown cut at its headings, each text under the headings it stands under."""

import re

from medlive.evidence.corpora.parsing.chunk import Section, path_label

_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*)")
_EMPHASIS = re.compile(r"\A([*_]{1,3})(.+)\1\Z")


def titled_sections(text: str) -> tuple[str, tuple[Section, ...]]:
    """The first heading of the first level (empty without one), and the sections in reading order.

    A section's label is the path of its headings without the title; a heading inside a fenced block is text.
    """
    title = ""
    path: list[tuple[int, str]] = []
    fenced = False
    lines: list[str] = []
    sections: list[Section] = []
    for line in text.splitlines():
        if line.startswith(("```", "~~~")):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        sections.append(Section(path_label([words for _, words in path]), "\n".join(lines)))
        lines = []
        level, words = len(heading[1]), _without_markup(heading[2])
        path = [above for above in path if above[0] < level]
        if not title and level == 1:
            title = words
        else:
            path.append((level, words))
    sections.append(Section(path_label([words for _, words in path]), "\n".join(lines)))
    return title, tuple(section for section in sections if section.text.strip())


def _without_markup(words: str) -> str:
    words = words.strip().rstrip("#").strip()
    emphasised = _EMPHASIS.match(words)
    return emphasised[2].strip() if emphasised else words
