"""Build evidence indexes: a new index is written beside the old one and replaces it in one step.

An index is a folder whose `manifest.json` names its data folder. A build writes a new data folder and then
replaces the manifest; a killed build leaves the old index as it was.
"""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

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
from medlive.evidence.corpora.model import COUNTED, Corpus, ReadLog
from medlive.evidence.corpora.survey import Survey
from medlive.evidence.files import room_for, whole_file
from medlive.evidence.index import (
    DATA,
    DENSE,
    LEXICAL,
    ORDINALS,
    VECTORS,
    IndexFolder,
    open_index,
    read_index,
)
from medlive.evidence.lexical import LexicalIndex, index_passages
from medlive.evidence.manifest import (
    MANIFEST,
    CorpusEntry,
    DenseEntry,
    FileEntry,
    IndexManifest,
    index_digest,
    read_manifest,
)
from medlive.evidence.passage import Passage
from medlive.evidence.plan import WORDS_ALONE, IndexPlan
from medlive.evidence.retriever import DenseSide
from medlive.evidence.store import LINES, PassageStore, store_passages
from medlive.evidence.vectors import VectorStore, keys_of
from medlive.integrity.digest import digest_file
from medlive.integrity.folder import sync
from medlive.integrity.log import Locked, exclusive

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
    problems: tuple[tuple[str, str], ...] = ()
    """The member and the cause of each."""
    embedded: int | None = None
    """When built: passages that had no vector of this encoder before; None without a dense side."""
    reused: int | None = None  # When built: passages that had one


Report = Callable[[Progress], None]


def build_index(
    corpora: Sequence[Corpus],
    out: Path,
    progress: Report = lambda _: None,
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
    if len(names) < len(corpora):
        raise UsageError(
            f"two corpora have the same name, of {', '.join(sorted(names))}",
            hint="put both into one folder, or build each with its --name",
        )
    with _locked(out):
        old = None if fresh else _existing_index(out, names)
        _remove_leftovers(out)
        with tempfile.TemporaryDirectory(
            prefix=_BUILDING, dir=out, ignore_cleanup_errors=True
        ) as folder:
            work, readings = Path(folder), []
            for number, corpus in enumerate(corpora):
                scratch = work / f"corpus-{number}.sqlite"
                readings.append(_read(corpus, scratch, progress))
            if old is not None and _is_current(old, readings, plan):
                manifest = old.manifest
                progress(Progress("unchanged", None, manifest.passages))
            else:
                manifest = _build(out, work, old, readings, plan, progress)
            return _with_reranker(out, manifest, plan)


_Reading = tuple[Corpus, Survey, ReadLog]


def _read(corpus: Corpus, scratch: Path, report: Report) -> _Reading:
    """Read a corpus once into a file, for the decisions about its passages."""
    survey, log = Survey(scratch), ReadLog()
    for passage in corpus.passages(log):
        survey.add(passage)
        if len(survey) % _EVERY == 0:
            report(Progress("reading", corpus.name, len(survey)))
    if not len(survey):
        first = "".join(f"; {member}: {cause}" for member, cause in log.problems[:1])
        raise BadInput(
            f"{corpus.path} has no passages ({log.problem_count} problems{first})"
        )
    for identity in survey.ambiguous_ids:
        log.problem(
            identity,
            "the source gives this id to different texts; each is kept under an id of its own",
        )
    report(Progress("read", corpus.name, len(survey), tuple(log.problems)))
    return corpus, survey, log


def _is_current(
    old: IndexFolder,
    readings: Sequence[_Reading],
    plan: IndexPlan,
) -> bool:
    """Whether a build would give the index that is there, and that one can be searched."""
    manifest = old.manifest
    for corpus, survey, _ in readings:
        fetched = corpus.fetched and corpus.fetched.digest
        if manifest.corpus_digests.get(corpus.name) != survey.digest:
            return False
        if manifest.fetched_digests.get(corpus.name) != fetched:
            return False
    planned = []
    for encoder, languages in plan.sides:
        if any(map(encoder.reads, manifest.languages)):
            planned.append((encoder.identity, languages))
    if planned != [(entry.encoder, entry.languages) for entry in manifest.dense]:
        return False
    encoders = {encoder.identity.digest: encoder for encoder, _ in plan.sides}
    try:
        old.open_words(old.open_store())
        for entry in manifest.dense:
            old.open_side(entry, encoders[entry.encoder.digest])
    except EvidenceUnavailable:
        return False
    return True


def _build(
    out: Path,
    work: Path,
    old: IndexFolder | None,
    readings: Sequence[_Reading],
    plan: IndexPlan,
    report: Report,
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
            report(Progress("indexing", passage.corpus, ordinal))
    dense = []
    reused = embedded = 0
    for number in range(len(plan.sides)):
        built = _build_side(out, data, number, plan, report)
        if built is not None:
            dense.append(built[0])
            reused += built[1]
            embedded += built[2]
    built_at = now()
    for corpus, survey, log in readings:
        corpora[corpus.name] = CorpusEntry(
            name=corpus.name,
            kind=corpus.reader.kind,
            digest=survey.digest,
            licence=corpus.licence,
            passages=counts[corpus.name],
            repeated=len(survey) - counts[corpus.name],
            problems=log.problem_count,
            built_at=built_at,
            fetched=corpus.fetched,
            **{name: getattr(log, name) for name in COUNTED},
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
    counted = (embedded, reused) if dense else (None, None)
    report(Progress("built", None, manifest.passages, (), *counted))
    return manifest


def _passages(
    old: IndexFolder | None,
    kept: set[str],
    readings: Sequence[_Reading],
) -> Iterator[Passage]:
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
    report: Report,
) -> tuple[DenseEntry, int, int] | None:
    """Embed what is new for one encoder, arrange all its vectors, and measure them.

    Args:
        out: The index's folder, which keeps the vectors.
        data: The data folder that is being built, with its words' side.
        number: Which of the sides of `plan`.
        plan: The encoders.
        report: Gets the progress.

    Returns:
        The side, how many of its passages had vectors, and how many were embedded; None where no passage is in the
        encoder's languages.
    """
    # It needs faiss, which an index of words does without.
    from medlive.evidence import dense

    encoder, languages = plan.sides[number]
    store, folder = PassageStore(data), f"{DENSE}/{number}"
    readable = [n for n, passage in enumerate(store) if encoder.reads(passage.language)]
    if not readable:
        return None
    vectors = VectorStore(out / VECTORS, encoder.identity)
    reused, embedded = vectors.embed_missing(
        map(store.get, readable),
        encoder,
        progress=lambda count: report(Progress("embedding", None, count)),
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
        queries=queries,
        progress=lambda count: report(Progress("arranging", None, count)),
    )
    side = DenseSide(encoder, dense.DenseIndex(data / folder, part), np.array(readable))
    np.save(data / folder / ORDINALS, side.ordinals)
    words = LexicalIndex(data / LEXICAL, store)
    entry = DenseEntry(
        encoder=encoder.identity,
        languages=languages,
        reason=plan.reason,
        folder=folder,
        part=part,
        weights=dense.measure_weights(store, words, side, languages),
    )
    return entry, reused, embedded


def _with_reranker(
    out: Path,
    manifest: IndexManifest,
    plan: IndexPlan,
) -> IndexManifest:
    """Measure the planned reranker, unless the manifest has it already."""
    reranker, known = plan.reranker, manifest.reranker
    if reranker is None or (known and known.digest == reranker.digest):
        return manifest
    from medlive.evidence.dense import measure_reranker

    encoders = {encoder.identity.name: encoder for encoder, _ in plan.sides}
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
        index.check()
        if index.manifest.corpus_digests.keys() - names:
            # Passages that are kept would get a fresh digest.
            index.check(digests=True, only=LINES)
    except IndexMissing:
        return None
    except (IndexCorrupt, IndexOutdated) as exc:
        missing = set[str]()
        with suppress(OSError, ValueError, LookupError, TypeError):
            manifest = json.loads((out / MANIFEST).read_bytes())
            missing = {entry["name"] for entry in manifest["corpora"]} - names
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
    sync(out)


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
        with exclusive(out / ".lock"), room_for(out):
            yield
    except Locked as exc:
        raise ServiceUnavailable(
            f"another process is building {out}", hint="wait until it has ended"
        ) from exc
