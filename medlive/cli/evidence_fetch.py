"""`medlive evidence fetch`: download public corpora, check them, and add them to the index."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from medlive.cli.evidence_index import IndexOption, Vectors, build_corpora, index_folder
from medlive.cli.options import DryRunOption, one_of, read_settings
from medlive.cli.output import Result, fields_of, progress, say, table_of, wait_for
from medlive.errors import UsageError

if TYPE_CHECKING:
    from medlive.evidence.client import Client, FetchFailed
    from medlive.evidence.corpora.model import Corpus
    from medlive.evidence.fetch.fetching import Outcome, Plan
    from medlive.evidence.fetch.ledger import Ledger
    from medlive.evidence.fetch.model import Selection, Source

_RATE = 5_000_000
"""Bytes a second that --dry-run reckons with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which articles of PubMed are kept.

    Attributes:
        types: Of PubMed: guideline,systematic-review,meta-analysis,review,trial [all].
        since: Of PubMed: published on this day or later.
        language: Of PubMed: languages as it writes them, as in eng,chi.
    """

    types: str | None = None
    since: Annotated[datetime | None, Option(formats=["%Y-%m-%d"])] = None
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How files are fetched.

    Attributes:
        to: Folder of the corpora; default: corpora/ under MEDLIVE_HOME.
        contact: E-mail or web address for the User-Agent [that of the harvest].
    """

    to: Path | None = None
    contact: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    source: "Source"
    folder: Path
    selection: "Selection"
    contact: str | None

    def client(self) -> "Client":
        from medlive.evidence.client import Client

        source = self.source
        named = source.mirrored
        return Client(self.contact, source.hosts, source.pause_s, named=named)


def fetch(
    names: Annotated[list[str] | None, Argument(metavar="NAME...")] = None,
    recommended: bool = False,
    list_: bool = False,
    dry_run: DryRunOption = False,
    no_build: bool = False,
    index: IndexOption = None,
    *,
    chosen: Chosen,
    manner: Manner,
    vectors: Vectors,
) -> Result:
    """Download public corpora, or what is new of them, check every file, and add them to the index.

    Killed at any moment, the same command goes on where it was.

    Args:
        names: Corpora; --list names them.
        recommended: The corpora that a first library needs.
        list_: List the corpora that can be fetched, and end.
        no_build: Do not add what was fetched to the index.
    """
    if list_:
        return _list_sources()
    tasks = _tasks(names or [], recommended, chosen, manner)
    if dry_run:
        return _describe_plans(tasks)
    outcomes = [wait_for(_fetch(task)) for task in tasks]
    fetched = list(map(_outcome_as_json, outcomes))
    built = Result(None)
    folder = index_folder(index)
    if not no_build and (corpora := _new_corpora(tasks, outcomes, folder)):
        built = build_corpora(corpora, folder, vectors, fresh=False)
    return Result(
        {"fetched": fetched, "index": built.value},
        [table_of(fetched, _OUTCOME), *built.shown],
        built.notes,
        _failure(outcomes),
    )


def _failure(outcomes: "list[Outcome]") -> "FetchFailed | None":
    from medlive.evidence.client import FetchFailed

    failures = [failure for outcome in outcomes for failure in outcome.failures]
    if not failures:
        return None
    more = f"; and {len(failures) - 1} more, listed above" if len(failures) > 1 else ""
    hint = "what was fetched is kept; run the same command again, and it fetches what is missing"
    return FetchFailed(f"{failures[0]}{more}", hint=hint)


def _tasks(
    names: list[str], recommended: bool, chosen: Chosen, manner: Manner
) -> list[_Task]:
    from medlive.evidence.fetch.model import Selection
    from medlive.evidence.fetch.registry import SOURCES, find_source
    from medlive.instance.paths import corpora_path

    if recommended:
        names = names + [source.name for source in SOURCES if source.recommended]
    if not names:
        raise UsageError(
            "name a corpus, or give --recommended", hint="medlive evidence fetch --list"
        )
    selection = _selection(chosen)
    if not selection.everything and "pubmed" not in names:
        raise UsageError(
            "--types, --since and --language choose among PubMed's articles",
            hint="add pubmed",
        )
    settings = read_settings()
    folder = manner.to or corpora_path(settings)
    contact = manner.contact or settings.harvest.get("contact")
    tasks = []
    for name in dict.fromkeys(names):
        source = find_source(name, settings.evidence.mirrors.get(name))
        usual = source.recommended if recommended else None
        is_chosen = name == "pubmed" and not selection.everything
        task = _Task(
            source=source,
            folder=folder / name,
            selection=selection if is_chosen else usual or Selection(),
            contact=str(contact) if contact else None,
        )
        tasks.append(task)
    return tasks


def _selection(chosen: Chosen) -> "Selection":
    from medlive.evidence.fetch.model import ArticleType, Selection

    types = [one_of("--types", ArticleType, text) for text in _parts(chosen.types)]
    languages = _parts(chosen.language)
    for language in languages:
        if len(language) != 3 or not language.isalpha():
            raise UsageError(
                f"--language {language}: expected three letters as PubMed writes them, as in eng"
            )
    return Selection(
        types=tuple(sorted(set(types))),
        since=chosen.since.date() if chosen.since else None,
        languages=tuple(sorted(set(languages))),
    )


def _parts(text: str | None) -> list[str]:
    return [part.strip().lower() for part in (text or "").split(",") if part.strip()]


async def _fetch(task: _Task) -> "Outcome":
    from medlive.evidence.fetch.fetching import make_plan, run_plan

    name = task.source.name
    async with task.client() as client:
        plan = await make_plan(task.source, task.folder, task.selection, client)
        size = _size(plan.download_bytes)
        say(f"{name}: {len(plan.wanted)} of {plan.listed} files to fetch, {size}")
        with progress(f"{name}, bytes") as tick:
            outcome = await run_plan(plan, client, tick)
    for failure in outcome.failures:
        say(f"{name}: {failure}")
    if absent := outcome.absent:
        say(f"{name}: {len(absent)} listed files do not exist, {absent[0]} first")
    return outcome


def _new_corpora(
    tasks: list[_Task], outcomes: "list[Outcome]", out: Path
) -> "list[Corpus]":
    """What is complete and not in the index yet."""
    from medlive.evidence.manifest import MANIFEST, read_manifest

    known: dict[str, str] = {}
    if (out / MANIFEST).exists():
        known = read_manifest(out).fetched_digests
    corpora = []
    for task, outcome in zip(tasks, outcomes, strict=True):
        name = task.source.name
        if outcome.failures:
            say(f"{name}: not added to the index, since files of it are missing")
        elif known.get(name) == outcome.ledger.digest:
            say(f"{name}: the index has it as it is")
        else:
            corpora.append(_corpus(task, outcome.ledger))
    return corpora


def _corpus(task: _Task, ledger: "Ledger") -> "Corpus":
    from medlive.evidence.corpora.model import Fetched
    from medlive.evidence.corpora.registry import open_corpus
    from medlive.evidence.fetch.fetching import corpus_path

    path = corpus_path(task.source, task.folder, ledger)
    fetched = Fetched(
        address=ledger.address,
        fetched_at=ledger.fetched_at,
        files=len(ledger.files),
        digest=ledger.digest,
        selection=ledger.selection.model_dump_json(),
    )
    corpus = open_corpus(path, task.source.reader, task.source.name)
    return replace(corpus, licence=task.source.licence, fetched=fetched)


_SOURCE = ("name", "about", "bytes", "checksums", "licence", "recommended")


def _list_sources() -> Result:
    from medlive.evidence.fetch.registry import SOURCES

    rows = []
    for source in SOURCES:
        named = ("name", "about", "address", "reader", "licence", "checksums")
        row = fields_of(source, named) | {
            "bytes": source.typical_bytes,
            "recommended": source.recommended is not None,
        }
        rows.append(row)
    return Result(rows, [table_of(rows, _SOURCE)])


_PLAN = (
    "name",
    "to_fetch",
    "listed",
    "bytes",
    "seconds",
    "index_bytes",
    "checksums",
    "licence",
)


async def _plan(task: _Task) -> "Plan":
    from medlive.evidence.fetch.fetching import make_plan

    async with task.client() as client:
        return await make_plan(task.source, task.folder, task.selection, client)


def _describe_plans(tasks: list[_Task]) -> Result:
    rows = []
    download = index = 0
    seconds = 0.0
    for task in tasks:
        plan = wait_for(_plan(task))
        download += plan.download_bytes
        index += plan.index_bytes
        seconds += plan.seconds(_RATE)
        row = fields_of(plan.source, ("name", "address", "licence", "checksums")) | {
            "selection": plan.selection.model_dump(mode="json"),
            "listed": plan.listed,
            "to_fetch": len(plan.wanted),
            "no_longer_listed": len(plan.gone),
            "bytes": plan.download_bytes,
            "seconds": round(plan.seconds(_RATE)),
            "index_bytes": plan.index_bytes,
            "folder": plan.folder,
        }
        rows.append(row)
    title = (
        f"{_size(download)} in about {seconds / 3600:.1f} hours at {_RATE / 1e6:g} MB/s; on disk at most"
        f" {_size(download)}, and about {_size(index)} for the index of words"
    )
    return Result(rows, [table_of(rows, _PLAN, title)])


_OUTCOME = ("name", "fetched", "bytes", "files", "unchanged", "removed", "failures")


def _outcome_as_json(outcome: "Outcome") -> dict[str, object]:
    ledger = outcome.ledger
    counted = ("fetched", "unchanged", "absent", "removed", "failures")
    return fields_of(outcome, counted) | {
        "name": ledger.source,
        "files": len(ledger.files),
        "bytes": outcome.fetched_bytes,
        "complete": ledger.complete,
        "digest": ledger.digest,
    }


def _size(count: int) -> str:
    number = float(count)
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
