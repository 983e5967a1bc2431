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

import numpy as np

from medlive.clock import now
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
from medlive.evidence.encoder import Encoder, Reranker
from medlive.evidence.encoders.folders import DOWNLOAD, find_problem
from medlive.evidence.encoders.opening import open_encoder, open_reranker
from medlive.evidence.encoders.table import LANGUAGES, EncoderSettings
from medlive.evidence.files import room_for, whole_file
from medlive.evidence.lexical import LexicalIndex, LexicalWriter
from medlive.evidence.manifest import (
    MANIFEST,
    CorpusEntry,
    DenseEntry,
    DenseKind,
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
    ORDINALS,
    VECTORS,
    check_digests,
    check_index,
    check_sizes,
    open_index,
    open_named_encoder,
    open_store,
)
from medlive.evidence.passage import Passage
from medlive.evidence.store import LINES, PassageStore, StoreWriter
from medlive.evidence.vectors import SHARD, Ordinals, VectorStore, folder_of, keys_of
from medlive.integrity.digest import digest_file
from medlive.integrity.folder import sync
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
    """One encoder's side to build."""

    encoder: Encoder
    where: str  # How the encoder is opened again: see `EncoderEntry.where`
    reason: str  # Why this encoder, in a sentence
    languages: tuple[str, ...] = LANGUAGES  # Whose phrases it reads
    kind: DenseKind | None = None  # None: by the number of passages
    shard: int = SHARD  # Passages per shard: what a kill may lose
    share: Callable[[Path], None] | None = None
    """Has other processes embed the passages of a folder, before what they left is embedded here."""


class IndexPlan(NamedTuple):
    """The sides that an index gets beside its words, and the reason."""

    sides: tuple[DensePlan, ...]
    reason: str
    reranker: Reranker | None = None


WORDS_ALONE = IndexPlan((), NO_ENCODER)


def plan_index(
    out: Path,
    requested: Sequence[str],
    settings: EncoderSettings,
    *,
    fresh: bool = False,
    kind: str | None = None,
    shard: int | None = None,
) -> IndexPlan:
    """Return the dense sides that the index at `out` gets, and the reason.

    Args:
        out: The index's folder.
        requested: "none"; or encoders as in `open_encoder`, each for what it reads, or for one language
            ("zh=NAME"). Empty: as configured, else the index's own (unless `fresh`), else what is at hand.
        settings: Where models are looked for, and what `[evidence.encoders]` says.
        fresh: Whether the index's own encoders count.
        kind: How vectors are arranged; None: by their number.
        shard: Passages a shard.

    Raises:
        As `open_encoder` does, for what was requested or configured and for the index's own encoders.
    """
    if tuple(requested) == ("none",):
        return IndexPlan((), "no encoder was wanted")
    known: dict[str, EncoderEntry] = {}
    routes = {}
    why = "its models are at hand"
    with suppress(IndexMissing, IndexCorrupt, IndexOutdated):
        for entry in read_manifest(out).dense:
            known[entry.encoder.where] = entry.encoder
            if not fresh:
                routes[entry.encoder.where] = entry.languages
                why = "the index has vectors of it"
    configured = [f"{lang}={name}" for lang, name in settings.by_language.items()]
    if wanted := requested or configured:
        routes = _wanted(wanted, settings)
        why = "it was asked for" if requested else "[evidence.encoders] names it"
    routes = routes or _at_hand(settings)
    sides = []
    for where, languages in routes.items():
        if wanted or where not in known:
            encoder = open_encoder(where, settings=settings, known=known.get(where))
        else:
            encoder = open_named_encoder(out, known[where], settings)
        side = DensePlan(
            encoder=encoder,
            where=where,
            reason=why,
            languages=languages,
            kind=DenseKind(kind) if kind else None,
            shard=shard or SHARD,
        )
        sides.append(side)
    plan = IndexPlan(tuple(sides), _reason(routes, why, settings))
    if settings.reranker:
        reranker = open_reranker(settings.reranker, settings=settings)
        plan = plan._replace(reranker=reranker)
    return plan


def _wanted(
    wanted: Sequence[str], settings: EncoderSettings
) -> dict[str, tuple[str, ...]]:
    """Encoder → the languages whose phrases it reads, of "NAME", "zh=NAME" and "all=NAME"."""
    routes: dict[str, tuple[str, ...]] = {}
    for each in wanted:
        language, separator, name = each.partition("=")
        if not separator:
            language, name = "all", each
        if Path(name).expanduser().is_dir():
            name = str(Path(name).expanduser().resolve())
        model = settings.find(name)
        readable = tuple(filter(model.reads, LANGUAGES))
        if language == "all":
            routes[name] = readable
        elif language in readable:
            routes[name] = (*routes.get(name, ()), language)
        else:
            raise UsageError(
                f"encoder {name} does not read {language!r}, but {', '.join(readable)}",
                hint="name an encoder of that language; docs/evidence.md has a table",
            )
    return routes


def _at_hand(settings: EncoderSettings) -> dict[str, tuple[str, ...]]:
    """Encoder → languages: for each language the first of the table whose models are here."""
    routes: dict[str, tuple[str, ...]] = {}
    for language in LANGUAGES:
        for name, model in settings.table().items():
            # An endpoint may cost money: it is asked where it is named.
            local = not model.base_url and model.reads(language)
            if local and find_problem(model, settings) is None:
                routes[name] = (*routes.get(name, ()), language)
                break
    return routes


def _reason(
    routes: Mapping[str, tuple[str, ...]], why: str, settings: EncoderSettings
) -> str:
    parts = [f"{name} for {', '.join(read)}: {why}" for name, read in routes.items()]
    served = {language for languages in routes.values() for language in languages}
    for language in LANGUAGES:
        if language in served:
            continue
        names = [n for n, m in settings.table().items() if m.reads(language)]
        parts.append(
            f"no encoder for {language}: {DOWNLOAD} {names[0]}, or another of {', '.join(names)}"
        )
    return "; ".join(parts)


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    progress: Callable[[Progress], None] | None = None,
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
    report = progress or (lambda _: None)
    with _locked(out):
        old = None if fresh else _existing_index(out, names)
        _remove_leftovers(out)
        work = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=out))
        try:
            with room_for(work):
                manifest = _build(corpora, out, work, old, plan, report)
                return _with_reranker(out, manifest, plan)
        except DiskFull as exc:
            if not (out / MANIFEST).exists():
                raise
            raise DiskFull(
                f"{exc.message}; the index that was there is still in force",
                hint=exc.hint,
            ) from exc
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _with_reranker(
    out: Path, manifest: IndexManifest, plan: IndexPlan
) -> IndexManifest:
    """Measure the planned reranker, unless the manifest has it already."""
    from medlive.evidence.known_items import measure_reranker

    reranker, known = plan.reranker, manifest.reranker
    if reranker is None or (known and known.digest == reranker.identity.digest):
        return manifest
    encoders = {side.encoder.identity.name: side.encoder for side in plan.sides}
    retriever = open_index(out, encoders=encoders)
    entry = measure_reranker(reranker, retriever, open_store(out, manifest))
    manifest = manifest.model_copy(update={"reranker": entry})
    _write_manifest(out, manifest)
    return manifest


def prune(out: Path) -> list[Path]:
    """Remove the vectors of encoders that the index does not use, and return the removed folders.

    Raises as `read_manifest` does, and ServiceUnavailable while another process builds there.
    """
    with _locked(out):
        manifest = read_manifest(out)
        used = []
        for entry in manifest.dense:
            used.append(folder_of(out / VECTORS, entry.encoder.digest))
        removed = [place for place in (out / VECTORS).glob("*") if place not in used]
        for place in removed:
            shutil.rmtree(place)
        return removed


def _build(
    corpora: Sequence[Corpus],
    out: Path,
    work: Path,
    old: IndexManifest | None,
    plan: IndexPlan,
    report: Callable[[Progress], None],
) -> IndexManifest:
    readings = []
    for number, corpus in enumerate(corpora):
        readings.append(_read(corpus, work / f"corpus-{number}.sqlite", report))
    if old is not None and _is_current(out, old, readings, plan):
        report(Progress("unchanged", None, old.passages))
        return old

    entries = {entry.name: entry for entry in old.corpora} if old else {}
    replaced = {corpus.name for corpus in corpora}
    data = work / "data"
    data.mkdir()
    passages = _all_passages(out, old, entries.keys() - replaced, readings)
    counts, languages = _write_passages(data, passages, report)
    sides = _dense_sides(out, data, plan, report)
    built_at = now()
    for reading in readings:
        entries[reading.corpus.name] = _entry(reading, counts, built_at)
    digests = {name: entry.digest for name, entry in entries.items()}
    parameters = lexical.parameters()
    dense = tuple(side.entry for side in sides)
    manifest = IndexManifest(
        retriever="hybrid" if dense else "bm25",
        reason=plan.reason,
        parameters=parameters,
        libraries=lexical.libraries(),
        corpora=tuple(entries[name] for name in sorted(entries)),
        passages=sum(counts.values()),
        languages=languages,
        dense=dense,
        index_digest=index_digest(parameters, digests, dense),
        data=f"{DATA}{work.name.removeprefix(_BUILDING)}",
        files=_files(data),
        built_at=built_at,
    )
    _activate(out, data, manifest)
    report(_built(manifest, sides))
    return manifest


def _built(manifest: IndexManifest, sides: "Sequence[_BuiltSide]") -> Progress:
    return Progress(
        stage="built",
        corpus=None,
        passages=manifest.passages,
        embedded=sum(side.embedded for side in sides) if sides else None,
        reused=sum(side.reused for side in sides) if sides else None,
    )


def _is_current(
    out: Path, old: IndexManifest, readings: "Sequence[_Reading]", plan: IndexPlan
) -> bool:
    """Whether a build would give the index that is there."""
    for reading in readings:
        name, fetched = reading.corpus.name, reading.corpus.fetched
        if old.corpus_digests.get(name) != reading.survey.digest:
            return False
        if old.fetched_digests.get(name) != (fetched and fetched.digest):
            return False
    return old.parameters == lexical.parameters() and _usable(out, old, plan)


class _Written(NamedTuple):
    counts: Counter[str]  # Passages by corpus
    languages: tuple[str, ...]


def _write_passages(
    data: Path, passages: Iterator[Passage], report: Callable[[Progress], None]
) -> _Written:
    """Store and index the passages."""
    counts: Counter[str] = Counter()
    languages = set()
    with StoreWriter(data) as store, LexicalWriter(data / LEXICAL) as index:
        for passage in passages:
            ordinal = store.add(passage)
            index.add(ordinal, passage)
            counts[passage.corpus] += 1
            languages.add(passage.language)
            if ordinal % _EVERY == 0:
                report(Progress("indexing", passage.corpus, ordinal))
    return _Written(counts, tuple(sorted(languages)))


class _BuiltSide(NamedTuple):
    entry: DenseEntry
    reused: int  # Passages whose vectors were there
    embedded: int


def _dense_sides(
    out: Path, data: Path, plan: IndexPlan, report: Callable[[Progress], None]
) -> list[_BuiltSide]:
    """Build each planned side that has a passage in its languages."""
    sides = []
    for number, side in enumerate(plan.sides):
        built = _dense_side(out, data, f"{DENSE}/{number}", side, report)
        if built is not None:
            sides.append(built)
    return sides


def _dense_side(
    out: Path,
    data: Path,
    folder: str,
    plan: DensePlan,
    report: Callable[[Progress], None],
) -> _BuiltSide | None:
    """Embed what is new, arrange all vectors, and measure them; None where no passage is in its languages."""
    from medlive.evidence import dense
    from medlive.evidence.known_items import measure_weights

    store, encoder = PassageStore(data), plan.encoder
    readable = [n for n, passage in enumerate(store) if encoder.reads(passage.language)]
    if not readable:
        return None
    ordinals: Ordinals = np.array(readable, dtype=np.int64)

    def passages() -> Iterator[Passage]:
        return (store.get(number) for number in readable)

    vectors = VectorStore(out / VECTORS, encoder.identity)
    before = len(vectors)
    if plan.share is not None:
        plan.share(data)
    reused, embedded = vectors.embed_missing(
        passages(),
        encoder,
        shard_size=plan.shard,
        progress=lambda n: report(Progress("embedding", None, n)),
    )
    kind = plan.kind or dense.choose_kind(len(readable))
    queries = None
    if kind is DenseKind.IVF_PQ and len(readable) >= dense.LEAST:
        # Questions that passages of the index answer, to choose its cells on and measure it.
        sample = dense.sample_ordinals(len(readable), 2 * dense.QUERIES)
        answered = [store.get(readable[int(n)]).title_and_text for n in sample]
        queries = encoder.encode_queries([dense.as_query(*each) for each in answered])
    place = data / folder
    part = dense.build_dense(
        vectors.vectors(keys_of(passages())),
        place,
        kind=kind,
        queries=queries,
        progress=lambda n: report(Progress("arranging", None, n)),
    )
    np.save(place / ORDINALS, ordinals)
    weights = measure_weights(
        store,
        LexicalIndex(data / LEXICAL, store),
        dense.DenseIndex.open(place, part),
        ordinals,
        encoder,
        plan.languages,
    )
    shared = len(vectors) - before - embedded
    entry = DenseEntry(
        encoder=EncoderEntry(**encoder.identity.model_dump(), where=plan.where),
        languages=plan.languages,
        reason=plan.reason,
        folder=folder,
        part=part,
        weights=weights,
    )
    return _BuiltSide(entry, reused - shared, embedded + shared)


def shards_to_embed(out: Path, data: Path, plan: DensePlan) -> list[tuple[int, int]]:
    """The ranges of at most a shard of the ordinals in `data` that have a passage without a vector."""
    store = PassageStore(data)
    vectors = VectorStore(out / VECTORS, plan.encoder.identity)
    reads = plan.encoder.reads
    ranges = []
    for start in range(0, len(store), plan.shard):
        end = min(start + plan.shard, len(store))
        passages = map(store.get, range(start, end))
        if vectors.lacks(keys_of(p for p in passages if reads(p.language))):
            ranges.append((start, end))
    return ranges


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
    every = map(store.get, range(first, end))
    passages = (passage for passage in every if encoder.reads(passage.language))
    return vectors.embed_missing(
        passages, encoder, shard_size=end - first, progress=progress
    )[1]


def _usable(out: Path, old: IndexManifest, plan: IndexPlan) -> bool:
    """Whether the index can be searched and already has the planned dense sides."""
    planned = []
    for side in plan.sides:
        if any(map(side.encoder.reads, old.languages)):
            planned.append(side)
    if len(planned) != len(old.dense):
        return False
    for side, entry in zip(planned, old.dense, strict=True):
        encoder = side.encoder.identity.digest, side.where, side.languages
        # An outdated location of the encoder would leave the index without one.
        if encoder != (entry.encoder.digest, entry.encoder.where, entry.languages):
            return False
        if side.kind not in (None, entry.part.kind):
            return False
    try:
        check_index(out, old)
    except EvidenceUnavailable:
        return False
    return True


class _Reading(NamedTuple):
    corpus: Corpus
    survey: Survey
    log: ReadLog


def _read(corpus: Corpus, place: Path, report: Callable[[Progress], None]) -> _Reading:
    """Read a corpus once into a file, for the decisions about its passages."""
    survey, log = Survey(place), ReadLog()
    for passage in corpus.passages(log):
        survey.add(passage)
        if len(survey) % _EVERY == 0:
            report(Progress("reading", corpus.name, len(survey)))
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
    report(Progress("read", corpus.name, len(survey), tuple(log.problems)))
    return _Reading(corpus, survey, log)


def _all_passages(
    out: Path,
    old: IndexManifest | None,
    kept: Collection[str],
    readings: Sequence[_Reading],
) -> Iterator[Passage]:
    for passage in open_store(out, old) if old and kept else ():
        if passage.corpus in kept:
            yield passage
    for reading in readings:
        yield from reading.survey.kept()


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
