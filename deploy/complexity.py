"""Refuse functions in which a reader has too many branches to follow: `make check` runs it.

Ruff's C901 counts statements alone, so that a function gets simpler by moving its branches into comprehensions,
conditional expressions and chains of `and` and `or`. Here these count too, each as a statement does, as in
lizard's cyclomatic complexity (https://github.com/terryyin/lizard).
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
MOST: Final = 15

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES: Final = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)


class Measured(NamedTuple):
    """A function, where it is, and how complex."""

    where: str
    name: str
    complexity: int


def measure(source: str, where: str) -> Iterator[Measured]:
    """The functions of a module, each without those within it.

    Args:
        source: The module's text.
        where: Its path, for the places of the functions.

    Raises:
        SyntaxError: If it is not Python.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _Function):
            complexity = 1 + sum(_branches(part) for part in _own(node))
            yield Measured(f"{where}:{node.lineno}", node.name, complexity)


def _own(function: _Function) -> Iterator[ast.AST]:
    """The nodes of a function's arguments and body, but for those of functions within it."""
    waiting: list[ast.AST] = [function.args, *function.body]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _Function):
            yield node
            waiting += ast.iter_child_nodes(node)


def _branches(node: ast.AST) -> int:
    """By how much a node, without those below it, makes its function more complex."""
    match node:
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.Try() | ast.TryStar():
            return 1 if node.finalbody else 0
        case _:
            return 1 if isinstance(node, _BRANCHES) else 0


def too_complex(folder: Path) -> list[Measured]:
    """The functions of a folder's modules above the limit, by file."""
    over = []
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for function in measure(source, str(file.relative_to(folder.parent))):
            if function.complexity > MOST:
                over.append(function)
    return over


if __name__ == "__main__":
    refused = too_complex(ROOT / "medlive")
    if refused:
        print(f"split these functions of a complexity above {MOST}:", file=sys.stderr)
        for function in refused:
            print(
                f"{function.where}: {function.name}: {function.complexity}",
                file=sys.stderr,
            )
        sys.exit(1)
