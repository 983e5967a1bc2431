"""`medlive snapshot export`: a slice of a snapshot as one file."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_json, say
from medlive.errors import UsageError
from medlive.snapshot.export import SUFFIXES, ExportFormat, export_slice
from medlive.snapshot.load import load_snapshot

Several = Annotated[list[str] | None, typer.Option(help="Keep these only; may be given more than once.")]


def export(
    snapshot: Annotated[str, typer.Argument(metavar="PATH", help="A snapshot's folder, a version, or latest.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; it must not be there.")],
    form: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Default: by the file's name (.json: livemedbench)."),
    ] = None,
    language: Several = None,
    source: Several = None,
    theme: Several = None,
    specialty: Several = None,
    posted_from: Annotated[
        str | None, typer.Option("--posted-from", metavar="YYYY-MM-DD", help="Posted on that day or later.")
    ] = None,
    posted_before: Annotated[
        str | None, typer.Option("--posted-before", metavar="YYYY-MM-DD", help="Posted before that day.")
    ] = None,
    first_release: Several = None,
    first_release_after: Annotated[
        str | None,
        typer.Option("--first-release-after", metavar="YYYY.WNN", help="Only what was first released later."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option("--public-key", metavar="KEY", help="minisign's key, or its file, that signed it."),
    ] = None,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Take it as it lies there; the default verifies it first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a slice of a snapshot as one file: LiveMedBench's JSON, JSON Lines, CSV for spreadsheets, or parquet.

    The file is no snapshot: it has no manifest and nothing verifies it but its digest, which is printed with that
    of the snapshot it was cut from.
    """
    chosen_format = form or SUFFIXES.get(out.suffix.lower())
    if chosen_format is None:
        raise UsageError(
            f"what to write is not clear from the name {out.name!r}",
            hint="give --format livemedbench, jsonl, csv or parquet",
        )
    loaded = load_snapshot(snapshot, verify=not unverified, public_key=public_key)
    chosen = loaded.filter(
        language=language,
        source=source,
        theme=theme,
        specialty=specialty,
        posted_from=posted_from,
        posted_before=posted_before,
        first_release=first_release,
        first_release_after=first_release_after,
    )
    done = export_slice(chosen, out, chosen_format)
    manifest = loaded.manifest
    if as_json:
        print_json(
            {"path": done.path, "format": done.format, "cases": done.cases, "criteria": done.criteria,
             "of_cases": manifest.counts.cases, "digest": done.digest, "snapshot": loaded.version,
             "snapshot_digest": done.source, "publishable": manifest.publishable}
        )  # fmt: skip
    else:
        whole = manifest.counts.cases
        print(f"{done.path}: {done.cases} of {whole} cases, {done.criteria} criteria, {done.digest}")
    say(f"cut from medlive-{loaded.version} ({done.source}): a file of cases, no snapshot; cite the snapshot")
    if not manifest.publishable:
        say("not publishable: " + "; ".join(manifest.why_not))
