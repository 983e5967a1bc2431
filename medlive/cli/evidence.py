"""`medlive evidence`: build an index over medical evidence, list it, search it, check it."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
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
from medlive.cli.options import JsonOption, grouped, read_settings
from medlive.cli.output import (
    attributes,
    print_result,
    print_table,
    say,
    wait_for,
    with_database,
)
from medlive.errors import EvidenceUnavailable, UsageError

if TYPE_CHECKING:
    from medlive.config import Settings
    from medlive.db.session import Database
    from medlive.evidence.passage import Hit

app = typer.Typer(no_args_is_help=True)

Retriever = Literal["bm25", "dense", "hybrid"]
RetrieverOption = Annotated[
    Retriever | None,
    Option("--retriever", help="Default: as configured or the index's."),
]


@app.command()
@grouped
def build(
    corpora: Annotated[
        list[Path],
        Argument(help="Archives, files or folders; docs/evidence.md lists the kinds."),
    ],
    index: IndexOption = None,
    corpus_kind: Annotated[
        str | None, Option(help="The corpora's kind [recognised].")
    ] = None,
    name: Annotated[str | None, Option(help="The corpus's name [its own].")] = None,
    *,
    vectors: Vectors,
    fresh: Annotated[
        bool, Option("--fresh", help="Forget corpora that the index already holds.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Read evidence and index it; corpora of other names stay, one of the same name is replaced."""
    from medlive.evidence.corpora.registry import open_corpus

    if name is not None and len(corpora) > 1:
        raise UsageError(
            "--name is for one corpus",
            hint="build them one after the other, each with its name",
        )
    opened = [open_corpus(path, corpus_kind, name) for path in corpora]
    built = build_corpora(opened, index_folder(index), vectors, fresh=fresh)
    print_result(built.as_json(), as_json, built.show)


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the indexes under MEDLIVE_HOME."""
    from medlive.evidence.open_index import list_indexes
    from medlive.service.paths import index_path

    value: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for path, found in list_indexes(index_path(read_settings()).parent):
        if isinstance(found, str):
            value.append({"path": path, "problem": found, "manifest": None})
            rows.append([path, *[None] * 7, found])
            continue
        value.append(
            {
                "path": path,
                "problem": None,
                "manifest": found.model_dump(mode="json", exclude={"files"}),
            }
        )
        rows.append(
            [
                path,
                found.retriever,
                found.encoder and f"{found.encoder.name} {found.encoder.digest[7:19]}",
                found.dense and found.dense.kind.value,
                recall_of(found),
                found.passages,
                ", ".join(found.corpus_digests),
                f"{found.built_at:%Y-%m-%d %H:%M}",
                None,
            ]
        )
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
    print_result(value, as_json, lambda: print_table(columns, rows))


@app.command()
def search(
    phrases: Annotated[
        list[str],
        Argument(metavar="PHRASE...", help="What to look for; several are fused."),
    ],
    k: Annotated[int, Option("-k", min=1, max=100, help="How many passages.")] = 5,
    index: IndexOption = None,
    not_after: Annotated[
        datetime | None, Option(formats=["%Y-%m-%d"], help="Latest day of publication.")
    ] = None,
    retriever: RetrieverOption = None,
    encoder: EncoderOption = None,
    rerank: Annotated[
        str | None,
        Option(help='A cross-encoder, "medcpt" or its folder [as configured].'),
    ] = None,
    models: ModelsOption = None,
    online: Annotated[
        bool,
        Option(
            "--online",
            help="Ask the services of [evidence] online as well, as curation does.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the passages nearest to the phrases, with the rank and score that each side gives them."""
    if online:
        hits = _search_online(phrases, k=k, day=not_after and not_after.date())
        print_result(
            [_hit_as_json(hit) for hit in hits], as_json, lambda: _print_hits(hits)
        )
        return
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
    day = not_after and not_after.date()
    (hits,) = wait_for(opened.search([Query(*phrases)], k=k, not_after=day))
    manifest = read_manifest(folder)
    value = attributes(opened.identity, "retriever dense index_digest") | {
        "reason": manifest.reason
    }
    value["hits"] = [_hit_as_json(hit) for hit in hits]
    notes = [described(manifest, opened.identity.retriever)]
    if opened.dense is not None and not all(map(opened.dense.reads, phrases)):
        name = opened.dense.encoder.identity.name
        notes.append(
            f"searched by words alone where not English: {name} reads nothing else"
        )
    print_result(
        value, as_json, lambda: _print_hits(hits), notes=() if as_json else notes
    )


def _hit_as_json(hit: "Hit") -> dict[str, Any]:
    found_by = [asdict(side) for side in hit.sides]
    return {
        "rank": hit.rank,
        "score": hit.score,
        "found_by": found_by,
        **asdict(hit.passage),
    }


def _search_online(phrases: Sequence[str], *, k: int, day: date | None) -> "list[Hit]":
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
            (hits,) = await retriever.search([Query(*phrases)], k=k, not_after=day)
        return hits

    return with_database(search_services)


def _print_hits(hits: "Sequence[Hit]") -> None:
    print_table(
        ["rank", "score", "found by", "passage", "title", "published", "text"],
        [
            [
                h.rank,
                round(h.score, 4),
                "\n".join(f"{s.side} {s.rank} ({s.score:g})" for s in h.sides),
                h.passage.id,
                h.passage.title,
                h.passage.published,
                h.passage.text[:300],
            ]
            for h in hits
        ],
    )


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
    download: Annotated[
        bool, Option("--download", help="Fetch MedCPT's three models (1.3 GB).")
    ] = False,
    require: Annotated[
        bool, Option("--require", help="Exit with status 3 unless MedCPT can be used.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which models MedCPT needs, where they were looked for and what was found; --download fetches them."""
    from medlive.evidence.encoders import folders

    settings = encoder_settings(models)
    if download:
        for folder in folders.download_models(settings):
            say(f"downloaded {folder}")
    found = folders.find_models(settings)
    problem, packages = folders.missing_models(found), folders.missing_packages()
    rows = [(f.role, f.model and f.model.folder, f.problem) for f in found]
    value = {
        "usable": problem is None,
        "lacking": problem,
        "missing_packages": packages,
        "models": [
            {
                "role": role.value,
                "repository": role.repository,
                "purpose": role.purpose,
                "folder": folder,
                "problem": fault or None,
            }
            for role, folder, fault in rows
        ],
    }

    def show() -> None:
        print_table(
            ["model", "for", "folder", "problem"],
            [[role.repository, role.purpose, *row] for role, *row in rows],
        )
        if packages:
            say(f"not installed: {', '.join(packages)} ({folders.INSTALL})")
        if problem is None:
            say("MedCPT can be used: medlive evidence build CORPUS... --encoder medcpt")
        else:
            say(f"{problem}. Without it an index is searched by bm25 only")

    failure = None
    if require and problem is not None:
        failure = EvidenceUnavailable(
            problem, hint="medlive evidence models --download fetches the models"
        )
    print_result(value, as_json, show, failure=failure)


app.command()(grouped(fetch))
app.command()(gaps)
