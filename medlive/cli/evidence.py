"""`medlive evidence`: build an index over medical evidence, list it, search it, check it, measure it."""

import platform
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from medlive.cli.evidence_fetch import fetch
from medlive.cli.evidence_gaps import gaps
from medlive.cli.evidence_index import (
    EncoderOption,
    IndexOption,
    ModelsOption,
    Vectors,
    build_corpora,
    described,
    encoder_settings,
    index_folder,
    recall_of,
)
from medlive.cli.options import Commands, read_settings
from medlive.cli.output import (
    Grid,
    Result,
    fields_of,
    say,
    wait_for,
    with_instance,
)
from medlive.errors import EvidenceUnavailable, UsageError

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.db.session import Database
    from medlive.evidence.measure import KnownItem
    from medlive.evidence.passage import Hit
    from medlive.evidence.passage import Retriever as Searcher

app = Commands()

Retriever = Literal["bm25", "dense", "hybrid"]
RetrieverOption = Annotated[
    Retriever | None,
    Option("--retriever", help="Default: as configured or the index's."),
]

DEPTHS = (1, 5, 32)
K = 32


@app.command()
def build(
    corpora: list[Path],
    index: IndexOption = None,
    corpus_kind: str | None = None,
    name: str | None = None,
    *,
    vectors: Vectors,
    fresh: bool = False,
) -> Result:
    """Read evidence and index it; corpora of other names stay, one of the same name is replaced.

    Args:
        corpora: Archives, files or folders; docs/evidence.md lists the kinds.
        corpus_kind: The corpora's kind [recognised].
        name: The corpus's name [its own].
        fresh: Forget corpora that the index already holds.
    """
    from medlive.evidence.corpora.registry import open_corpus

    if name is not None and len(corpora) > 1:
        raise UsageError(
            "--name is for one corpus",
            hint="build them one after the other, each with its name",
        )
    opened = [open_corpus(path, corpus_kind, name) for path in corpora]
    built = build_corpora(opened, index_folder(index), vectors, fresh=fresh)
    return built.result()


@app.command("list")
def list_() -> Result:
    """List the indexes under MEDLIVE_HOME."""
    from medlive.evidence.open_index import list_indexes
    from medlive.service.paths import index_path

    value: list[dict[str, object]] = []
    rows: list[list[object]] = []
    for path, found in list_indexes(index_path(read_settings()).parent):
        if isinstance(found, str):
            value.append({"path": path, "problem": found, "manifest": None})
            rows.append([path, *[None] * 7, found])
            continue
        manifest = found.model_dump(mode="json", exclude={"files"})
        value.append({"path": path, "problem": None, "manifest": manifest})
        row: list[object] = [
            path,
            found.retriever,
            found.encoder and f"{found.encoder.name} {found.encoder.digest[7:19]}",
            found.dense and found.dense.kind.value,
            recall_of(found),
            found.passages,
            list(found.corpus_digests),
            found.built_at,
            None,
        ]
        rows.append(row)
    columns = [
        "index",
        "retriever",
        "encoder",
        "kind",
        "recall",
        "passages",
        "corpora",
        "built",
        "problem",
    ]
    return Result(value, [Grid(columns, rows)])


@app.command()
def search(
    phrases: Annotated[list[str], Argument(metavar="PHRASE...")],
    k: Annotated[int, Option("-k", min=1, max=100)] = 5,
    index: IndexOption = None,
    corpus: list[str] | None = None,
    not_after: Annotated[datetime | None, Option(formats=["%Y-%m-%d"])] = None,
    retriever: RetrieverOption = None,
    encoder: EncoderOption = None,
    rerank: str | None = None,
    models: ModelsOption = None,
    online: bool = False,
) -> Result:
    """Print the passages nearest to the phrases, with the rank and score that each side gives them.

    Args:
        phrases: What to look for; several are fused.
        k: How many passages.
        corpus: Only passages of this corpus; may be repeated.
        not_after: Latest day of publication.
        rerank: A cross-encoder, "medcpt" or its folder [as configured].
        online: Ask the services of [evidence] online as well, as curation does.
    """
    day = not_after and not_after.date()
    if online:
        hits = _search_online(phrases, k=k, day=day, corpora=corpus)
        return Result(list(map(_hit_as_json, hits)), [_hits_table(hits)])
    from medlive.evidence.manifest import read_manifest
    from medlive.evidence.open_index import open_index
    from medlive.evidence.passage import Query

    folder = index_folder(index)
    configured = read_settings().evidence
    opened = open_index(
        folder,
        settings=encoder_settings(models),
        encoder=encoder,
        reranker=rerank or configured.reranker,
        retriever=retriever or configured.retriever,
    )
    (hits,) = wait_for(
        opened.search([Query(*phrases)], k=k, not_after=day, corpora=corpus)
    )
    manifest = read_manifest(folder)
    value = fields_of(opened.identity, ("retriever", "dense", "index_digest")) | {
        "reason": manifest.reason,
        "hits": list(map(_hit_as_json, hits)),
    }
    notes = [described(manifest, opened.identity.retriever)]
    if opened.dense is not None and not all(map(opened.dense.reads, phrases)):
        name = opened.dense.encoder.identity.name
        notes.append(
            f"searched by words alone where not English: {name} reads nothing else"
        )
    return Result(value, [_hits_table(hits)], notes)


def _hit_as_json(hit: "Hit") -> dict[str, object]:
    found_by = list(map(asdict, hit.sides))
    return {
        "rank": hit.rank,
        "score": hit.score,
        "found_by": found_by,
        **asdict(hit.passage),
    }


def _search_online(
    phrases: Sequence[str], *, k: int, day: date | None, corpora: Sequence[str] | None
) -> "list[Hit]":
    """Return what curation would find, with the answers that it has stored."""
    from medlive.evidence.passage import Query
    from medlive.service.wiring import open_online

    async def search_services(
        database: "Database", settings: "Settings"
    ) -> "list[Hit]":
        retriever = open_online(settings, database)
        if retriever is None:
            raise UsageError(
                "no literature service is configured",
                hint='set [evidence] online = ["pubmed", "europepmc"]',
            )
        async with aclosing(retriever):
            (hits,) = await retriever.search(
                [Query(*phrases)], k=k, not_after=day, corpora=corpora
            )
        return hits

    return with_instance(search_services)


def _hits_table(hits: "Sequence[Hit]") -> Grid:
    rows = []
    for hit in hits:
        sides = [f"{side.side} {side.rank} ({side.score:g})" for side in hit.sides]
        passage = hit.passage
        text = passage.text[:300]
        row = [hit.rank, hit.score, sides, passage.id, passage.title]
        rows.append([*row, passage.published, text])
    columns = ["rank", "score", "found by", "passage", "title", "published", "text"]
    return Grid(columns, rows)


@app.command()
def verify(index: IndexOption = None) -> None:
    """Compare every file of the index with its manifest; the exit status is 3 when one differs."""
    from medlive.evidence.open_index import verify_index

    folder = index_folder(index)
    manifest = verify_index(folder)
    say(
        f"{folder}: {len(manifest.files)} files are as they were built, {manifest.index_digest}"
    )


@app.command()
def models(
    models: ModelsOption = None,
    download: bool = False,
    require: bool = False,
) -> Result:
    """Show which models MedCPT needs, where they were looked for and what was found; --download fetches them.

    Args:
        download: Fetch MedCPT's three models (1.3 GB).
        require: Exit with status 3 unless MedCPT can be used.
    """
    from medlive.evidence.encoders import folders

    settings = encoder_settings(models)
    if download:
        for folder in folders.download_models(settings):
            say(f"downloaded {folder}")
    found = folders.find_models(settings)
    problem, packages = folders.missing_models(found), folders.missing_packages()
    rows, listed = [], []
    for looked in found:
        role, model = looked.role, looked.model
        places = []
        for place in looked.places:
            names = ("origin", "folder", "state", "problem")
            places.append(fields_of(place, names))
            row = [role.repository, role.purpose, place.folder, place.state]
            rows.append([*row, place.problem])
        listed.append(
            {
                "role": role,
                "repository": role.repository,
                "purpose": role.purpose,
                "folder": model and model.folder,
                "digest": model and model.digest,
                "dimension": model and model.dimension,
                "places": places,
            }
        )
    value = {
        "usable": problem is None,
        "lacking": problem,
        "missing_packages": packages,
        "models": listed,
    }
    notes = []
    if packages:
        notes.append(f"not installed: {', '.join(packages)} ({folders.INSTALL})")
    failure = None
    if problem is None:
        notes.append(
            "MedCPT can be used: medlive evidence build CORPUS... --encoder medcpt"
        )
    else:
        notes.append(f"{problem}. Without it an index is searched by bm25 only")
        if require:
            hint = "medlive evidence models --download fetches the models"
            failure = EvidenceUnavailable(problem, hint=hint)
    columns = ["model", "for", "looked at", "state", "problem"]
    return Result(value, [Grid(columns, rows)], notes, failure)


@app.command()
def bench(
    index: IndexOption = None,
    queries: Annotated[int, Option(min=10, max=10_000)] = 200,
    encoder: EncoderOption = None,
    models: ModelsOption = None,
) -> Result:
    """Measure the index: known-item recall with intervals, latency, and the dense side against exact search.

    Args:
        queries: Passages to look for.
    """
    from medlive.clock import now
    from medlive.evidence.build import vectors_of
    from medlive.evidence.manifest import read_manifest
    from medlive.evidence.measure import dense_recall, known_items
    from medlive.evidence.open_index import open_index, open_store

    folder = index_folder(index)
    manifest = read_manifest(folder)
    items = known_items(open_store(folder, manifest), queries)
    if not items:
        hint = "the questions are made of words between spaces: an index over Chinese alone cannot be measured"
        raise UsageError(
            f"no passage of {folder} begins with a sentence of 8 words or more",
            hint=hint,
        )
    names: tuple[Retriever, ...] = (
        ("bm25",) if manifest.dense is None else ("bm25", "dense", "hybrid")
    )
    if manifest.dense is None:
        say(f"bm25 only: {manifest.reason}")
    opening = partial(
        open_index, folder, settings=encoder_settings(models), encoder=encoder
    )
    rows = []
    for name in names:
        rows.append({"retriever": name} | _measured(opening(retriever=name), items))
        say(f"{name}: done")
    result = {
        "measured_at": now().isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "index_digest": manifest.index_digest,
        "corpora": manifest.corpus_digests,
        "passages": manifest.passages,
        "encoder": manifest.encoder
        and f"{manifest.encoder.name} {manifest.encoder.digest}",
        "kind": manifest.dense and manifest.dense.kind.value,
        "queries": len(items),
        "made_of": "every second word of a passage's first sentence; the passage stays in the index",
        "retrievers": rows,
    }
    notes = []
    if manifest.dense is not None:
        opened = opening(retriever="dense")
        assert opened.dense is not None
        vectors, texts = vectors_of(folder, manifest), [item.query for item in items]
        store = open_store(folder, manifest)
        shares = dense_recall(opened.dense, vectors, store, texts, K)
        recall = mean_and_interval(shares)
        result["dense_against_exact"] = recall
        notes.append(f"dense side against exact search: recall@{K} {_shown(recall)}")
    title = f"{len(items)} known items among {manifest.passages} passages: {result['made_of']}"
    cells = []
    for row in rows:
        recalls = [_shown(row[f"recall@{depth}"]) for depth in DEPTHS]
        times = [row["p50_ms"], row["p95_ms"], row["batch_ms"]]
        cells.append([row["retriever"], *recalls, *times])
    recall_columns = [f"recall@{depth}" for depth in DEPTHS]
    columns = ["retriever", *recall_columns, "p50 ms", "p95 ms", "batch, ms a query"]
    return Result(result, [Grid(columns, cells, title)], notes)


def _measured(retriever: "Searcher", items: "Sequence[KnownItem]") -> dict[str, Any]:
    import numpy as np

    from medlive.evidence.measure import timed_search

    queries = [item.query for item in items]
    ranked, seconds, batch = wait_for(timed_search(retriever, queries, K))
    row: dict[str, Any] = {}
    for depth in DEPTHS:
        hits = []
        for item, found in zip(items, ranked, strict=True):
            hits.append(float(item.passage in found[:depth]))
        row[f"recall@{depth}"] = mean_and_interval(hits)
    half, most = np.percentile(np.array(seconds) * 1000, [50, 95])
    row |= {"p50_ms": float(half), "p95_ms": float(most), "batch_ms": batch * 1000}
    return row


def mean_and_interval(values: Sequence[float]) -> dict[str, float]:
    """The mean over queries and its 95 % interval, by the bootstrap over queries (1,000 draws, seed 0)."""
    import numpy as np

    from medlive.statistics.bootstrap import bootstrap_means, interval

    column = np.array(values, dtype=np.float64)[:, None]
    low, high = interval(bootstrap_means(column)[:, 0]) or (float("nan"), float("nan"))
    return {"mean": float(column.mean()), "low": low, "high": high}


def _shown(measure: dict[str, float]) -> str:
    return f"{measure['mean']:.3f} ({measure['low']:.3f} to {measure['high']:.3f})"


app.command()(fetch)
app.command()(gaps)
