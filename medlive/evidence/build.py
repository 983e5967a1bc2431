"""Build evidence indexes: a new index is written beside the old one and replaces it in one step.

An index is a folder whose `manifest.json` names its data folder. A build writes a new data folder and then
replaces the manifest; a killed build leaves the old index as it was.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from medlive.clock import now
from medlive.digest import digest_file
from medlive.errors import (
    BadInput,
    DiskFull,
    EvidenceUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexOutdated,
    ServiceUnavailable,
    UsageError,
)
from medlive.evidence import lexical
from medlive.evidence.corpora.model import Corpus, Problem, ReadLog
from medlive.evidence.corpus_digest import Survey
from medlive.evidence.encoder import Encoder, EncoderIdentity
from medlive.evidence.encoders.folders import (
    EncoderSettings,
    find_models,
    missing_models,
)
from medlive.evidence.encoders.opening import open_encoder
from medlive.evidence.files import room_for, sync, whole_file
from medlive.evidence.lexical import LexicalWriter
from medlive.evidence.manifest import (
    MANIFEST,
    CorpusEntry,
    DenseKind,
    DensePart,
    EncoderEntry,
    FileEntry,
    IndexManifest,
    index_digest,
    named_corpora,
    read_manifest,
)
from medlive.evidence.open_index import (
    DATA,
    DENSE,
    LEXICAL,
    VECTORS,
    check_digests,
    check_index,
    check_sizes,
    open_named_encoder,
    open_store,
)
from medlive.evidence.passage import Passage
from medlive.evidence.store import LINES, PassageStore, StoreWriter, from_line, to_line
from medlive.evidence.vectors import SHARD, VectorStore, keys_of
from medlive.integrity.lock import Locked, exclusive

NO_ENCODER = "no encoder was given"

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


@dataclass(frozen=True, slots=True)
class DensePlan:
    """The dense side to build."""

    encoder: Encoder
    where: str  # How the encoder is opened again: see `EncoderEntry.where`
    reason: str  # Why this encoder, in a sentence
    kind: DenseKind | None = None  # None: by the number of passages
    shard: int = SHARD  # Passages per shard: what a kill may lose
    share: Callable[[Path], None] | None = None
    """Has other processes embed the passages of a folder, before what they left is embedded here."""


def plan_index(
    out: Path,
    requested: str | None,
    settings: EncoderSettings,
    *,
    fresh: bool = False,
    kind: str | None = None,
    shard: int | None = None,
) -> tuple[DensePlan | None, str]:
    """Return the dense side that the index at `out` gets, or None, and the reason.

    `requested` is "none", or an encoder as in `open_encoder`; None for the index's own (unless `fresh`), else
    MedCPT if its models are available. Without `kind` the index's size decides.

    Raises as `open_encoder` does for the requested or the index's own encoder.
    """
    dense, size = DenseKind(kind) if kind else None, shard or SHARD
    if requested == "none":
        return None, "no encoder was wanted"
    if requested is not None:
        why = f"encoder {requested} was asked for"
        encoder = open_encoder(requested, settings=settings)
        folder = Path(requested).expanduser()
        where = (
            str(folder.resolve())
            if folder.is_dir() and requested != "medcpt"
            else requested
        )
        return DensePlan(encoder, where, why, dense, size), why
    if not fresh:
        existing = None
        with suppress(IndexMissing, IndexCorrupt, IndexOutdated):
            existing = read_manifest(out).encoder
        if existing is not None:
            why = f"the index has vectors of encoder {existing.name}"
            return DensePlan(
                open_named_encoder(out, existing, settings),
                existing.where,
                why,
                dense,
                size,
            ), why
    problem = missing_models(find_models(settings))
    if problem is not None:
        return None, problem
    why = "MedCPT's models are at hand"
    return DensePlan(
        open_encoder("medcpt", settings=settings), "medcpt", why, dense, size
    ), why


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    fresh: bool = False,
    dense: DensePlan | None = None,
    reason: str = NO_ENCODER,
) -> IndexManifest:
    """Read the corpora, build the index at `out`, and return its manifest.

    Corpora of other names in the index stay, one of the same name is replaced. An index that would not change is
    left as it is. Vectors are kept in `out`, so that an encoder never embeds a passage twice. `dense` and `reason`
    are as `plan_index` gives them; `fresh` drops the corpora already in the index.

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
    report = progress or (lambda _: None)
    with _locked(out):
        old = None if fresh else _existing_index(out, names)
        _remove_leftovers(out)
        work = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=out))
        try:
            with room_for(work):
                return _build(corpora, out, work, old, dense, reason, report)
        except DiskFull as exc:
            if not (out / MANIFEST).exists():
                raise
            raise DiskFull(
                f"{exc.message}; the index that was there is still in force",
                hint=exc.hint,
            ) from exc
        finally:
            shutil.rmtree(work, ignore_errors=True)


def prune(out: Path) -> list[Path]:
    """Remove the vectors of encoders that the index does not use, and return the removed folders.

    Raises as `read_manifest` does, and ServiceUnavailable while another process builds there.
    """
    with _locked(out):
        manifest = read_manifest(out)
        current = None if manifest.encoder is None else vectors_of(out, manifest).folder
        removed = [place for place in (out / VECTORS).glob("*") if place != current]
        for place in removed:
            shutil.rmtree(place)
        return removed


def vectors_of(out: Path, manifest: IndexManifest) -> VectorStore:
    """Open the vectors of an index's encoder. Raises UsageError for an index without one."""
    if manifest.encoder is None:
        raise UsageError(f"{out} has no vectors: {manifest.reason}")
    return VectorStore(out / VECTORS, manifest.encoder)


def _build(
    corpora: Sequence[Corpus],
    out: Path,
    work: Path,
    old: IndexManifest | None,
    plan: DensePlan | None,
    reason: str,
    report: Callable[[Progress], None],
) -> IndexManifest:
    readings = [
        _read(corpus, work / f"spool-{n}", report) for n, corpus in enumerate(corpora)
    ]
    kept = _kept_corpora(old, readings)
    digests = {name: entry.digest for name, entry in kept.items()}
    for reading in readings:
        digests[reading.corpus.name] = reading.survey.digest
    if old is not None and _is_current(out, old, corpora, digests, plan):
        report(Progress("unchanged", None, old.passages))
        return old

    data = work / "data"
    data.mkdir()
    counts = _write_passages(data, _all_passages(out, old, kept, readings), report)
    dense = None
    if plan is not None:
        dense = _dense_side(out, data, plan, report)
    built_at = now()
    entries = dict(kept)
    for reading in readings:
        entries[reading.corpus.name] = _entry(reading, counts, built_at)
    parameters = lexical.parameters()
    part = dense and dense.part
    manifest = IndexManifest(
        retriever="bm25" if dense is None else "hybrid",
        reason=reason if plan is None else plan.reason,
        parameters=parameters,
        libraries=lexical.libraries(),
        corpora=tuple(entries[name] for name in sorted(entries)),
        passages=sum(counts.values()),
        encoder=dense and dense.encoder,
        dense=part,
        index_digest=index_digest(parameters, digests, part),
        data=f"{DATA}{work.name.removeprefix(_BUILDING)}",
        files=_files(data),
        built_at=built_at,
    )
    _activate(out, data, manifest)
    built = Progress(
        stage="built",
        corpus=None,
        passages=manifest.passages,
        embedded=dense and dense.embedded,
        reused=dense and dense.reused,
    )
    report(built)
    return manifest


def _kept_corpora(
    old: IndexManifest | None, readings: "Sequence[_Reading]"
) -> dict[str, CorpusEntry]:
    """The corpora of the old index that none of the new ones replaces."""
    if old is None:
        return {}
    kept = {entry.name: entry for entry in old.corpora}
    for reading in readings:
        kept.pop(reading.corpus.name, None)
    return kept


def _is_current(
    out: Path,
    old: IndexManifest,
    corpora: Sequence[Corpus],
    digests: Mapping[str, str],
    plan: DensePlan | None,
) -> bool:
    """Whether a build would give the index that is there."""
    for corpus in corpora:
        if not _is_fetched_as(old, corpus):
            return False
    same = (old.corpus_digests, old.parameters) == (digests, lexical.parameters())
    return same and _usable(out, old, plan)


def _write_passages(
    data: Path, passages: Iterator[Passage], report: Callable[[Progress], None]
) -> Counter[str]:
    """Store and index the passages, and count them by corpus."""
    counts: Counter[str] = Counter()
    with StoreWriter(data) as store, LexicalWriter(data / LEXICAL) as index:
        for passage in passages:
            ordinal = store.add(passage)
            index.add(ordinal, passage)
            counts[passage.corpus] += 1
            if ordinal % _EVERY == 0:
                report(Progress("indexing", passage.corpus, ordinal))
    return counts


class _DenseSide(NamedTuple):
    encoder: EncoderEntry
    part: DensePart
    reused: int  # Passages whose vectors were there
    embedded: int


def _dense_side(
    out: Path, data: Path, plan: DensePlan, report: Callable[[Progress], None]
) -> _DenseSide:
    """Embed what is new, and arrange all vectors."""
    from medlive.evidence import dense

    store, encoder = PassageStore(data), plan.encoder
    vectors = VectorStore(out / VECTORS, encoder.identity)
    before = len(vectors)
    if plan.share is not None:
        plan.share(data)
    reused, embedded = vectors.embed_missing(
        store,
        encoder,
        shard_size=plan.shard,
        progress=lambda n: report(Progress("embedding", None, n)),
    )
    kind = plan.kind or dense.choose_kind(len(store))
    queries = None
    if kind is DenseKind.IVF_PQ and len(store) >= dense.LEAST:
        # Questions that passages of the index answer, to choose its cells on and measure it.
        sample = [
            store.get(int(n))
            for n in dense.sample_ordinals(len(store), 2 * dense.QUERIES)
        ]
        queries = encoder.encode_queries(
            [dense.as_query(*passage.title_and_text) for passage in sample]
        )
    part = dense.build_dense(
        vectors.vectors(keys_of(store)),
        data / DENSE,
        kind=kind,
        queries=queries,
        progress=lambda n: report(Progress("arranging", None, n)),
    )
    shared = len(vectors) - before - embedded
    entry = EncoderEntry(**encoder.identity.model_dump(), where=plan.where)
    return _DenseSide(entry, part, reused - shared, embedded + shared)


def shards_to_embed(
    out: Path, data: Path, encoder: EncoderIdentity, shard: int
) -> list[tuple[int, int]]:
    """The ranges of at most `shard` ordinals of the passages in `data` that have a passage without a vector."""
    store, vectors = PassageStore(data), VectorStore(out / VECTORS, encoder)
    ranges = [
        (start, min(start + shard, len(store))) for start in range(0, len(store), shard)
    ]
    return [r for r in ranges if vectors.lacks(keys_of(map(store.get, range(*r))))]


def embed_shard(
    out: Path,
    data: Path,
    encoder: Encoder,
    first: int,
    end: int,
    progress: Callable[[int], None],
) -> int:
    """Embed what has no vector among the passages `first` to `end - 1` of `data`, and return how many had none.

    `progress` gets the number embedded so far; what it raises ends the work. Raises as `embed_missing` does.
    """
    vectors, store = VectorStore(out / VECTORS, encoder.identity), PassageStore(data)
    passages = map(store.get, range(first, end))
    return vectors.embed_missing(
        passages, encoder, shard_size=end - first, progress=progress
    )[1]


def _usable(out: Path, old: IndexManifest, plan: DensePlan | None) -> bool:
    """Whether the index can be searched and already has the planned dense side."""
    if (plan is None) != (old.dense is None):
        return False
    if plan is not None and old.dense is not None and old.encoder is not None:
        # An outdated location of the encoder would leave the index without one.
        planned = (
            plan.encoder.identity.digest,
            plan.where,
            plan.kind or old.dense.kind,
        )
        if planned != (old.encoder.digest, old.encoder.where, old.dense.kind):
            return False
    try:
        check_index(out, old)
    except EvidenceUnavailable:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Reading:
    corpus: Corpus
    spool: Path
    survey: Survey
    log: ReadLog


def _read(corpus: Corpus, spool: Path, report: Callable[[Progress], None]) -> _Reading:
    """Read a corpus once into a file, and survey it for the decisions about its passages."""
    survey, log = Survey(spool.with_name(f"{spool.name}.sqlite")), ReadLog()
    with spool.open("wb") as handle:
        for passage in corpus.passages(log):
            survey.add(passage)
            handle.write(to_line(passage))
            if len(survey) % _EVERY == 0:
                report(Progress("reading", corpus.name, len(survey)))
    if not len(survey):
        first = (
            f"; first problem: {log.problems[0].member}: {log.problems[0].cause}"
            if log.problems
            else ""
        )
        raise BadInput(
            f"{corpus.path} has no passages ({log.problem_count} problems{first})"
        )
    for identity in survey.ambiguous_ids:
        log.problem(
            identity,
            "the source gives this id to different texts; each is kept under an id of its own",
        )
    report(Progress("read", corpus.name, len(survey), tuple(log.problems)))
    return _Reading(corpus, spool, survey, log)


def _all_passages(
    out: Path,
    old: IndexManifest | None,
    kept: Collection[str],
    readings: Sequence[_Reading],
) -> Iterator[Passage]:
    if old is not None and kept:
        yield from (
            passage for passage in open_store(out, old) if passage.corpus in kept
        )
    for reading in readings:
        with reading.spool.open("rb") as lines:
            for ordinal, line in enumerate(lines):
                passage = reading.survey.kept(ordinal, from_line(line))
                if passage is not None:
                    yield passage
        reading.spool.unlink()


def _is_fetched_as(old: IndexManifest, corpus: Corpus) -> bool:
    """Whether the manifest already says of these files that the corpus was made of them."""
    return old.fetched_digests.get(corpus.name) == (
        corpus.fetched and corpus.fetched.digest
    )


def _entry(reading: _Reading, counts: Counter[str], built_at: datetime) -> CorpusEntry:
    corpus, log = reading.corpus, reading.log
    counted = (
        "documents",
        "boilerplate",
        "empty",
        "superseded",
        "retracted",
        "questioned",
    )
    return CorpusEntry(
        name=corpus.name,
        kind=corpus.kind,
        digest=reading.survey.digest,
        licence=corpus.licence,
        passages=counts[corpus.name],
        repeated=len(reading.survey) - counts[corpus.name],
        problems=log.problem_count,
        built_at=built_at,
        fetched=corpus.fetched,
        **{name: getattr(log, name) for name in counted},
    )


def _existing_index(out: Path, names: Collection[str]) -> IndexManifest | None:
    """Return the index whose other corpora are to be kept; None if there is none or it cannot be read."""
    try:
        manifest = read_manifest(out)
        check_sizes(out, manifest)
        if manifest.corpus_digests.keys() - set(
            names
        ):  # kept passages would get a fresh digest
            check_digests(out, manifest, LINES)
    except IndexMissing:
        return None
    except (IndexCorrupt, IndexOutdated) as exc:
        missing = named_corpora(out) - set(names)
        if not missing:
            return None
        raise type(exc)(
            f"{exc.message}; it also contains {', '.join(sorted(missing))}, which cannot be kept",
            hint="name these corpora too, or start again without them; both with --fresh",
        ) from exc
    return manifest


def _files(data: Path) -> tuple[FileEntry, ...]:
    return tuple(
        FileEntry(
            path=file.relative_to(data).as_posix(),
            size=file.stat().st_size,
            digest=digest_file(file),
        )
        for file in sorted(data.rglob("*"))
        if file.is_file() and not file.name.endswith(".lock")
    )


def _activate(out: Path, data: Path, manifest: IndexManifest) -> None:
    """Flush the data to disk, replace the manifest, then remove the old data."""
    for entry in manifest.files:
        sync(data / entry.path)
    data.rename(out / manifest.data)
    sync(out)
    with whole_file(out / MANIFEST) as handle:
        handle.write((manifest.model_dump_json(indent=1) + "\n").encode())
    sync(out)
    _remove_leftovers(out)


def _remove_leftovers(out: Path) -> None:
    """Remove what killed builds and the previous index left behind; vectors stay."""
    try:
        removed, current = [_BUILDING, DATA], read_manifest(out).data
    except EvidenceUnavailable:
        # Another version may read what this one does not: it stays until another index is in force.
        removed, current = [_BUILDING], ""
    for place in out.iterdir():
        if place.name.startswith(tuple(removed)) and place.name != current:
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


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
