"""`medlive snapshot`: frozen snapshots."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from medlive.cli.database import with_session
from medlive.cli.options import CaseFilter, JsonOption, grouped
from medlive.cli.output import print_result, print_table, progress, say, wait_for
from medlive.cli.snapshot import release
from medlive.cli.snapshot.diff import diff
from medlive.cli.verification import print_steps, step_as_json
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, ConfigError, UsageError
from medlive.snapshot.export import SUFFIXES, ExportFormat, export_slice
from medlive.snapshot.load import load_snapshot

if TYPE_CHECKING:
    from medlive.snapshot.manifest import Manifest

app = typer.Typer(no_args_is_help=True)
app.command()(release.freeze)
app.command()(release.rebuild)

_TRUST = {
    "not signed": "It is not signed: nothing proves where it came from.",
    "integrity": "Its signature is of the key that it names itself: this proves integrity, not origin. "
    "Give --public-key to prove both.",
    "origin": "It was signed with the key that was given.",
    "broken": "Its signature could not be looked at.",
}

PathArgument = Annotated[str, Argument(help="A snapshot's folder, or the version of one frozen here.")]


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


@app.command()
def verify(
    path: PathArgument,
    public_key: Annotated[
        Path | None,
        Option(metavar="FILE", help="The key that must have signed it [the key it names: proves no origin]."),
    ] = None,
    parent: Annotated[Path | None, Option(metavar="PATH", help="The parent's folder [beside it].")] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a snapshot from its files alone; exit status 1 when a step fails."""
    from medlive.integrity.signing import public_key_of
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.verify.run import verify_snapshot

    folder = snapshot_folder(load_settings().settings, path)
    for place in (folder, *((parent,) if parent else ())):
        if not place.exists():
            raise BadInput(f"{place} does not exist")
    report = verify_snapshot(folder, public_key=public_key_of(public_key), parent=parent)
    value = {
        "path": report.path, "ok": report.ok, "complete": report.complete, "trust": report.trust.value,
        "steps": [step_as_json(step) for step in report.steps],
    }  # fmt: skip
    failure = None if report.ok else CheckFailed(f"{folder.name} does not verify")
    print_result(value, as_json, lambda: print_steps(report.steps), failure=failure)
    say(f"{folder.name} verifies" + ("" if report.complete else ", but steps were skipped"))
    say(_TRUST[report.trust.value])


@app.command()
def keygen(
    out: Annotated[Path | None, Option(metavar="FOLDER", help="Where to [keys, in medlive's home].")] = None,
    password_env: Annotated[str | None, Option(metavar="NAME", help="The variable with its password.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key pair to sign snapshots with, in minisign's format; an existing one is never overwritten."""
    from medlive.integrity.signing import (
        FILE_VARIABLE,
        KEY_VARIABLE,
        PASSWORD_VARIABLE,
        PublicKey,
        generate,
        write_keys,
    )

    password = None
    if password_env is not None and not (password := os.environ.get(password_env)):
        raise ConfigError(f"the variable {password_env} is not set, or is empty")
    folder = out if out is not None else load_settings().settings.home / "keys"
    secret_text, public_text = generate(password)
    secret, public = write_keys(folder, secret_text, public_text)
    key = PublicKey.parse(public_text)
    value = {
        "secret_key": secret, "public_key": public, "key_id": key.id_text(), "line": key.line(),
        "encrypted": password is not None,
    }  # fmt: skip
    text = f"secret key: {secret}\npublic key: {public}\nkey id: {key.id_text()}\n{key.line()}"
    print_result(value, as_json, lambda: print(text))
    say(f"To sign: set {FILE_VARIABLE}={secret}, or put the file's text into {KEY_VARIABLE}.")
    if password is not None:
        say(f"Its password is read from {PASSWORD_VARIABLE}.")
    else:
        say(f"It is not encrypted: whoever can read {secret.name} can sign in your name.")
    say("Keep a copy of it offline. It belongs into no repository, database or configuration.")
    say(
        f"Publish {public.name} where readers find it without a snapshot: a snapshot cannot vouch for its own key."
    )
    say(f"To check: minisign -VHm SHA256SUMS -P {key.line()}")


@app.command()
@grouped
def export(
    snapshot: Annotated[str, Argument(metavar="PATH", help="A snapshot's folder, a version, or latest.")],
    out: Annotated[Path, Option(metavar="FILE", help="The file to write; it must not exist.")],
    form: Annotated[ExportFormat | None, Option("--format", help="Default: by the suffix.")] = None,
    *,
    part: CaseFilter,
    public_key: Annotated[str | None, Option(metavar="KEY", help="The key, or its file, that signed it.")] = None,
    unverified: Annotated[bool, Option("--unverified", help="Do not verify it first.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a slice of a snapshot as one file: LiveMedBench's JSON, JSON Lines, CSV for spreadsheets, or parquet.

    The file is not a snapshot: it has no manifest and nothing verifies it but its digest, which is printed with
    that of the snapshot it was cut from.
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


app.command()(release.publish)


@app.command()
def fetch(
    version: Annotated[str, Argument(metavar="VERSION|latest", help="Such as 2026.W47.")],
    source: Annotated[str, Option("--from", metavar="URL_OR_FOLDER", help="Where snapshots are published.")],
    out: Annotated[Path, Option(metavar="FOLDER", help="Where medlive-VERSION goes.")] = Path(),
    public_key: Annotated[Path | None, Option(help="Refuse what this minisign key has not signed.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a published snapshot and verify it; a fetch that was cut off goes on where it stopped."""
    from medlive.integrity.signing import public_key_of
    from medlive.publishing.download import fetch_snapshot

    key = public_key_of(public_key)
    with progress("bytes fetched") as tick:
        done = wait_for(fetch_snapshot(source, version, out, key, progress=tick))
    verb = "was here already" if done.already else "fetched"
    text = f"medlive {done.version} ({done.digest}) {verb}, in {done.path}"
    print_result(asdict(done), as_json, lambda: print(text))
    say("it verifies" + ("" if done.complete else ", but steps were skipped: medlive snapshot verify names them"))
    if done.errata:
        say(f"{done.errata} errata concern it: see errata.json beside it")


app.command()(release.withdraw)
app.command()(diff)
