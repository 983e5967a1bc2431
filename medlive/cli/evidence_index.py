"""What the commands over an evidence index share: options, the build of an index, and how it is described."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from medlive.cli.options import read_settings
from medlive.cli.output import Result, counted, progress, say, table_of, wait_for
from medlive.errors import EvidenceUnavailable, UsageError
from medlive.evidence.build import Progress, build_index, prune
from medlive.evidence.corpora.model import Corpus
from medlive.evidence.dense_side import shards_to_embed
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.manifest import (
    CorpusEntry,
    DenseEntry,
    IndexManifest,
    read_manifest,
)
from medlive.evidence.plan import DensePlan, plan_index
from medlive.instance import paths

IndexOption = Annotated[
    Path | None,
    Option("--index", help="The index's folder; default: under MEDLIVE_HOME."),
]
ModelsOption = Annotated[
    Path | None, Option("--models", help="A folder of models [as configured].")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """How passages become vectors.

    Attributes:
        encoder: "none", or an encoder for what it reads, or for a language, as in zh=bge-m3: a name of
            docs/evidence.md's table, a folder, a name on the hub [as configured, the index's own, or at hand].
        kind: How vectors are arranged; auto: by their number.
        shard_size: Passages in a shard: what a kill costs.
        by_workers: Embed by workers on the queue embed, which share the index's folder.
        prune: Remove the vectors of other encoders afterwards.
    """

    encoder: list[str] | None = None
    kind: Literal["auto", "flat", "ivf_pq"] = "auto"
    shard_size: Annotated[int | None, Option(min=1)] = None
    by_workers: bool = False
    prune: bool = False
    models: ModelsOption = None


def build_corpora(
    corpora: Sequence[Corpus], out: Path, vectors: Vectors, *, fresh: bool
) -> Result:
    """Build or extend the index at `out`, saying on stderr how it goes, and return the account of it.

    Args:
        corpora: What is read; corpora of other names in the index stay.
        out: The index's folder.
        vectors: How passages become vectors.
        fresh: Whether corpora that the index already holds are dropped.

    Raises as `plan_index` and `build_index` do.
    """
    plan = plan_index(
        out,
        vectors.encoder or (),
        encoder_settings(vectors.models),
        fresh=fresh,
        kind=None if vectors.kind == "auto" else vectors.kind,
        shard=vectors.shard_size,
    )
    sides = "bm25 and vectors" if plan.sides else "bm25 only"
    say(f"{sides} ({plan.reason})")
    before: dict[str, CorpusEntry] = {}
    if not fresh:
        with suppress(EvidenceUnavailable):
            before = {entry.name: entry for entry in read_manifest(out).corpora}
    steps: list[Progress] = []
    with progress("passages") as tick:

        def report(step: Progress) -> None:
            if step.stage in ("read", "built", "unchanged"):
                steps.append(step)
            tick(step.passages)

        if vectors.by_workers:
            shared = []
            for side in plan.sides:
                share = partial(_embed_by_workers, out, side, tick)
                shared.append(replace(side, share=share))
            plan = plan._replace(sides=tuple(shared))
        manifest = build_index(corpora, out, report, fresh=fresh, plan=plan)
    for step in steps:
        for problem in step.problems:
            say(f"{step.corpus}: {problem.member}: {problem.cause}")
    for entry in manifest.corpora:
        known = before.get(entry.name)
        if known and known.digest != entry.digest:
            say(
                f"{entry.name}: {counted(entry.passages, 'passage')} in the place of the {known.passages} there were"
            )
    return _account(out, manifest, steps[-1], prune(out) if vectors.prune else [])


def _account(
    path: Path, manifest: IndexManifest, last: Progress, pruned: Sequence[Path]
) -> Result:
    unchanged = last.stage == "unchanged"
    value = {
        "path": path,
        "unchanged": unchanged,
        "embedded": last.embedded,
        "reused": last.reused,
        "pruned": pruned,
        **manifest.model_dump(mode="json", exclude={"files"}),
    }
    notes = [f"built {path}"]
    if unchanged:
        notes = ["unchanged: the index holds just this already"]
    if last.embedded is not None:
        notes.append(
            f"{counted(last.embedded, 'passage')} embedded, {last.reused} had their vectors already"
        )
    if (reranker := manifest.reranker) is not None:
        state = "used" if reranker.helps else "not used"
        notes.append(
            f"reranker {reranker.where} is {state}: it finds {reranker.items} known items at {reranker.after:.3f},"
            f" without it they are at {reranker.before:.3f} (mean reciprocal rank)"
        )
    notes += [f"removed {place}" for place in pruned]
    names = ("name", "kind", "documents", "passages", "problems", "licence")
    passages = counted(manifest.passages, "passage")
    title = f"{passages}, {described(manifest)}, {manifest.index_digest[:19]}…"
    return Result(value, [table_of(manifest.corpora, names, title)], notes)


def _embed_by_workers(
    out: Path, plan: DensePlan, tick: Callable[[int], None], data: Path
) -> None:
    from medlive.service.database import open_database
    from medlive.service.work.jobs import run_shard_jobs

    settings = read_settings()
    index, home = out.resolve(), settings.home.resolve()
    if not index.is_relative_to(home):
        raise UsageError(
            f"workers write below their MEDLIVE_HOME alone, and {index} is not below {home}",
            hint="leave out --by-workers, or name a folder below MEDLIVE_HOME",
        )
    # Another machine may have its MEDLIVE_HOME elsewhere.
    name = str(index.relative_to(home))
    inside = str(data.resolve().relative_to(index))

    async def run() -> bool:
        async with open_database(settings) as database:
            return await run_shard_jobs(
                database, name, inside, plan.where, shards, tick
            )

    shards = shards_to_embed(out, data, plan)
    if shards and not wait_for(run()):
        say("no worker serves the queue embed: embedding here")


def described(manifest: IndexManifest, retriever: str | None = None) -> str:
    """What searches the index, in a line: the retriever, its encoder and recall, or why it has none."""
    if not manifest.dense:
        return f"bm25 only: {manifest.reason}"
    if retriever == "bm25":
        return "bm25 only, as asked for"
    sides = "; ".join(map(describe_side, manifest.dense))
    return f"{retriever or manifest.retriever}: {sides}"


def describe_side(entry: DenseEntry) -> str:
    """Return an encoder's side in a line: what it reads and counts there, its kind and recall."""
    recall = entry.part.recall
    exact = f"{recall.queries} queries" if recall.queries else "exact"
    counts = []
    for weight in entry.weights:
        measured = (
            f"{weight.items} titles: vectors {weight.vectors}, words {weight.words}"
        )
        if not weight.items or weight.vectors is None:
            measured = "not measured: too few titles"
        counts.append(f"{weight.language} counts {weight.weight:g} ({measured})")
    return (
        f"{entry.encoder.name}, {entry.part.kind}, recall@{recall.k} {recall.value:.3f} ({exact});"
        f" {', '.join(counts)}"
    )


def index_folder(folder: Path | None) -> Path:
    """The folder that was given, or the one under MEDLIVE_HOME."""
    return folder or paths.index_path(read_settings())


def encoder_settings(models: Path | None) -> EncoderSettings:
    """Where models are looked for and how they are run: as configured, `models` before the configured folder."""
    encoders = paths.encoder_settings(read_settings())
    return encoders if models is None else replace(encoders, models=models)
