"""`medlive evidence`: build an index over medical evidence, list it, search it, check it, measure it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from medlive.cli.evidence import bench as evidence_bench
from medlive.cli.evidence.options import IndexOption, ModelsOption, encoder_settings, index_folder
from medlive.cli.options import JsonOption, grouped
from medlive.cli.output import print_result, print_table, progress, say, wait_for
from medlive.config import load_settings
from medlive.errors import EvidenceUnavailable, UsageError

if TYPE_CHECKING:
    from medlive.evidence.build import Progress
    from medlive.evidence.manifest import IndexManifest
    from medlive.evidence.passage import Hit

app = typer.Typer(no_args_is_help=True)
app.command("bench")(evidence_bench.bench)

IndexKind = Literal["auto", "flat", "hnsw", "ivf_flat", "ivf_sq8", "ivf_pq"]
RetrieverOption = Annotated[
    Literal["bm25", "dense", "hybrid"] | None,
    Option("--retriever", help="How to search [as configured, or the index's own]."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """How passages become vectors."""

    encoder: Annotated[
        str | None,
        Option(help='"medcpt", a folder with models, or "none" [the index\'s own, else medcpt if installed].'),
    ] = None
    kind: Annotated[IndexKind, Option(help="How vectors are arranged; auto: by their number.")] = "auto"
    shard_size: Annotated[int | None, Option(min=1, help="Passages in a shard: what a kill costs.")] = None
    prune: Annotated[bool, Option("--prune", help="Remove the vectors of other encoders afterwards.")] = False
    models: ModelsOption = None


@app.command()
@grouped
def build(
    corpora: Annotated[list[Path], Argument(help="Archives, files or folders; docs/evidence.md lists the kinds.")],
    index: IndexOption = None,
    corpus_kind: Annotated[str | None, Option(help="The corpora's kind [recognised].")] = None,
    name: Annotated[str | None, Option(help="The corpus's name [its own].")] = None,
    *,
    vectors: Vectors,
    fresh: Annotated[bool, Option("--fresh", help="Forget corpora that the index already holds.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Read evidence and index it; corpora of other names stay, one of the same name is replaced."""
    from medlive.evidence.build import build_index, plan_index, prune
    from medlive.evidence.corpora.registry import open_corpus

    out = index_folder(index)
    if name is not None and len(corpora) > 1:
        raise UsageError("--name is for one corpus", hint="build them one after the other, each with its name")
    opened = [open_corpus(path, corpus_kind, name) for path in corpora]
    plan, reason = plan_index(
        out, vectors.encoder, encoder_settings(vectors.models), fresh=fresh,
        kind=None if vectors.kind == "auto" else vectors.kind, shard=vectors.shard_size,
    )  # fmt: skip
    say(f"hybrid: bm25 and vectors ({reason})" if plan else f"bm25 only ({reason})")
    before = {} if fresh else _corpora(out)
    stages: list[Progress] = []
    with progress("passages") as tick:

        def report(step: "Progress") -> None:
            if step.stage in ("read", "built", "unchanged"):
                stages.append(step)
            tick(step.passages)

        manifest = build_index(opened, out, report, fresh=fresh, dense=plan, reason=reason)
    for step in stages:
        for problem in step.problems:
            say(f"{step.corpus}: {problem.member}: {problem.cause}")
    for entry in manifest.corpora:
        if entry.digest != before.get(entry.name, (entry.digest, 0))[0]:
            say(f"{entry.name}: {entry.passages} passages in the place of the {before[entry.name][1]} there were")
    removed = prune(out) if vectors.prune else []
    value = {
        "path": out, "unchanged": stages[-1].stage == "unchanged", "embedded": stages[-1].embedded,
        "reused": stages[-1].reused, "pruned": removed, **manifest.model_dump(mode="json", exclude={"files"}),
    }  # fmt: skip
    print_result(value, as_json, lambda: _print_built(out, manifest, stages[-1], removed))


def _print_built(out: Path, manifest: "IndexManifest", last: "Progress", removed: Sequence[Any]) -> None:
    unchanged = last.stage == "unchanged"
    say("unchanged: the index holds just this already" if unchanged else f"built {out}")
    if last.embedded is not None:
        say(f"{last.embedded} passages embedded, {last.reused} had their vectors already")
    for place in removed:
        say(f"removed {place}")
    print_table(
        ["corpus", "kind", "documents", "passages", "unreadable", "licence"],
        [[c.name, c.kind, c.documents, c.passages, c.problems, c.licence] for c in manifest.corpora],
        title=f"{manifest.passages} passages, {described(manifest)}, {manifest.index_digest[:19]}…",
    )


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the indexes under MEDLIVE_HOME."""
    from medlive.evidence.open_index import list_indexes
    from medlive.service.paths import index_path

    value: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for path, found in list_indexes(index_path(load_settings().settings).parent):
        if isinstance(found, str):
            value.append({"path": path, "problem": found, "manifest": None})
            rows.append([path, *[None] * 7, found])
            continue
        value.append({"path": path, "problem": None, "manifest": found.model_dump(mode="json", exclude={"files"})})
        rows.append([
            path, found.retriever, found.encoder and f"{found.encoder.name} {found.encoder.digest[7:19]}",
            found.dense and found.dense.kind.value, recall_of(found), found.passages,
            ", ".join(found.corpus_digests), f"{found.built_at:%Y-%m-%d %H:%M}", None,
        ])  # fmt: skip
    columns = ["index", "retriever", "encoder", "kind", "recall", "passages", "corpora", "built", "problem"]
    print_result(value, as_json, lambda: print_table(columns, rows))


@app.command()
def search(
    phrases: Annotated[list[str], Argument(metavar="PHRASE...", help="What to look for; several are fused.")],
    k: Annotated[int, Option("-k", min=1, max=100, help="How many passages.")] = 5,
    index: IndexOption = None,
    corpus: Annotated[list[str] | None, Option(help="Only passages of this corpus; may be repeated.")] = None,
    not_after: Annotated[datetime | None, Option(formats=["%Y-%m-%d"], help="Latest day of publication.")] = None,
    retriever: RetrieverOption = None,
    encoder: Annotated[str | None, Option(help="Default: the one that the index names.")] = None,
    rerank: Annotated[str | None, Option(help='A cross-encoder, "medcpt" or its folder [as configured].')] = None,
    models: ModelsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the passages nearest to the phrases, with the rank and score that each side gives them."""
    from medlive.evidence.manifest import read_manifest
    from medlive.evidence.open_index import open_index
    from medlive.evidence.passage import Query

    folder = index_folder(index)
    configured = load_settings().settings.evidence
    opened = open_index(
        folder,
        settings=encoder_settings(models),
        encoder=encoder,
        reranker=rerank or configured.reranker,
        retriever=retriever or configured.retriever,
    )
    day = not_after and not_after.date()
    (hits,) = wait_for(opened.search([Query(*phrases)], k=k, not_after=day, corpora=corpus))
    manifest = read_manifest(folder)
    value = {
        "retriever": opened.identity.retriever, "reason": manifest.reason, "dense": opened.identity.dense,
        "index_digest": opened.identity.index_digest, "hits": [_hit(h) for h in hits],
    }  # fmt: skip
    notes = [described(manifest, opened.identity.retriever)]
    if opened.dense is not None and not all(map(opened.dense.reads, phrases)):
        name = opened.dense.encoder.identity.name
        notes.append(f"searched by words alone where not English: {name} reads nothing else")
    print_result(value, as_json, lambda: _print_hits(hits), notes=() if as_json else notes)


def _print_hits(hits: "Sequence[Hit]") -> None:
    print_table(
        ["rank", "score", "found by", "passage", "title", "published", "text"],
        [
            [h.rank, round(h.score, 4), "\n".join(f"{s.side} {s.rank} ({s.score:g})" for s in h.sides),
             h.passage.id, h.passage.title, h.passage.published, h.passage.text[:300]]
            for h in hits
        ],
    )  # fmt: skip


@app.command()
def verify(index: IndexOption = None) -> None:
    """Compare every file of the index with its manifest; the exit status is 3 when one differs."""
    from medlive.evidence.open_index import verify_index

    folder = index_folder(index)
    manifest = verify_index(folder)
    say(f"{folder}: {len(manifest.files)} files are as they were built, {manifest.index_digest}")


@app.command()
def models(
    models: ModelsOption = None,
    download: Annotated[bool, Option("--download", help="Fetch MedCPT's three models (1.3 GB).")] = False,
    require: Annotated[bool, Option("--require", help="Exit with status 3 unless MedCPT can be used.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show which models MedCPT needs, where they were looked for and what was found; --download fetches them."""
    from medlive.evidence.encoders.folders import (
        INSTALL,
        download_models,
        find_models,
        missing_models,
        missing_packages,
    )

    settings = encoder_settings(models)
    if download:
        for folder in download_models(settings):
            say(f"downloaded {folder}")
    found = find_models(settings)
    problem, packages = missing_models(found), missing_packages()
    value = {
        "usable": problem is None,
        "lacking": problem,
        "missing_packages": packages,
        "models": [
            {"role": f.role.value, "repository": f.role.repository, "purpose": f.role.purpose,
             "folder": f.model and f.model.folder, "digest": f.model and f.model.digest,
             "dimension": f.model and f.model.dimension,
             "places": [
                 {"origin": p.origin, "folder": p.folder, "state": p.state, "problem": p.problem} for p in f.places
             ]}
            for f in found
        ],
    }  # fmt: skip

    def show() -> None:
        print_table(
            ["model", "for", "looked at", "state", "problem"],
            [
                [f.role.repository, f.role.purpose, place.folder, place.state, place.problem]
                for f in found
                for place in f.places
            ],
        )
        if packages:
            say(f"not installed: {', '.join(packages)} ({INSTALL})")
        if problem is None:
            say("MedCPT can be used: medlive evidence build CORPUS... --encoder medcpt")
        else:
            say(f"{problem}. Without it an index is searched by bm25 only")

    failure = None
    if require and problem is not None:
        failure = EvidenceUnavailable(problem, hint="medlive evidence models --download fetches the models")
    print_result(value, as_json, show, failure=failure)


def _corpora(folder: Path) -> dict[str, tuple[str, int]]:
    """Corpus name → its digest and passages in the index as it is; nothing where it cannot be read."""
    from medlive.evidence.manifest import read_manifest

    with suppress(EvidenceUnavailable):
        return {entry.name: (entry.digest, entry.passages) for entry in read_manifest(folder).corpora}
    return {}


def described(manifest: "IndexManifest", retriever: str | None = None) -> str:
    """What searches the index, in a line: the retriever, its encoder and recall, or why it has none."""
    name = retriever or manifest.retriever
    if manifest.dense is None:
        return f"bm25 only: {manifest.reason}"
    if name == "bm25":
        return "bm25 only, as asked for"
    return f"{name}: {manifest.dense.encoder}, {manifest.dense.kind}, {recall_of(manifest)}"


def recall_of(manifest: "IndexManifest") -> str | None:
    """The recall of the dense side against exact search."""
    if manifest.dense is None:
        return None
    recall = manifest.dense.recall
    exact = "exact" if recall.sampled == "exact" else f"{recall.queries} queries"
    return f"recall@{recall.k} {recall.value:.3f} ({exact})"


def _hit(hit: "Hit") -> dict[str, Any]:
    sides = [asdict(side) for side in hit.sides]
    return {"rank": hit.rank, "score": hit.score, "found_by": sides, **asdict(hit.passage)}
