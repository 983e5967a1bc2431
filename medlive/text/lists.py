"""Word lists: data files in sections, shipped beside the code that reads them."""

from functools import cache
from importlib.resources import files


@cache
def read_lists(package: str, name: str) -> dict[str, list[str]]:
    """Read a file of a package's `data` folder.

    Args:
        package: The package, by its dotted name.
        name: The file's.

    Returns:
        Section (a line that begins with a bracket: `[section]`) → its lines, without comments and blank ones; "" for
        those before the first section.
    """
    text = files(package).joinpath("data", name).read_text(encoding="utf-8")
    current: list[str] = []
    lists = {"": current}
    for line in text.splitlines():
        if line.startswith("["):
            current = lists.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            current.append(line)
    return lists


@cache
def read_words(package: str, name: str) -> dict[str, frozenset[str]]:
    """Section → its words, of a file as in `read_lists`."""
    words = {}
    for section, lines in read_lists(package, name).items():
        words[section] = frozenset(" ".join(lines).split())
    return words
