"""The kinds of corpora that medlive and its plugins read (`known_readers`); `open_corpus` finds a path's kind."""

import re
from pathlib import Path

from medlive.errors import BadInput, ConfigError, UsageError
from medlive.integrity.log import reading
from medlive.plugins import load_plugins

from . import bookshelf, folder, jsonl, nih, pubmed
from .model import Corpus, Reader
from .parsing.text import slug

READERS: tuple[Reader, ...] = (
    jsonl.PUBMEDQA,
    jsonl.GUIDELINES,
    jsonl.PASSAGES,
    pubmed.READER,
    nih.MEDLINEPLUS,
    nih.DAILYMED,
    bookshelf.READER,
    nih.MEDQUAD,
    folder.READER,
)
"""In the order in which they are asked whether a path is theirs: the most particular first."""


def known_readers() -> tuple[Reader, ...]:
    """Every reader; those of plugins come before medlive's last, which takes any folder. Raises ConfigError."""
    added = load_plugins("corpora")
    for reader in added:
        if not isinstance(reader, Reader):
            raise ConfigError(f"expected a Reader, not {reader!r}")
    return (*READERS[:-1], *added, READERS[-1])


_NAME = re.compile(r"[A-Za-z0-9\u4e00-\u9fff][\w.-]{0,63}")


def open_corpus(
    path: Path | str,
    kind: str | None = None,
    name: str | None = None,
) -> Corpus:
    """The corpus at a path; its kind is recognised if `kind` is None.

    Its name defaults to the path's own, or to its kind where that is one published data set.

    Nothing is read yet. `name` is 1-64 letters, digits, `-`, `_`, `.`.
    Raises BadInput when there is nothing at the path or no kind knows it, UsageError for an impossible name.
    """
    place = Path(path)
    with reading(place):
        place.stat()
        for reader in known_readers():
            if reader.kind == kind or (kind is None and reader.sniff(place)):
                break
        else:
            kinds = "; ".join(f"{each.kind}: {each.about}" for each in known_readers())
            named = f"of the kind {kind!r}" if kind else "that medlive recognises"
            raise BadInput(f"{place} is not a corpus {named}", hint=kinds)
    if name is None and reader.licence != "unstated":
        name = reader.kind  # It is one published data set
    elif name is None:
        stem, _, _ = place.resolve().name.partition(".")
        name = slug(stem).replace("/", "-").lstrip("-._") or reader.kind
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid corpus name", hint="1-64 letters, digits, - _ ."
        )
    return Corpus(
        name=name,
        path=place,
        reader=reader,
        licence=reader.licence,
    )
