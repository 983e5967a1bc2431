"""Evidence indexes are built beside the old one and take its place in one step; they are opened checked.

An index is a folder: `manifest.json` names the data folder that is in force. A build writes a new data folder
and then replaces the manifest; killed at any moment, it leaves the old index as it was.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from medlive.clock import now
from medlive.digest import digest_file
from medlive.errors import (
    BadInput,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    MedliveError,
    ServiceUnavailable,
    UsageError,
)
from medlive.evidence import lexical
from medlive.evidence.corpora.model import Corpus, Problem, ReadLog
from medlive.evidence.lexical import BM25Retriever, LexicalWriter
from medlive.evidence.manifest import (
    HINT,
    MANIFEST,
    CorpusEntry,
    FileEntry,
    IndexManifest,
    index_digest,
    read_manifest,
)
from medlive.evidence.passage import IndexIdentity, Passage
from medlive.evidence.store import PassageStore, StoreWriter, from_line, to_line
from medlive.evidence.survey import Survey

_BUILDING = "building-"
_DATA = "data-"
_LEXICAL = "lexical"
_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build has come."""

    stage: Literal["reading", "read", "indexing", "built", "unchanged"]
    """`read`: one corpus is read, `problems` holds the first of what could not be; `built` and `unchanged`
    end the build."""
    corpus: str | None
    passages: int
    """Passages of the corpus (while reading) or of the index so far."""
    problems: tuple[Problem, ...] = ()


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    fresh: bool = False,
) -> IndexManifest:
    """Read the corpora and put the index over them in force at `out`; its manifest.

    Corpora that the index holds under other names stay in it, one of the same name is replaced; with `fresh`
    the index holds the given ones only. When that changes nothing, the index is left alone and its manifest
    returned. Raises UsageError for two corpora of one name, BadInput for a corpus without a passage,
    ServiceUnavailable while another process builds there.
    """
    names = [corpus.name for corpus in corpora]
    if not names:
        raise UsageError("no corpus was given to build an index from")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two corpora are named {name!r}", hint="give one of them another name")
    report = progress or _silent
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        old = None if fresh else _present(out, names)
        _remove_leftovers(out)
        work = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=out))
        try:
            return _build(corpora, out, work, old, report)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def open_index(path: Path) -> BM25Retriever:
    """The retriever over the index at `path`.

    Checked on the way: the manifest, the presence and size of every file, and that text is still cut as
    it was when the index was built. Raises IndexMissing, IndexCorrupt or IndexOutdated, each with what to do.
    """
    manifest = read_manifest(path)
    try:
        return _open(path, manifest)
    except IndexCorrupt:
        # A build may have put another index in force between the two steps above.
        again = read_manifest(path)
        if again.data == manifest.data:
            raise
        return _open(path, again)


def verify_index(path: Path) -> IndexManifest:
    """Compare every file of the index with the digest in its manifest; the manifest.

    Reads the whole index. Raises as `open_index` does, IndexCorrupt naming the first file that differs.
    """
    manifest = read_manifest(path)
    _check_sizes(path, manifest)
    for entry in manifest.files:
        found = digest_file(path / manifest.data / entry.path)
        if found != entry.digest:
            raise IndexCorrupt(f"{entry.path} has {found}, expected {entry.digest}", hint=HINT)
    return manifest


@dataclass(frozen=True, slots=True)
class ListedIndex:
    """An index found in a folder: its manifest, or why it has none that can be read."""

    path: Path
    manifest: IndexManifest | None
    problem: str | None


def list_indexes(folder: Path) -> list[ListedIndex]:
    """The indexes in `folder` itself and in its subfolders, by path; unreadable ones with the cause."""
    found: list[ListedIndex] = []
    for place in [folder, *sorted(f for f in folder.glob("*") if f.is_dir())]:
        try:
            found.append(ListedIndex(place, read_manifest(place), None))
        except IndexMissing:
            continue
        except MedliveError as exc:
            found.append(ListedIndex(place, None, exc.message))
    return found


def _build(
    corpora: Sequence[Corpus],
    out: Path,
    work: Path,
    old: IndexManifest | None,
    report: Callable[[Progress], None],
) -> IndexManifest:
    readings = [_read(corpus, work / f"spool-{n}", report) for n, corpus in enumerate(corpora)]
    given = {reading.corpus.name for reading in readings}
    carried = [] if old is None else [entry for entry in old.corpora if entry.name not in given]
    digests = {entry.name: entry.digest for entry in carried}
    digests |= {reading.corpus.name: reading.survey.digest for reading in readings}
    parameters = lexical.parameters()
    identity = index_digest(lexical.RETRIEVER, parameters, digests)
    if old is not None and old.index_digest == identity and _usable(out, old):
        report(Progress("unchanged", None, old.passages))
        return old

    data = work / "data"
    data.mkdir()
    kept: dict[str, int] = {}
    with StoreWriter(data) as store, LexicalWriter(data / _LEXICAL) as index:
        for passage in _all_passages(out, old, {entry.name for entry in carried}, readings):
            ordinal = store.add(passage)
            index.add(ordinal, passage)
            kept[passage.corpus] = kept.get(passage.corpus, 0) + 1
            if ordinal % _EVERY == 0:
                report(Progress("indexing", passage.corpus, ordinal))
    moment = now()
    entries = [*carried, *(_entry(reading, kept, moment) for reading in readings)]
    manifest = IndexManifest(
        retriever=lexical.RETRIEVER,
        parameters=parameters,
        libraries=lexical.libraries(),
        corpora=tuple(sorted(entries, key=lambda entry: entry.name)),
        passages=sum(kept.values()),
        index_digest=identity,
        data=f"{_DATA}{work.name.removeprefix(_BUILDING)}",
        files=_files(data),
        built_at=moment,
    )
    _put_in_force(out, data, manifest)
    report(Progress("built", None, manifest.passages))
    return manifest


@dataclass(frozen=True, slots=True)
class _Reading:
    corpus: Corpus
    spool: Path
    survey: Survey
    log: ReadLog


def _read(corpus: Corpus, spool: Path, report: Callable[[Progress], None]) -> _Reading:
    """Read a corpus once, into a file, taking note of what the decisions about its passages need."""
    survey, log = Survey(), ReadLog()
    with spool.open("wb") as handle:
        for passage in corpus.passages(log):
            survey.add(passage)
            handle.write(to_line(passage))
            if len(survey) % _EVERY == 0:
                report(Progress("reading", corpus.name, len(survey)))
    for identity in survey.ambiguous_ids:
        log.problem(identity, "the source gives this id to different texts; each is kept under an id of its own")
    if not len(survey):
        first = f"; first problem: {log.problems[0].member}: {log.problems[0].cause}" if log.problems else ""
        raise BadInput(f"{corpus.path} gave no passage ({log.problem_count} problems{first})")
    report(Progress("read", corpus.name, len(survey), tuple(log.problems)))
    return _Reading(corpus, spool, survey, log)


def _all_passages(
    out: Path, old: IndexManifest | None, carried: set[str], readings: Sequence[_Reading]
) -> Iterator[Passage]:
    if old is not None and carried:
        yield from (passage for passage in _store(out, old) if passage.corpus in carried)
    for reading in readings:
        with reading.spool.open("rb") as lines:
            for line in lines:
                passage = reading.survey.kept(from_line(line))
                if passage is not None:
                    yield passage


def _entry(reading: _Reading, kept: dict[str, int], moment: datetime) -> CorpusEntry:
    corpus, log = reading.corpus, reading.log
    return CorpusEntry(
        name=corpus.name,
        kind=corpus.kind,
        digest=reading.survey.digest,
        licence=corpus.licence,
        documents=log.documents,
        passages=kept.get(corpus.name, 0),
        boilerplate=log.boilerplate,
        repeated=len(reading.survey) - kept.get(corpus.name, 0),
        empty=log.empty,
        problems=log.problem_count,
        built_at=moment,
    )


def _present(out: Path, names: Sequence[str]) -> IndexManifest | None:
    """The index in force, whose other corpora are to be kept; None when there is none or it is past use."""
    try:
        manifest = read_manifest(out)
    except (IndexMissing, IndexCorrupt, IndexOutdated):
        return None
    try:
        _check_sizes(out, manifest)
    except IndexCorrupt as exc:
        lost = sorted(set(manifest.corpus_digests) - set(names))
        if lost:
            raise IndexCorrupt(
                f"{exc.message}; it also holds {', '.join(lost)}, which cannot be carried over",
                hint="give these corpora too, or start afresh",
            ) from exc
        return None
    return manifest


def _usable(out: Path, manifest: IndexManifest) -> bool:
    try:
        _open(out, manifest)
    except (IndexCorrupt, IndexOutdated):
        return False
    return True


def _open(path: Path, manifest: IndexManifest) -> BM25Retriever:
    if manifest.retriever != lexical.RETRIEVER:
        raise IndexOutdated(
            f"{path} is an index of kind {manifest.retriever!r}, which this medlive does not search",
            hint=HINT,
        )
    if manifest.parameters != lexical.parameters():
        raise IndexOutdated(
            f"{path} was built with other parameters or cuts text differently: built with"
            f" {manifest.libraries}, here are {lexical.libraries()}",
            hint=HINT,
        )
    _check_sizes(path, manifest)
    identity = IndexIdentity(
        retriever=manifest.retriever,
        index_digest=manifest.index_digest,
        corpora=manifest.corpus_digests,
        passages=manifest.passages,
    )
    try:
        return BM25Retriever(path / manifest.data / _LEXICAL, _store(path, manifest), identity)
    except (IndexCorrupt, IndexOutdated) as exc:
        raise type(exc)(exc.message, hint=HINT) from exc


def _store(path: Path, manifest: IndexManifest) -> PassageStore:
    try:
        return PassageStore(path / manifest.data)
    except OSError as exc:
        raise IndexCorrupt(f"the passages of {path} cannot be read: {exc.strerror}", hint=HINT) from exc


def _check_sizes(path: Path, manifest: IndexManifest) -> None:
    if not manifest.data.startswith(_DATA) or Path(manifest.data).name != manifest.data:
        raise IndexCorrupt(f"the manifest of {path} names {manifest.data!r} as its data", hint=HINT)
    for entry in manifest.files:
        place = path / manifest.data / entry.path
        size = place.stat().st_size if place.is_file() else None
        if size != entry.size:
            found = "is missing" if size is None else f"has {size} bytes, expected {entry.size}"
            raise IndexCorrupt(f"{place} {found}", hint=HINT)


def _files(data: Path) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(path=file.relative_to(data).as_posix(), size=file.stat().st_size, digest=digest_file(file))
        for file in sorted(data.rglob("*"))
        if file.is_file() and not file.name.endswith(".lock")
    )


def _put_in_force(out: Path, data: Path, manifest: IndexManifest) -> None:
    """Make the data durable under its name, then let the manifest name it; then drop what it replaced."""
    for entry in manifest.files:
        _sync(data / entry.path)
    data.rename(out / manifest.data)
    fresh = out / f"{_BUILDING}{MANIFEST}"
    fresh.write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _sync(fresh)
    _sync(out)
    fresh.replace(out / MANIFEST)
    _sync(out)
    _remove_leftovers(out)


def _remove_leftovers(out: Path) -> None:
    """Remove what builds that were killed, or the index before this one, left behind."""
    try:
        in_force = read_manifest(out).data
    except (IndexMissing, IndexCorrupt, IndexOutdated):
        in_force = None
    for place in out.iterdir():
        if place.name.startswith((_BUILDING, _DATA)) and place.name != in_force:
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


def _sync(place: Path) -> None:
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it when the process ends, however it ends."""
    with (out / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise ServiceUnavailable(f"another process is building {out}", hint="wait until it has ended") from exc
        yield


def _silent(_: Progress) -> None:
    return
