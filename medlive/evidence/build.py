"""Build evidence indexes: a new index is written beside the old one and replaces it in one step.

An index is a folder whose `manifest.json` names its data folder. A build writes a new data folder and then
replaces the manifest; a killed build leaves the old index as it was.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from medlive.clock import now
from medlive.errors import (
    BadInput,
    DiskFull,
    EvidenceUnavailable,
    IndexMissing,
    UsageError,
)
from medlive.integrity.digest import digest_file
from medlive.integrity.folder import sync
from medlive.integrity.log import exclusive, writing

from . import lexical
from .corpora.model import Corpus, ReadLog
from .corpora.survey import Survey
from .files import whole_file
from .index import (
    DATA,
    DENSE,
    LEXICAL,
    ORDINALS,
    VECTORS,
    IndexFolder,
    open_index,
    read_index,
)
from .lexical import LexicalIndex, index_passages
from .manifest import (
    MANIFEST,
    CorpusEntry,
    DenseEntry,
    FileEntry,
    IndexManifest,
    index_digest,
    read_manifest,
)
from .passage import Passage
from .plan import WORDS_ALONE, IndexPlan
from .retriever import DenseSide
from .store import PassageStore, store_passages
from .vectors import VectorStore, keys_of

_BUILDING = "building-"
_EVERY = 1000  # Passages between two reports of progress


Tick = Callable[[int], None]
"""Reports progress: gets the number of passages read of a corpus, indexed or embedded so far."""


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    tick: Tick = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    *,
    fresh: bool = False,
    plan: IndexPlan = WORDS_ALONE,
) -> IndexManifest:
    """Read the corpora, build the index at `out`, and return its manifest.

    Corpora of other names in the index stay, one of the same name is replaced. Vectors are kept in `out`, so that an
    encoder never embeds a passage twice. `warn` gets the first of what cannot be read. `plan` is as `plan_index` gives
    it; `fresh` drops the corpora already in the index.

    Raises:
        UsageError: for two corpora of one name.
        BadInput: for a folder that cannot be written, or a corpus without passages.
        Locked: while another process builds there.
        DiskFull: if the index does not fit.
        IndexCorrupt, IndexOutdated: if the index that is there cannot be read, and `fresh` does not drop it.
    """
    names = {corpus.name for corpus in corpora}
    if len(names) < len(corpora):
        raise UsageError(
            f"two corpora have the same name, of {', '.join(sorted(names))}",
            hint="put both into one folder, or build each with its --name",
        )
    with _locked(out):
        old = None if fresh else _existing_index(out)
        _remove_leftovers(out)
        with tempfile.TemporaryDirectory(
            prefix=_BUILDING, dir=out, ignore_cleanup_errors=True
        ) as folder:
            work, readings = Path(folder), []
            for number, corpus in enumerate(corpora):
                scratch = work / f"corpus-{number}.sqlite"
                readings.append(_read(corpus, scratch, tick, warn))
            manifest = _build(out, work, old, readings, plan, tick)
            return _with_reranker(out, manifest, plan)


# A corpus, its passages, and the account of what was left out
_Reading = tuple[Corpus, Survey, ReadLog]


def _read(
    corpus: Corpus, scratch: Path, tick: Tick, warn: Callable[[str], None]
) -> _Reading:
    """Read a corpus into the file `scratch`, from which `Survey` decides what to keep. Raises BadInput if empty."""
    survey, log = Survey(scratch), ReadLog()
    for passage in corpus.passages(log):
        survey.add(passage)
        if len(survey) % _EVERY == 0:
            tick(len(survey))
    if not len(survey):
        first = "".join(f"; {member}: {cause}" for member, cause in log.problems[:1])
        raise BadInput(
            f"{corpus.path} has no passages ({log.problem_count} problems{first})"
        )
    for member, cause in log.problems:
        warn(f"{member}: {cause}")
    return corpus, survey, log


def _build(
    out: Path,
    work: Path,
    old: IndexFolder | None,
    readings: Sequence[_Reading],
    plan: IndexPlan,
    tick: Tick,
) -> IndexManifest:
    """Build the index in `work`, and let it replace the old one."""
    data = work / "data"
    data.mkdir()
    corpora = {}
    for entry in old.manifest.corpora if old else ():
        corpora[entry.name] = entry
    for corpus, _, _ in readings:
        corpora.pop(corpus.name, None)
    counts: Counter[str] = Counter()
    languages = set()
    stored = store_passages(data, _passages(old, set(corpora), readings))
    for ordinal, passage in enumerate(index_passages(data / LEXICAL, stored)):
        counts[passage.corpus] += 1
        languages.add(passage.language)
        if ordinal % _EVERY == 0:
            tick(ordinal)
    sides = [_build_side(out, data, n, plan, tick) for n in range(len(plan.sides))]
    dense = [side for side in sides if side is not None]
    built_at = now()
    for corpus, survey, log in readings:
        corpora[corpus.name] = CorpusEntry(
            name=corpus.name,
            kind=corpus.reader.kind,
            digest=survey.digest,
            licence=corpus.licence,
            passages=counts[corpus.name],
            repeated=len(survey) - counts[corpus.name],
            documents=log.documents,
            left_out=log.left_out,
            problems=log.problem_count,
            built_at=built_at,
            fetched=corpus.fetched,
        )
    parameters = lexical.parameters()
    digests = {name: entry.digest for name, entry in corpora.items()}
    manifest = IndexManifest(
        retriever="hybrid" if dense else "bm25",
        reason=plan.reason,
        parameters=parameters,
        libraries=lexical.libraries(),
        corpora=tuple(corpora[name] for name in sorted(corpora)),
        passages=counts.total(),
        languages=tuple(sorted(languages)),
        dense=tuple(dense),
        index_digest=index_digest(parameters, digests, dense),
        data=f"{DATA}{work.name.removeprefix(_BUILDING)}",
        files=_files(data),
        built_at=built_at,
    )
    sync(*(data / file.path for file in manifest.files))
    data.rename(out / manifest.data)
    sync(out)
    _write_manifest(out, manifest)
    _remove_leftovers(out)
    return manifest


def _passages(
    old: IndexFolder | None,
    kept: set[str],
    readings: Sequence[_Reading],
) -> Iterator[Passage]:
    """The passages of the new index: those of the old one's corpora in `kept`, then those just read."""
    if old is not None and kept:
        for passage in old.open_store():
            if passage.corpus in kept:
                yield passage
    for _, survey, _ in readings:
        yield from survey.kept()


def _build_side(
    out: Path,
    data: Path,
    number: int,
    plan: IndexPlan,
    tick: Tick,
) -> DenseEntry | None:
    """Embed the passages that are new to one encoder, index all its vectors, and measure them.

    Args:
        out: The index's folder, which keeps the vectors.
        data: The data folder that is being built; it can be searched by words already.
        number: Which of `plan.sides`, from 0.
        plan: The encoders.
        tick: Gets the passages embedded so far.

    Returns:
        The encoder's entry; None if no passage is in its languages.
    """
    # It needs faiss, which an index of words does without.
    from . import dense

    encoder, languages = plan.sides[number]
    store, folder = PassageStore(data), f"{DENSE}/{number}"
    readable = [n for n, passage in enumerate(store) if encoder.reads(passage.language)]
    if not readable:
        return None
    vectors = VectorStore(out / VECTORS, encoder.identity)
    vectors.embed_missing(
        map(store.get, readable),
        encoder,
        progress=tick,
    )
    queries = None
    if len(readable) > dense.FLAT_UP_TO:
        # Questions that passages of the index answer, to choose its cells on and measure it.
        sample = dense.sample_ordinals(len(readable), 2 * dense.QUERIES)
        answered = [store.get(readable[int(n)]).title_and_text for n in sample]
        queries = encoder.encode_queries([dense.as_query(*pair) for pair in answered])
    part = dense.build_dense(
        vectors.vectors(keys_of(map(store.get, readable))),
        data / folder,
        queries,
    )
    side = DenseSide(
        encoder,
        dense.DenseIndex(data / folder, part),
        np.array(readable),
    )
    np.save(data / folder / ORDINALS, side.ordinals)
    words = LexicalIndex(data / LEXICAL, store)
    return DenseEntry(
        encoder=encoder.identity,
        languages=languages,
        reason=plan.reason,
        folder=folder,
        part=part,
        weights=dense.measure_weights(store, words, side, languages),
    )


def _with_reranker(
    out: Path,
    manifest: IndexManifest,
    plan: IndexPlan,
) -> IndexManifest:
    """Measure the planned reranker, if any, on the index at `out`, and add the result to the manifest."""
    if plan.reranker is None:
        return manifest
    from .dense import measure_reranker

    encoders = {encoder.identity.name: encoder for encoder, _ in plan.sides}
    retriever = open_index(out, encoders=encoders)
    entry = measure_reranker(plan.reranker, retriever)
    manifest = manifest.model_copy(update={"reranker": entry})
    _write_manifest(out, manifest)
    return manifest


def _existing_index(out: Path) -> IndexFolder | None:
    """Return the index at `out`, its passages checked; None if there is none."""
    try:
        index = read_index(out)
    except IndexMissing:
        return None
    # Else damaged passages would be copied, and get a valid digest.
    index.check(passages=True)
    return index


def _files(data: Path) -> tuple[FileEntry, ...]:
    entries = []
    for file in sorted(data.rglob("*")):
        if file.is_file() and file.suffix != ".lock":
            entry = FileEntry(
                path=file.relative_to(data).as_posix(),
                size=file.stat().st_size,
                digest=digest_file(file),
            )
            entries.append(entry)
    return tuple(entries)


def _write_manifest(out: Path, manifest: IndexManifest) -> None:
    with whole_file(out / MANIFEST) as handle:
        handle.write((manifest.model_dump_json(indent=1) + "\n").encode())


def _remove_leftovers(out: Path) -> None:
    """Remove what killed builds and the previous index left behind; vectors stay."""
    prefixes, current = [_BUILDING], ""
    # Another version may read an index that this one does not: it stays until another is in force.
    with suppress(EvidenceUnavailable):
        current = read_manifest(out).data
        prefixes.append(DATA)
    for place in out.iterdir():
        if place.name.startswith(tuple(prefixes)) and place.name != current:
            shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Lock the folder, and create it if necessary. Raises Locked, DiskFull and BadInput."""
    try:
        with writing(out):
            out.mkdir(parents=True, exist_ok=True)
            with exclusive(out / ".lock"):
                yield
    except DiskFull as exc:
        exc.hint = (
            "make room, or let this user write more there, and run this again: finished"
            " shards of vectors are kept, and an index that was there is still in force"
        )
        raise
