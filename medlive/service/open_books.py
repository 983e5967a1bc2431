"""The evidence that an open-book run looks up: an index by its name or its folder."""

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
    """The folder of an index: what exists as a folder is taken as one, else it is a name under MEDLIVE_HOME.

    Raises UsageError for what is neither, naming the indexes that are there.
    """
    place = Path(named)
    if not named or "\0" in named:
        raise UsageError("--evidence names no index")
    shelf = index_path(settings).parent
    if place.name == named and named != ".." and (shelf / named).is_dir():
        return shelf / named
    if place.is_dir():
        return place
    there = sorted(path.name for path in shelf.iterdir() if path.is_dir()) if shelf.is_dir() else []
    raise UsageError(
        f"there is no evidence index {named!r}" + (f"; there are {', '.join(there)}" if there else ""),
        hint="medlive evidence build makes one",
    )


def open_book(settings: Settings, named: str, *, top_k: int, undated: bool) -> OpenBook:
    """The book of a run; its index is opened when it is first looked into, and may be gone once the run began."""

    async def opened() -> Retriever:
        # Needs the libraries of medlive[service]: going on with a run does not.
        from medlive.service.wiring import open_retriever

        return await asyncio.to_thread(open_retriever, settings, evidence_folder(settings, named))

    return OpenBook(os.path.basename(os.path.normpath(named)), top_k, undated, opened)
