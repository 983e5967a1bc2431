"""`medlive evidence`: build an index over medical evidence, list it, search it, check it."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import fields
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from medlive.cli.evidence_fetch import fetch
from medlive.cli.evidence_index import (
    IndexOption,
    ModelsOption,
    Vectors,
    build_corpora,
    describe_reranker,
    describe_side,
    described,
    encoder_settings,
    index_folder,
)
from medlive.cli.options import Commands, read_settings
from medlive.cli.output import (
    Grid,
    Result,
    counted,
    fields_of,
    say,
    table_of,
    wait_for,
    with_instance,
)
from medlive.config import Settings
from medlive.db.session import Database
from medlive.errors import EvidenceUnavailable, UsageError
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders import folders
from medlive.evidence.encoders.opening import open_reranker
from medlive.evidence.index import list_indexes, open_index, verify_index
from medlive.evidence.manifest import read_manifest
from medlive.evidence.passage import Hit, Query
from medlive.instance.paths import index_path
from medlive.service.curation.parking import find_gaps
from medlive.service.wiring import open_online

app = Commands()

RetrieverOption = Annotated[
    Literal["bm25", "dense", "hybrid"] | None,
    Option("--retriever", help="Default: as configured or the index's."),
]


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
    if name is not None and len(corpora) > 1:
        raise UsageError(
            "--name is for one corpus",
            hint="build them one after the other, each with its name",
        )
    read_settings()  # They name the folder of plugins
    opened = [open_corpus(path, corpus_kind, name) for path in corpora]
    return build_corpora(opened, index_folder(index), vectors, fresh=fresh)


@app.command("list")
def list_() -> Result:
    """List the indexes under MEDLIVE_HOME."""
    value: list[dict[str, object]] = []
    rows: list[list[object]] = []
    for path, manifest, problem in list_indexes(index_path(read_settings()).parent):
        dumped = manifest and manifest.model_dump(mode="json", exclude={"files"})
        value.append({"path": path, "problem": problem, "manifest": dumped})
        facts: list[object] = [None] * 5
        if manifest is not None:
            sides = list(map(describe_side, manifest.dense))
            if manifest.reranker is not None:
                sides.append(describe_reranker(manifest.reranker))
            facts = [
                manifest.retriever,
                sides,
                manifest.passages,
                list(manifest.corpus_digests),
                manifest.built_at,
            ]
        rows.append([path, *facts, problem])
    columns = ["index", "retriever", "vectors", "passages", "corpora", "built"]
    return Result(value, [Grid([*columns, "problem"], rows)])


@app.command()
def search(
    phrases: Annotated[list[str], Argument(metavar="PHRASE...")],
    k: Annotated[int, Option("-k", min=1, max=100)] = 5,
    index: IndexOption = None,
    not_after: Annotated[datetime | None, Option(formats=["%Y-%m-%d"])] = None,
    retriever: RetrieverOption = None,
    rerank: str | None = None,
    models: ModelsOption = None,
    online: bool = False,
) -> Result:
    """Print the passages nearest to the phrases, with the rank and score that each side gives them.

    Args:
        phrases: What to look for; several are fused.
        k: How many passages.
        not_after: Latest day of publication.
        rerank: A cross-encoder, whatever was measured of it: an encoder that has one, a folder, or a name on the hub
            [the configured one, where it was measured to help].
        online: Ask the services of [evidence] online as well, as curation does.
    """
    day = not_after and not_after.date()
    if online:
        if index or retriever or rerank or models:
            raise UsageError(
                "--online searches as curation does, with the configured index and retriever",
                hint="leave out --index, --retriever, --rerank and --models",
            )
        hits = _search_online(phrases, k=k, day=day)
        return Result(list(map(_hit_as_json, hits)), [_hits_table(hits)])

    folder = index_folder(index)
    settings = encoder_settings(models)
    opened = open_index(
        folder,
        settings=settings,
        reranker=open_reranker(rerank, settings=settings) if rerank else None,
        retriever=retriever or read_settings().evidence.retriever,
    )
    query = Query(*phrases)
    (hits,) = wait_for(opened.search([query], k=k, not_after=day))
    manifest = read_manifest(folder)
    value = fields_of(opened.identity, ("retriever", "dense", "index_digest")) | {
        "reason": manifest.reason,
        "hits": list(map(_hit_as_json, hits)),
    }
    notes = [described(manifest, opened.identity.retriever)]
    by_words = [phrase for phrase in phrases if not opened.reads(phrase)]
    if opened.dense and by_words:
        quoted = ", ".join(map(repr, by_words))
        notes.append(f"searched by words alone, as no encoder reads it: {quoted}")
    return Result(value, [_hits_table(hits)], notes)


def _hit_as_json(hit: Hit) -> dict[str, object]:
    passage = hit.passage
    ranked = fields_of(hit, ("rank", "score")) | {"found_by": hit.sides}
    return ranked | fields_of(passage, [field.name for field in fields(passage)])


def _search_online(phrases: Sequence[str], *, k: int, day: date | None) -> list[Hit]:
    """Return what curation would find, with the answers that it has stored."""

    async def search_services(database: Database, settings: Settings) -> list[Hit]:
        retriever = open_online(settings, database)
        if retriever is None:
            raise UsageError(
                "no literature service is configured",
                hint='set [evidence] online = ["pubmed", "europepmc"]',
            )
        async with aclosing(retriever):
            (hits,) = await retriever.search([Query(*phrases)], k=k, not_after=day)
        return hits

    return with_instance(search_services)


def _hits_table(hits: Sequence[Hit]) -> Grid:
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
    folder = index_folder(index)
    manifest = verify_index(folder)
    files = counted(len(manifest.files), "file is as it was", "files are as they were")
    say(f"{folder}: {files} built, {manifest.index_digest}")


@app.command()
def models(
    names: Annotated[list[str] | None, Argument(metavar="[NAME...]")] = None,
    models: ModelsOption = None,
    download: bool = False,
    require: bool = False,
) -> Result:
    """Show which encoders are known, what they read, and whether they can be used here; --download fetches them.

    Args:
        names: Encoders, folders or names on the hub [every known one].
        download: Fetch the named encoders' models from the hub.
        require: Exit with status 3 unless each of them can be used.
    """
    settings = encoder_settings(models)
    if download and not names:
        raise UsageError(
            "--download needs the names of encoders",
            hint=f"{folders.DOWNLOAD} NAME; known are {', '.join(settings.table())}",
        )
    rows, problems = [], []
    for name in names or settings.table():
        model = settings.find(name)
        if download:
            for folder in folders.download_models(model, settings):
                say(f"downloaded {folder}")
        problem = folders.find_problem(model, settings)
        if problem:
            problems.append(f"{name}: {problem}")
        row = {
            "encoder": name,
            "models": model.names,
            "endpoint": model.base_url or None,
            "reads": list(model.languages) or ["every language"],
            "usable": problem is None,
            "problem": problem,
        }
        rows.append(row)
    failure = None
    if require and problems:
        failure = EvidenceUnavailable(
            "; ".join(problems), hint=f"{folders.DOWNLOAD} NAME fetches the models"
        )
    notes = []
    if packages := folders.missing_packages():
        notes.append(f"not installed: {', '.join(packages)} ({folders.INSTALL})")
    if len(problems) == len(rows):
        notes.append("without an encoder an index is searched by its words (bm25)")
    columns = ["encoder", "models", "reads", "usable", "problem"]
    return Result({"encoders": rows}, [table_of(rows, columns)], notes, failure)


app.command()(fetch)


@app.command()
def gaps() -> Result:
    """List diseases, drugs and procedures on which parked threads met no passage, most threads first.

    With what was searched for and the nearest passage. Terms are those of the code books; a search phrase
    without any is listed as it is.
    """
    found = with_instance(find_gaps)
    rows = []
    for gap in found:
        nearest = gap.nearest and f"{gap.nearest}\n{gap.nearest_title}"
        rows.append([gap.kind, gap.name, len(gap.threads), gap.searched, nearest])
    columns = ["kind", "subject", "parked threads", "searched for", "nearest passage"]
    note = "no thread is parked for want of evidence"
    if found:
        note = (
            "medlive evidence fetch and build add to the library; then curate --parked"
        )
    value = [gap.as_json() for gap in found]
    return Result(value, [Grid(columns, rows)], [note])
