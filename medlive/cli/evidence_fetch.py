"""`medlive evidence fetch`: download public corpora, check them, and add them to the index."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, get_args

from typer import Argument, Option

from medlive.errors import UsageError
from medlive.evidence.client import Client, FetchFailed
from medlive.evidence.corpora.model import Corpus, Fetched
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.fetch.fetching import (
    Fetch,
    corpus_path,
    make_plan,
    run_plan,
)
from medlive.evidence.fetch.sources import (
    SOURCES,
    ArticleType,
    Selection,
    Source,
    find_source,
)
from medlive.evidence.manifest import MANIFEST, read_manifest
from medlive.instance.loading import read_settings
from medlive.instance.paths import corpora_path

from .evidence import Building, build_corpora
from .options import DryRunOption
from .output import (
    Result,
    fields_of,
    list_result,
    progress,
    say,
    table_of,
    wait_for,
)

_SOURCE = (
    "name",
    "about",
    "typical_bytes",
    "checksums",
    "licence",
    "recommended",
)
_SHOWN = (
    "name",
    "listed",
    "to_fetch",
    "download_bytes",
    "fetched",
    "failures",
    "checksums",
    "licence",
)

Task = tuple[Source, Path, Selection]
"""A corpus to fetch, its folder, and what is chosen of it."""


def _read_types(text: str) -> Selection:
    """The articles of PubMed that are kept, by their types with commas between. Raises UsageError."""
    known = get_args(ArticleType)
    kept = {name.strip() for name in text.lower().split(",")}
    if unknown := sorted(kept.difference(known)):
        raise UsageError(f"--types {unknown[0]}: choose {' or '.join(known)}")
    return Selection.model_validate({"types": sorted(kept)})


def fetch(
    names: Annotated[list[str] | None, Argument(metavar="NAME...")] = None,
    list_: bool = False,
    dry_run: DryRunOption = False,
    no_build: bool = False,
    recommended: bool = False,
    types: Annotated[
        Selection | None, Option(parser=_read_types, metavar="TYPE,…")
    ] = None,
    *,
    building: Building,
) -> Result:
    """Download public corpora, or what is new of them, check every file, and add them to the index.

    Killed at any moment, the same command goes on where it was.

    Args:
        names: Corpora; --list names them.
        list_: List the corpora that can be fetched, and end.
        no_build: Do not add what was fetched to the index.
        recommended: The corpora that a first library needs.
        types: Of PubMed: guideline,systematic-review,meta-analysis,review,trial [all].
    """
    if list_:
        return list_result(SOURCES, _SOURCE, "address", "reader")
    tasks = _tasks(names or [], recommended, types)
    contact = read_settings().harvest.get("contact") or None
    fetches = [wait_for(_fetch(task, contact, dry_run)) for task in tasks]
    rows = []
    failures: list[str] = []
    for done in fetches:
        row = fields_of(done.source, ("name", "address", "licence", "checksums"))
        row |= fields_of(done.ledger, ("selection", "complete", "digest"))
        counts = ("listed", "download_bytes", "fetched", "fetched_bytes")
        row |= fields_of(done, (*counts, "absent", "gone", "removed", "failures"))
        rows.append(row | {"to_fetch": len(done.wanted)})
        failures += done.failures
    failure = None
    if failures:
        failure = FetchFailed(
            f"{failures[0]}; files that could not be fetched: {len(failures)}",
            hint="what was fetched is kept; run the same command again, and it fetches what is missing",
        )
    built = Result(None)
    is_built = not dry_run and not no_build
    if is_built and (corpora := _new_corpora(fetches, building.folder)):
        built = build_corpora(corpora, building, fresh=False)
    return Result(
        {"fetched": rows, "index": built.value},
        [table_of(rows, _SHOWN), *built.shown],
        built.notes,
        failure,
    )


def _tasks(
    names: list[str],
    recommended: bool,
    types: Selection | None,
) -> list[Task]:
    """The named corpora, and the recommended ones if asked for. Raises UsageError for options that do not fit."""
    if recommended:
        names = names + [source.name for source in SOURCES if source.recommended]
    if not names:
        raise UsageError(
            "name a corpus, or give --recommended", hint="medlive evidence fetch --list"
        )
    if types and "pubmed" not in names:
        raise UsageError("--types chooses among PubMed's articles", hint="add pubmed")
    settings = read_settings()
    folder = corpora_path(settings)
    tasks = []
    for name in dict.fromkeys(names):
        source = find_source(name, settings.evidence.mirrors.get(name))
        own = source.recommended if recommended else None
        if name == "pubmed":
            own = types or own
        tasks.append((source, folder / name, own or Selection()))
    return tasks


async def _fetch(task: Task, contact: str | None, dry_run: bool) -> Fetch:
    """Fetch a corpus, or with `dry_run` only see what that would do."""
    source = task[0]
    name = source.name
    async with Client(
        contact, source.hosts, source.pause_s, named=source.mirrored
    ) as client:
        plan = await make_plan(*task, client)
        files = f"{len(plan.wanted)} of {plan.listed} files"
        say(f"{name}: {files}, {plan.download_bytes / 1e6:,.1f} MB")
        if not dry_run:
            with progress(f"{name}, bytes") as tick:
                await run_plan(plan, client, tick)
    if plan.absent:
        say(f"{name}: listed files that do not exist: {len(plan.absent)}")
    return plan


def _new_corpora(fetches: list[Fetch], out: Path) -> list[Corpus]:
    """The fetched corpora that are complete, and are not in the index at `out` yet."""
    known: dict[str, str] = {}
    if (out / MANIFEST).exists():
        known = read_manifest(out).fetched_digests
    corpora = []
    for done in fetches:
        source, ledger = done.source, done.ledger
        name = source.name
        if done.failures:
            say(f"{name}: not added to the index, since files of it are missing")
        elif known.get(name) == ledger.digest:
            say(f"{name}: the index has it as it is")
        else:
            fetched = Fetched(
                address=ledger.address,
                fetched_at=ledger.fetched_at,
                files=len(ledger.files),
                digest=ledger.digest,
                selection=ledger.selection.model_dump_json(),
            )
            path = corpus_path(source, done.folder, ledger)
            corpus = open_corpus(path, source.reader, name)
            corpora.append(replace(corpus, licence=source.licence, fetched=fetched))
    return corpora
