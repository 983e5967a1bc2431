"""Texts of unknown content in Markdown and YAML: nothing that they hold can break what surrounds them."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from medlive.charts import plain

# What Markdown would take for markup: wherever in a line it stands, and where it begins a line or a list's item.
_MARKUP: Final = re.compile(r"([\\`*_\[\]|~$])")
_OPENING: Final = re.compile(r"^(\d*)([#+\-.)])(?=[\s#+-]|$)")


def cell(text: str, most: int = 300) -> str:
    """A text as a table's cell shows it, whatever it holds: one line, no markup, no control characters."""
    text = _MARKUP.sub(r"\\\1", plain(text, most).strip())
    text = _OPENING.sub(r"\1\\\2", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def scalar(text: str) -> str:
    """A text as a double-quoted YAML scalar, which no content of it can end."""

    def escape(character: str) -> str:
        code = ord(character)
        if character in '"\\':
            return "\\" + character
        if 0x20 <= code < 0x7F:
            return character
        return f"\\u{code:04X}" if code < 0x1_0000 else f"\\U{code:08X}"

    return '"' + "".join(map(escape, text)) + '"'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: int = 0) -> str:
    """A Markdown table of texts that `cell` made safe; the last `right` columns are set to the right."""
    marks = ["---"] * (len(heads) - right) + ["---:"] * right
    lines = [heads, marks, *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)
