"""What the commands over an evidence index share: options, the build of an index, and how it is described."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Option

from medlive.cli.options import read_settings
from medlive.cli.output import Result, counted, progress, say, table_of
from medlive.errors import EvidenceUnavailable
from medlive.evidence.build import Progress, build_index, prune
from medlive.evidence.corpora.model import Corpus
from medlive.evidence.encoders.table import EncoderSettings
from medlive.evidence.manifest import (
    CorpusEntry,
    DenseEntry,
    IndexManifest,
    RerankerEntry,
    read_manifest,
)
from medlive.evidence.plan import plan_index
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
        prune: Remove the vectors of other encoders afterwards.
    """

    encoder: list[str] | None = None
    prune: bool = False
    models: ModelsOption = None


def build_corpora(
    corpora: Sequence[Corpus],
    out: Path,
    vectors: Vectors,
    *,
    fresh: bool,
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

        manifest = build_index(corpora, out, report, fresh=fresh, plan=plan)
    for step in steps:
        for member, cause in step.problems:
            say(f"{step.corpus}: {member}: {cause}")
    for entry in manifest.corpora:
        known = before.get(entry.name)
        if known and known.digest != entry.digest:
            say(
                f"{entry.name}: {counted(entry.passages, 'passage')} in the place of the {known.passages} there were"
            )
    return _account(out, manifest, steps[-1], prune(out) if vectors.prune else [])


def _account(
    path: Path,
    manifest: IndexManifest,
    last: Progress,
    pruned: Sequence[Path],
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
    if manifest.reranker is not None:
        notes.append(describe_reranker(manifest.reranker))
    notes += [f"removed {place}" for place in pruned]
    names = ("name", "kind", "documents", "passages", "problems", "licence")
    passages = counted(manifest.passages, "passage")
    title = f"{passages}, {described(manifest)}, {manifest.index_digest[:19]}…"
    return Result(value, [table_of(manifest.corpora, names, title)], notes)


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
    counts = [f"{part.language} counts {part.weight:g}" for part in entry.weights]
    return (
        f"{entry.encoder.name}, {entry.part.kind}, recall@{recall.k} {recall.value:.3f} ({exact});"
        f" {', '.join(counts)}"
    )


def describe_reranker(entry: RerankerEntry) -> str:
    """Return in a line whether a reranker is used, and what was measured of it."""
    state = "used" if entry.helps else "not used"
    return (
        f"reranker {entry.where} is {state}: it finds {entry.items} known items at {entry.after:.3f},"
        f" without it they are at {entry.before:.3f} (mean reciprocal rank)"
    )


def index_folder(folder: Path | None) -> Path:
    """The folder that was given, or the one under MEDLIVE_HOME."""
    return folder or paths.index_path(read_settings())


def encoder_settings(models: Path | None) -> EncoderSettings:
    """Where models are looked for and how they are run: as configured, `models` before the configured folder."""
    encoders = paths.encoder_settings(read_settings())
    return encoders if models is None else replace(encoders, models=models)
