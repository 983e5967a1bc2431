"""`medlive snapshot export`: a slice of a snapshot as one file."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.options import CaseFilter, JsonOption, grouped
from medlive.cli.output import print_result, say
from medlive.errors import UsageError
from medlive.snapshot.export import SUFFIXES, ExportFormat, export_slice
from medlive.snapshot.load import load_snapshot


@grouped
def export(
    snapshot: Annotated[str, typer.Argument(metavar="PATH", help="A snapshot's folder, a version, or latest.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write; it must not be there.")],
    form: Annotated[
        ExportFormat | None, typer.Option("--format", help="Default: by the file's name (.json: livemedbench).")
    ] = None,
    *,
    part: CaseFilter,
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
    chosen = loaded.filter(**part.given())
    done = export_slice(chosen, out, chosen_format)
    manifest = loaded.manifest
    value = {
        "path": done.path, "format": done.format, "cases": done.cases, "criteria": done.criteria,
        "of_cases": manifest.counts.cases, "digest": done.digest, "snapshot": loaded.version,
        "snapshot_digest": done.source, "publishable": manifest.publishable,
    }  # fmt: skip
    text = f"{done.path}: {done.cases} of {manifest.counts.cases} cases, {done.criteria} criteria, {done.digest}"
    print_result(value, as_json, lambda: print(text))
    say(f"cut from medlive-{loaded.version} ({done.source}): a file of cases, no snapshot; cite the snapshot")
    if not manifest.publishable:
        say("not publishable: " + "; ".join(manifest.why_not))
