"""Refuse the words that docs/builders/style.md replaces, in documents, help and error texts: `make check` runs it.

What is looked for, and in which texts, is the table of docs/builders/style.md: its first column. Measurements,
decisions and the changelog say what was said then, and are left as they are.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "docs" / "builders" / "style.md"
_LEFT = {"measurements", "decisions"}
_GENERATED = {"attacks.md"}
_ALLOWED = re.compile(
    r"stands? (?:for|alone|together|side by)\b|stands?\s+in (?:where|for)\b|stand in, was|stand-in"
    r"|told (?:apart|from)|`[^`\n]*`"
)
"""Ordinary English, and code."""


class Text(NamedTuple):
    """A text, and where it is."""

    where: str
    words: str


def refused() -> re.Pattern[str]:
    """The words of the style's table, each between word boundaries."""
    rows = re.findall(r"^\| `([^`]+)` \|", STYLE.read_text(encoding="utf-8"), re.M)
    phrases = [row.replace("\\|", "|").replace(" ", r"\s+") for row in rows]
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b", re.IGNORECASE)


def documents() -> Iterator[Text]:
    """Each paragraph line of the guides, without code."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("deploy/*.md")]
    files += (ROOT / "docs").rglob("*.md")
    for file in sorted(files):
        if file.name in _GENERATED | {"CHANGELOG.md"} or file == STYLE:
            continue
        if _LEFT.intersection(file.parts):
            continue
        yield from _lines(file)


def _lines(file: Path) -> Iterator[Text]:
    fenced = False
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield Text(f"{file.relative_to(ROOT)}:{number}", line)


def messages() -> Iterator[Text]:
    """The help of commands, and the texts of the errors that are raised."""
    for file in sorted((ROOT / "medlive").rglob("*.py")):
        of_cli = "cli" in file.parts
        name = file.relative_to(ROOT)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                for words in _constants(node.exc):
                    yield Text(f"{name}:{node.lineno}", words)
            elif of_cli and isinstance(node, ast.keyword) and node.arg == "help":
                for words in _constants(node.value):
                    yield Text(f"{name}:{node.value.lineno}", words)
            elif (
                of_cli
                and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and _is_public(node.name)
            ):
                yield Text(f"{name}:{node.lineno}", ast.get_docstring(node) or "")


def _is_public(name: str) -> bool:
    return not name.startswith("_")


def _constants(node: ast.AST) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value


def faults(texts: Iterator[Text]) -> list[str]:
    """Where a text has words that the style replaces."""
    pattern = refused()
    lines = []
    for text in texts:
        for match in pattern.finditer(_ALLOWED.sub(" ", text.words)):
            lines.append(f"{text.where}: {' '.join(match[0].split())!r}")
    return lines


if __name__ == "__main__":
    found = [*faults(documents()), *faults(messages())]
    if found:
        print(
            "docs/builders/style.md has plainer words for:",
            *found,
            sep="\n",
            file=sys.stderr,
        )
        sys.exit(1)
