"""Export raw pages: WARC files checked page by page, with checksums and a CDXJ index."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from medlive.config import Settings
from medlive.db.harvest.archives import fetches_in, list_archives
from medlive.db.session import Database
from medlive.digest import digest_bytes, digest_file
from medlive.errors import CheckFailed, UsageError
from medlive.service.paths import archive_path
from medlive.sources.archive import ArchiveDamaged, cdxj_line, pages

INDEX = "index.cdxj"
SUMS = "SHA256SUMS"
_BLOCK = 1024 * 1024


@dataclass(slots=True)
class ExportResult:
    """The result of an export."""

    written: list[str] = field(default_factory=list)
    """Files that were written or have grown."""
    unchanged: list[str] = field(default_factory=list)
    """Files that existed with these bytes."""
    pages: int = 0
    """Pages in all files."""
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """What could not be exported, one line each."""
    stale: list[str] = field(default_factory=list)
    """Files of an earlier export that retention or a takedown has removed since."""


async def export_warc(
    database: Database,
    settings: Settings,
    sources: Sequence[str],
    folder: Path,
    *,
    week: str | None = None,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> ExportResult:
    """Copy the WARC files of the sources (default: all) into `folder`, with SHA256SUMS and a CDXJ index.

    Only the committed part of a file is copied, and every page is checked against its own digest and the
    database's. An existing file stays if it has the same bytes, is replaced if it has their beginning, and is a
    problem otherwise. Files of earlier exports stay in the sums and the index. Raises UsageError if the folder
    cannot be created.
    """
    done = ExportResult()
    try:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder}: {error.strerror}") from error
    async with database.begin() as session:
        archives = await list_archives(session)
    chosen = [a for a in archives if (not sources or a.source in sources) and week in (None, a.iso_week)]
    for number, archive in enumerate(chosen, 1):
        tick(number, len(chosen))
        async with database.begin() as session:
            digests = {f.place.offset: f.digest or "" for f in await fetches_in(session, archive.archive_id)}
        source, target = archive_path(settings) / archive.path, folder / Path(archive.path).name
        try:
            same, found = await asyncio.to_thread(_copy, source, target, archive.bytes, digests)
        except (ArchiveDamaged, CheckFailed) as error:
            done.problems.append(error.message)
            continue
        (done.unchanged if same else done.written).append(target.name)
        done.pages += found
        done.bytes += archive.bytes
    exported = await asyncio.to_thread(_write_index, folder)
    done.stale = sorted(exported - {Path(archive.path).name for archive in archives})
    return done


def _copy(source: Path, target: Path, size: int, digests: Mapping[int, str]) -> tuple[bool, int]:
    """Copy the first `size` bytes and check them; whether they were there already, and how many pages they are."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        with source.open("rb") as old, draft.open("wb") as new:
            left = size
            while left and (block := old.read(min(_BLOCK, left))):
                new.write(block)
                left -= len(block)
        if left:
            raise ArchiveDamaged(source, f"has {size - left} bytes, {size} were written")
        missing, found = set(digests), 0
        for place, page in pages(draft):
            found += 1
            missing.discard(place.offset)
            if digests.get(place.offset) not in (None, digest_bytes(page.body)):
                raise ArchiveDamaged(source, f"the page at offset {place.offset} is not the one that was fetched")
        if missing:
            raise ArchiveDamaged(source, f"no page at offset {min(missing)}")
        same = _matches_existing(draft, target)
        os.replace(draft, target)
        return same, found
    except OSError as error:
        raise ArchiveDamaged(source, f"cannot copy: {error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _matches_existing(draft: Path, target: Path) -> bool:
    """Whether the target has the draft's bytes; False if missing or a prefix. Raises CheckFailed otherwise."""
    if not target.exists():
        return False
    with draft.open("rb") as ours, target.open("rb") as theirs:
        while block := theirs.read(_BLOCK):
            if ours.read(len(block)) != block:
                raise CheckFailed(
                    f"{target.name}: a file of that name with different bytes exists; it was not replaced"
                )
        return not ours.read(1)


def _write_index(folder: Path) -> set[str]:
    """Write the index and the sums of all archives in the folder, of earlier exports too; their names."""
    lines: list[str] = []
    names = []
    for path in sorted(folder.glob("*.warc.gz")):
        with suppress(ArchiveDamaged):  # another file of that name: no export's
            lines += [cdxj_line(path.name, place, page) for place, page in pages(path)]
            names.append(path.name)
    index = "".join(line + "\n" for line in sorted(lines, key=str.encode))
    (folder / INDEX).write_text(index, encoding="utf-8", newline="\n")
    sums = [f"{digest_file(folder / name).removeprefix('sha256:')}  {name}\n" for name in [*names, INDEX]]
    (folder / SUMS).write_text("".join(sums), encoding="utf-8", newline="\n")
    return set(names)
