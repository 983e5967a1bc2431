"""Build evidence indexes: a new index is written beside the old one and replaces it in one step.

An index is a folder whose `manifest.json` names its data folder. A build writes a new data folder and then
replaces the manifest; a killed build leaves the old index as it was.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from medlive.clock import now
from medlive.errors import (
    BadInput,
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    ServiceUnavailable,
    UsageError,
)
from medlive.evidence import lexical
from medlive.evidence.corpora.model import COUNTED, Corpus, Problem, ReadLog
from medlive.evidence.corpus_digest import Survey
from medlive.evidence.dense_side import BuiltSide, build_side
from medlive.evidence.files import room_for, whole_file
from medlive.evidence.index_folder import (
    DATA,
    DENSE,
    LEXICAL,
    VECTORS,
    IndexFolder,
    read_index,
)
from medlive.evidence.lexical import LexicalWriter
from medlive.evidence.manifest import (
    MANIFEST,
    CorpusEntry,
    FileEntry,
    IndexManifest,
    index_digest,
    named_corpora,
    read_manifest,
)
from medlive.evidence.open_index import open_index
from medlive.evidence.passage import Passage
from medlive.evidence.plan import WORDS_ALONE, IndexPlan
from medlive.evidence.store import LINES, StoreWriter
from medlive.evidence.vectors import folder_of
from medlive.integrity.digest import digest_file
from medlive.integrity.folder import sync
from medlive.integrity.lock import Locked, exclusive

_BUILDING = "building-"
_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build."""

    stage: Literal[
        "reading", "read", "indexing", "embedding", "arranging", "built", "unchanged"
    ]
    """`read`: one corpus is read, `problems` holds the first of what could not be; `embedding` and
    `arranging` are the dense side's; `built` and `unchanged` end the build."""
    corpus: str | None
    passages: int
    """Passages of the corpus (while reading), embedded or arranged (in those stages), or of the index so far."""
    problems: tuple[Problem, ...] = ()
    embedded: int | None = None
    """When built: passages that had no vector of this encoder before; None without a dense side."""
    reused: int | None = None  # When built: passages that had one


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    fresh: bool = False,
    plan: IndexPlan = WORDS_ALONE,
) -> IndexManifest:
    """Read the corpora, build the index at `out`, and return its manifest.

    Corpora of other names in the index stay, one of the same name is replaced. An index that would not change is
    left as it is. Vectors are kept in `out`, so that an encoder never embeds a passage twice. `plan` is as
    `plan_index` gives it; `fresh` drops the corpora already in the index.

    Raises:
        UsageError: for two corpora of one name, or a folder that cannot be written.
        BadInput: for a corpus without passages.
        ServiceUnavailable: while another process builds there.
        DiskFull: if the index does not fit.
        IndexCorrupt: if the index is damaged and contains other corpora; IndexOutdated likewise.
    """
    names = {corpus.name for corpus in corpora}
    if not names:
        raise UsageError("expected at least one corpus")
    if len(names) < len(corpora):
        raise UsageError(
            f"two corpora have the same name, of {', '.join(sorted(names))}",
            hint="put both into one folder, or build each with its --name",
        )
    with _locked(out):
        old = None if fresh else _existing_index(out, names)
        _remove_leftovers(out)
        work = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=out))
        try:
            with room_for(work):
                build = _Build(out, work, old, plan, progress)
                return _with_reranker(out, build.run(corpora), plan)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def prune(out: Path) -> list[Path]:
    """Remove the vectors of encoders that the index does not use, and return the removed folders.

    Raises as `read_manifest` does, and ServiceUnavailable while another process builds there.
    """
    with _locked(out):
        used = set()
        for entry in read_manifest(out).dense:
            used.add(folder_of(out / VECTORS, entry.encoder.digest))
        removed = [place for place in (out / VECTORS).glob("*") if place not in used]
        for place in removed:
            shutil.rmtree(place)
        return removed


class _Reading(NamedTuple):
    corpus: Corpus
    survey: Survey
    log: ReadLog


class _Build:
    """The building of one index in `work`, which replaces the old one in the end."""

    def __init__(
        self,
        out: Path,
        work: Path,
        old: IndexFolder | None,
        plan: IndexPlan,
        report: Callable[[Progress], None],
    ) -> None:
        self._out = out
        self._work = work
        self._old = old
        self._plan = plan
        self._report = report
        self._counts: Counter[str] = Counter()  # Passages by corpus
        self._languages: set[str] = set()

    def run(self, corpora: Sequence[Corpus]) -> IndexManifest:
        readings = []
        for number, corpus in enumerate(corpora):
            readings.append(self._read(corpus, self._work / f"corpus-{number}.sqlite"))
        if self._old is not None and self._is_current(self._old, readings):
            self._report(Progress("unchanged", None, self._old.manifest.passages))
            return self._old.manifest
        data = self._work / "data"
        data.mkdir()
        replaced = {corpus.name for corpus in corpora}
        kept = self._kept_corpora(replaced)
        self._write_words(data, self._passages(readings, set(kept)))
        sides = self._build_sides(data)
        built_at = now()
        for reading in readings:
            kept[reading.corpus.name] = self._entry(reading, built_at)
        manifest = self._manifest(data, kept, sides, built_at)
        _activate(self._out, data, manifest)
        self._report(
            Progress(
                stage="built",
                corpus=None,
                passages=manifest.passages,
                embedded=sum(side.embedded for side in sides) if sides else None,
                reused=sum(side.reused for side in sides) if sides else None,
            )
        )
        return manifest

    def _read(self, corpus: Corpus, place: Path) -> _Reading:
        """Read a corpus once into a file, for the decisions about its passages."""
        survey, log = Survey(place), ReadLog()
        for passage in corpus.passages(log):
            survey.add(passage)
            if len(survey) % _EVERY == 0:
                self._report(Progress("reading", corpus.name, len(survey)))
        if not len(survey):
            first = "".join(f"; {p.member}: {p.cause}" for p in log.problems[:1])
            raise BadInput(
                f"{corpus.path} has no passages ({log.problem_count} problems{first})"
            )
        for identity in survey.ambiguous_ids:
            log.problem(
                identity,
                "the source gives this id to different texts; each is kept under an id of its own",
            )
        problems = tuple(log.problems)
        self._report(Progress("read", corpus.name, len(survey), problems))
        return _Reading(corpus, survey, log)

    def _is_current(self, old: IndexFolder, readings: Sequence[_Reading]) -> bool:
        """Whether a build would give the index that is there, and that one can be searched."""
        for corpus, survey, _ in readings:
            fetched = corpus.fetched and corpus.fetched.digest
            if old.manifest.corpus_digests.get(corpus.name) != survey.digest:
                return False
            if old.manifest.fetched_digests.get(corpus.name) != fetched:
                return False
        if not _has_sides(old.manifest, self._plan):
            return False
        try:
            old.check_usable()
        except EvidenceUnavailable:
            return False
        return True

    def _kept_corpora(self, replaced: set[str]) -> dict[str, CorpusEntry]:
        entries = {}
        for entry in self._old.manifest.corpora if self._old else ():
            if entry.name not in replaced:
                entries[entry.name] = entry
        return entries

    def _passages(
        self, readings: Sequence[_Reading], kept: set[str]
    ) -> Iterator[Passage]:
        if self._old and kept:
            for passage in self._old.open_store():
                if passage.corpus in kept:
                    yield passage
        for reading in readings:
            yield from reading.survey.kept()

    def _write_words(self, data: Path, passages: Iterator[Passage]) -> None:
        """Store and index the passages."""
        with StoreWriter(data) as store, LexicalWriter(data / LEXICAL) as index:
            for passage in passages:
                ordinal = store.add(passage)
                index.add(ordinal, passage)
                self._counts[passage.corpus] += 1
                self._languages.add(passage.language)
                if ordinal % _EVERY == 0:
                    self._report(Progress("indexing", passage.corpus, ordinal))

    def _build_sides(self, data: Path) -> list[BuiltSide]:
        """Build each planned side that has a passage in its languages."""
        sides = []
        for number, side in enumerate(self._plan.sides):
            built = build_side(
                self._out,
                data,
                f"{DENSE}/{number}",
                side,
                lambda stage, count: self._report(Progress(stage, None, count)),
            )
            if built is not None:
                sides.append(built)
        return sides

    def _entry(self, reading: _Reading, built_at: datetime) -> CorpusEntry:
        corpus, survey, log = reading
        passages = self._counts[corpus.name]
        return CorpusEntry(
            name=corpus.name,
            kind=corpus.kind,
            digest=survey.digest,
            licence=corpus.licence,
            passages=passages,
            repeated=len(survey) - passages,
            problems=log.problem_count,
            built_at=built_at,
            fetched=corpus.fetched,
            **{name: getattr(log, name) for name in COUNTED},
        )

    def _manifest(
        self,
        data: Path,
        corpora: dict[str, CorpusEntry],
        sides: Sequence[BuiltSide],
        built_at: datetime,
    ) -> IndexManifest:
        parameters = lexical.parameters()
        dense = tuple(side.entry for side in sides)
        digests = {name: entry.digest for name, entry in corpora.items()}
        return IndexManifest(
            retriever="hybrid" if dense else "bm25",
            reason=self._plan.reason,
            parameters=parameters,
            libraries=lexical.libraries(),
            corpora=tuple(corpora[name] for name in sorted(corpora)),
            passages=self._counts.total(),
            languages=tuple(sorted(self._languages)),
            dense=dense,
            index_digest=index_digest(parameters, digests, dense),
            data=f"{DATA}{self._work.name.removeprefix(_BUILDING)}",
            files=_files(data),
            built_at=built_at,
        )


def _has_sides(manifest: IndexManifest, plan: IndexPlan) -> bool:
    """Whether an index has just the dense sides that are planned for its languages."""
    planned = []
    for side in plan.sides:
        if any(map(side.encoder.reads, manifest.languages)):
            planned.append(side)
    if len(planned) != len(manifest.dense):
        return False
    for side, entry in zip(planned, manifest.dense, strict=True):
        encoder = side.encoder.identity.digest, side.where, side.languages
        # An outdated location of the encoder would leave the index without one.
        if encoder != (entry.encoder.digest, entry.encoder.where, entry.languages):
            return False
        if side.kind not in (None, entry.part.kind):
            return False
    return True


def _with_reranker(
    out: Path, manifest: IndexManifest, plan: IndexPlan
) -> IndexManifest:
    """Measure the planned reranker, unless the manifest has it already."""
    reranker, known = plan.reranker, manifest.reranker
    if reranker is None or (known and known.digest == reranker.identity.digest):
        return manifest
    # It needs faiss, which an index of words does without.
    from medlive.evidence.known_items import measure_reranker

    encoders = {side.encoder.identity.name: side.encoder for side in plan.sides}
    retriever = open_index(out, encoders=encoders)
    store = IndexFolder(out, manifest).open_store()
    entry = measure_reranker(reranker, retriever, store)
    manifest = manifest.model_copy(update={"reranker": entry})
    _write_manifest(out, manifest)
    return manifest


def _existing_index(out: Path, names: set[str]) -> IndexFolder | None:
    """Return the index whose other corpora are to be kept; None if there is none or it cannot be read."""
    try:
        index = read_index(out)
        index.check_sizes()
        if index.manifest.corpus_digests.keys() - names:
            index.check_digests(LINES)  # kept passages would get a fresh digest
    except IndexMissing:
        return None
    except (IndexCorrupt, IndexOutdated) as exc:
        missing = named_corpora(out) - names
        if not missing:
            return None
        raise type(exc)(
            f"{exc.message}; it also contains {', '.join(sorted(missing))}, which cannot be kept",
            hint="name these corpora too, or start again without them; both with --fresh",
        ) from exc
    return index


def _files(data: Path) -> tuple[FileEntry, ...]:
    entries = []
    for file in sorted(data.rglob("*")):
        if file.is_file() and not file.name.endswith(".lock"):
            name, size = file.relative_to(data).as_posix(), file.stat().st_size
            entries.append(FileEntry(path=name, size=size, digest=digest_file(file)))
    return tuple(entries)


def _activate(out: Path, data: Path, manifest: IndexManifest) -> None:
    """Flush the data to disk, replace the manifest, then remove the old data."""
    sync(*(data / entry.path for entry in manifest.files))
    data.rename(out / manifest.data)
    sync(out)
    _write_manifest(out, manifest)
    _remove_leftovers(out)


def _write_manifest(out: Path, manifest: IndexManifest) -> None:
    with whole_file(out / MANIFEST) as handle:
        handle.write((manifest.model_dump_json(indent=1) + "\n").encode())
    sync(out)


def _remove_leftovers(out: Path) -> None:
    """Remove what killed builds and the previous index left behind; vectors stay."""
    try:
        removed, current = [_BUILDING, DATA], read_manifest(out).data
    except EvidenceUnavailable:
        # Another version may read what this one does not: it stays until another index is in force.
        removed, current = [_BUILDING], ""
    for place in out.iterdir():
        if place.name.startswith(tuple(removed)) and place.name != current:
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock the folder, and create it if necessary."""
    try:
        with room_for(out):
            out.mkdir(parents=True, exist_ok=True)
            (out / ".lock").touch()
    except OSError as exc:
        raise UsageError(
            f"{out} cannot be written: {exc.strerror}",
            hint="name a folder that you may write: --index FOLDER",
        ) from exc
    try:
        with exclusive(out / ".lock"):
            yield
    except Locked as exc:
        raise ServiceUnavailable(
            f"another process is building {out}", hint="wait until it has ended"
        ) from exc
