"""`medlive snapshot`: frozen snapshots."""

from typing import TYPE_CHECKING, Annotated

import typer

from medlive.cli.database import with_session
from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, say
from medlive.cli.snapshot import withdraw as snapshot_withdraw
from medlive.cli.snapshot.diff import diff
from medlive.cli.snapshot.export import export
from medlive.cli.snapshot.fetch import fetch
from medlive.cli.snapshot.freeze import freeze, rebuild
from medlive.cli.snapshot.publish import publish
from medlive.cli.snapshot.sign import keygen
from medlive.cli.snapshot.verify import verify
from medlive.config import load_settings

if TYPE_CHECKING:
    from medlive.snapshot.manifest import Manifest

app = typer.Typer(no_args_is_help=True)

app.command()(freeze)
app.command()(rebuild)

PathArgument = Annotated[str, typer.Argument(help="A snapshot's folder, or the version of one frozen here.")]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the snapshots that were frozen here, newest first."""
    from medlive.db.release.snapshots import list_snapshots

    rows = [
        {"version": s.version, "state": s.state.value, "cases": s.cases, "criteria": s.criteria,
         "publishable": s.publishable, "parent": s.parent, "path": s.path}
        for s in with_session(load_settings().settings, list_snapshots)
    ]  # fmt: skip
    columns = ["version", "state", "cases", "criteria", "publishable", "parent", "path"]
    print_result(rows, as_json, lambda: print_table(columns, [list(row.values()) for row in rows]))


@app.command()
def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """Show what a snapshot holds and how it was made, from its manifest."""
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.load import load_snapshot

    snapshot = load_snapshot(snapshot_folder(load_settings().settings, path))
    manifest = snapshot.manifest
    print_result(manifest.model_dump(mode="json"), as_json, lambda: _print(manifest))


def _print(manifest: "Manifest") -> None:
    counts = manifest.counts.model_dump()
    print_table(
        ["what", "value", "count"],
        [["cases", None, counts["cases"]], ["criteria", None, counts["criteria"]]]
        + [
            [kind.removeprefix("by_"), value, n]
            for kind in counts
            if kind.startswith("by_")
            for value, n in counts[kind].items()
        ],
        title=f"medlive {manifest.version}, made {manifest.created_at:%Y-%m-%d}"
        + ("" if manifest.publishable else ", NOT PUBLISHABLE"),
    )
    print_table(["what", "of", "value"], _made_with(manifest), title="\nHow it was made")
    for reason in manifest.why_not:
        say(f"not publishable: {reason}")


def _made_with(manifest: "Manifest") -> list[tuple[str, str | None, str]]:
    made, key = manifest.provenance, manifest.signing
    parent = f"{manifest.parent} ({manifest.parent_digest})" if manifest.parent else "none: the first of its line"
    return [
        ("medlive", None, made.code_version),
        ("parent", None, parent),
        ("signing key", None, "none" if key is None else key.key_id),
        *(("engine", use.role, f"{use.engine}, {use.model}") for use in made.engines),
        *(("prompt", task, digest) for task, digest in made.prompts.items()),
        *(
            ("evidence", use.retriever, f"{use.passages:,} passages, {', '.join(use.corpora)}; {use.index_digest}")
            for use in made.evidence
        ),
        *(("threshold", name, str(value)) for name, value in made.thresholds.items()),
        *(("written by", name, library) for name, library in manifest.writers.items()),
    ]


app.command()(verify)
app.command("keygen")(keygen)
app.command("export")(export)
app.command()(publish)
app.command()(fetch)


app.command()(snapshot_withdraw.withdraw)
app.command("diff")(diff)
