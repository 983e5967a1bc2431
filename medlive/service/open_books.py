"""The evidence of an open-book run: an index by its name or folder."""

import asyncio
import os
from pathlib import Path

from medlive.config import Settings
from medlive.errors import UsageError
from medlive.evaluation.asking.open_book import OpenBook
from medlive.evidence.passage import Retriever
from medlive.service.paths import index_path

DEFAULT = "default"


def evidence_folder(settings: Settings, named: str) -> Path:
    """The folder of an index, given by its name under MEDLIVE_HOME or by a path.

    Raises UsageError for an unknown index, listing the known ones.
    """
    place = Path(named)
    if not named or "\0" in named:
        raise UsageError("--evidence needs the name or folder of an index")
    indexes = index_path(settings).parent
    if place.name == named and named != ".." and (indexes / named).is_dir():
        return indexes / named
    if place.is_dir():
        return place
    names = sorted(path.name for path in indexes.iterdir() if path.is_dir()) if indexes.is_dir() else []
    raise UsageError(
        f"unknown evidence index {named!r}" + (f"; known indexes: {', '.join(names)}" if names else ""),
        hint="build one with medlive evidence build",
    )


def open_book(settings: Settings, named: str, *, top_k: int, undated: bool) -> OpenBook:
    """The open book of a run; its index is opened at the first search."""

    async def opened() -> Retriever:
        # Imported here: resuming a run does not need medlive[service].
        from medlive.service.wiring import open_retriever

        return await asyncio.to_thread(open_retriever, settings, evidence_folder(settings, named))

    return OpenBook(os.path.basename(os.path.normpath(named)), top_k, undated, opened)
