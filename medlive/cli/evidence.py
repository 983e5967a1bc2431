"""`medlive evidence`: build an index over medical evidence, list it, search it, check it."""

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from medlive.config import Settings
from medlive.db.session import Database
from medlive.errors import UsageError
from medlive.evidence.build import build_index
from medlive.evidence.corpora.model import Corpus
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.encoders import folders
from medlive.evidence.index import open_index, verify_index
from medlive.evidence.manifest import IndexManifest, RerankerEntry, read_manifest
from medlive.evidence.passage import Hit, Phrases
from medlive.evidence.plan import plan_index
from medlive.instance.loading import read_settings
from medlive.instance.paths import encoder_settings, index_path
from medlive.service.curation.parking import find_gaps
from medlive.service.wiring import open_online

from .options import option_group
from .output import (
    Grid,
    Result,
    progress,
    say,
    table_of,
    wait_for,
    with_instance,
)

IndexOption = Annotated[
    Path | None,
    Option("--index", help="The index's folder; default: under MEDLIVE_HOME."),
]


@option_group
class Building:
    """Where an index is built, and how its passages become vectors.

    Attributes:
        encoder: "none", or encoders, each for the languages it reads: a name of docs/evidence.md's table, a folder, a
            name on the hub [as configured, else the index's own, else the installed ones].
    """

    index: IndexOption = None
    encoder: list[str] | None = None

    @property
    def folder(self) -> Path:
        """The index's folder."""
        return index_folder(self.index)


def build_corpora(
    corpora: Sequence[Corpus], building: Building, *, fresh: bool
) -> Result:
    """Build or extend an index, with progress on stderr, and describe it.

    Args:
        corpora: The corpora to read; corpora of other names in the index stay.
        building: The index, and how passages become vectors.
        fresh: Whether corpora that the index already holds are dropped.

    Raises as `plan_index` and `build_index` do.
    """
    out, settings = building.folder, encoder_settings(read_settings())
    plan = plan_index(out, building.encoder or (), settings)
    searches = "bm25 and vectors" if plan.sides else "bm25 without vectors"
    say(f"{searches} ({plan.reason})")
    notes: list[str] = []
    with progress("passages") as tick:
        manifest = build_index(corpora, out, tick, notes.append, fresh=fresh, plan=plan)
    return describe_index(out, manifest, [*notes, f"built {out}"])


def describe_index(folder: Path, manifest: IndexManifest, notes: list[str]) -> Result:
    """The corpora of an index, and what searches it."""
    names = ("name", "kind", "documents", "passages", "problems", "licence")
    title = f"{manifest.passages} passages, {manifest.describe()}, {manifest.index_digest[:19]}…"
    if manifest.reranker is not None:
        notes.append(describe_reranker(manifest.reranker))
    value = {"path": folder, **manifest.model_dump(mode="json", exclude={"files"})}
    return Result(value, [table_of(manifest.corpora, names, title)], notes)


def describe_reranker(entry: RerankerEntry) -> str:
    """Return in a line whether a reranker is used, and what was measured of it."""
    state = "used" if entry.helps else "not used"
    return (
        f"reranker {entry.where} is {state}: it finds {entry.items} known items at {entry.after:.3f},"
        f" without it they are at {entry.before:.3f} (mean reciprocal rank)"
    )


def index_folder(folder: Path | None) -> Path:
    """The folder that was given, or the one under MEDLIVE_HOME."""
    return folder or index_path(read_settings())


def build(
    corpora: list[Path],
    name: str | None = None,
    *,
    building: Building,
    fresh: bool = False,
) -> Result:
    """Read evidence and index it; corpora of other names stay, one of the same name is replaced.

    Args:
        corpora: Archives, files or folders; docs/evidence.md lists the kinds.
        name: The corpus's name [its own].
        fresh: Forget corpora that the index already holds.
    """
    read_settings()  # Also tells where plugins are
    opened = [open_corpus(path, name=name) for path in corpora]
    return build_corpora(opened, building, fresh=fresh)


def list_(index: IndexOption = None) -> Result:
    """List the corpora of the index, and say what searches it."""
    folder = index_folder(index)
    return describe_index(folder, read_manifest(folder), [])


def search(
    phrases: Annotated[list[str], Argument(metavar="PHRASE...")],
    k: Annotated[int, Option("-k", min=1, max=100)] = 5,
    index: IndexOption = None,
    online: bool = False,
) -> Result:
    """Print the passages nearest to the phrases, with the rank and score from each kind of search that finds them.

    Args:
        phrases: What to look for; the results of several phrases are fused.
        k: How many passages.
        online: Ask the services of [evidence] online as well, as curation does.
    """
    query = tuple(dict.fromkeys(phrases))
    if online:
        if index:
            raise UsageError(
                "--online searches as curation does, with the configured index",
                hint="leave out --index",
            )
        hits = with_instance(_search_online, query, k)
        return Result({"hits": hits}, [_hits_table(hits)])
    folder = index_folder(index)
    settings = read_settings()
    opened = open_index(
        folder,
        settings=encoder_settings(settings),
        retriever=settings.evidence.retriever,
    )
    (hits,) = wait_for(opened.search([query], k=k))
    value = {"index": opened.identity, "hits": hits}
    note = read_manifest(folder).describe(opened.identity.retriever)
    return Result(value, [_hits_table(hits)], [note])


async def _search_online(
    database: Database, settings: Settings, query: Phrases, k: int
) -> list[Hit]:
    """Return what curation would find, with the services' answers that it has stored."""
    retriever = open_online(settings, database)
    if retriever is None:
        raise UsageError(
            "no literature service is configured",
            hint='set [evidence] online = ["pubmed", "europepmc"]',
        )
    async with aclosing(retriever):
        (hits,) = await retriever.search([query], k=k)
    return hits


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


def verify(index: IndexOption = None) -> None:
    """Compare every file of the index with its manifest; the exit status is 3 when one differs."""
    folder = index_folder(index)
    manifest = verify_index(folder)
    say(f"{folder}: as it was built, {manifest.index_digest}")


def models(
    names: Annotated[list[str] | None, Argument(metavar="[NAME...]")] = None,
    download: bool = False,
) -> Result:
    """Show which encoders are known, what they read, and whether they can be used here; --download fetches them.

    Args:
        names: Encoders, folders or names on the hub [every known one].
        download: Fetch the named encoders' models from the hub.
    """
    settings = encoder_settings(read_settings())
    if download and not names:
        raise UsageError(
            "--download needs the names of encoders",
            hint=f"{folders.DOWNLOAD} NAME; known are {', '.join(settings.table())}",
        )
    rows = []
    for name in names or settings.table():
        model = settings.find(name)
        if download:
            for folder in folders.download_models(model, settings):
                say(f"downloaded {folder}")
        problem = folders.find_problem(model, settings)
        row = {
            "encoder": name,
            "models": model.names,
            "endpoint": model.base_url or None,
            "reads": list(model.languages) or ["every language"],
            "problem": problem,
        }
        rows.append(row)
    columns = ["encoder", "models", "reads", "problem"]
    return Result({"encoders": rows}, [table_of(rows, columns)])


def gaps() -> Result:
    """List diseases, drugs and procedures on which parked threads met no passage, most threads first.

    Each has what was searched for and the nearest passage. Terms are those of the code books; a search phrase
    without such a term is listed as it is.
    """
    rows = [gap.as_json() for gap in with_instance(find_gaps)]
    note = "no thread is parked for want of evidence"
    if rows:
        note = "medlive evidence fetch and build add to the library; then curate"
    names = ("kind", "name", "parked_threads", "searched", "nearest", "nearest_title")
    return Result(rows, [table_of(rows, names)], [note])
