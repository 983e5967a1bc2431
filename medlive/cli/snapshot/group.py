"""`medlive snapshot`: frozen snapshots."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from medlive.cli.options import CaseFilter, JsonOption, grouped
from medlive.cli.output import (
    attributes,
    check_as_json,
    echo,
    echo_lines,
    pick,
    print_checks,
    print_result,
    print_table,
    progress,
    say,
    wait_for,
    with_session,
)
from medlive.cli.snapshot import prove, release
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed, ConfigError, UsageError
from medlive.integrity.checks import Trust
from medlive.printable import printable
from medlive.snapshot.diff import CaseDiff, ChangeKind, CriterionEdit, SnapshotDiff
from medlive.snapshot.export import SUFFIXES, ExportFormat, export_slice
from medlive.snapshot.load import open_snapshot

if TYPE_CHECKING:
    from medlive.snapshot.manifest import Manifest

app = typer.Typer(no_args_is_help=True)
app.command()(release.freeze)
app.command()(release.rebuild)

_CUT = 80
"""Characters of a value in a diff."""
_TRUST = {
    "not signed": "Unsigned: its origin cannot be verified.",
    "integrity": "Signed with the key that it names itself: this proves integrity, not origin. "
    "Give --public-key to prove both.",
    "origin": "Signed with the key that was given.",
    "broken": "Its signature could not be checked.",
}

PathArgument = Annotated[
    str, Argument(help="A snapshot's folder, or the version of one frozen here.")
]


@app.command("list")
def list_(as_json: JsonOption = False) -> None:
    """List the snapshots that were frozen here, newest first."""
    from medlive.db.release.snapshots import list_snapshots

    columns = "version state cases criteria publishable parent path"
    rows = [attributes(s, columns) for s in with_session(list_snapshots)]
    print_result(
        rows, as_json, lambda: print_table(columns.split(), pick(rows, columns))
    )


@app.command()
def show(path: PathArgument, as_json: JsonOption = False) -> None:
    """Show what a snapshot holds and how it was made, from its manifest."""
    from medlive.service.paths import snapshot_folder

    snapshot = open_snapshot(snapshot_folder(load_settings().settings, path))
    manifest = snapshot.manifest
    print_result(manifest.model_dump(mode="json"), as_json, lambda: _print(manifest))


def _print(manifest: "Manifest") -> None:
    counts = manifest.counts.model_dump()
    rows = [["cases", None, counts["cases"]], ["criteria", None, counts["criteria"]]]
    for kind in counts:
        if kind.startswith("by_"):
            rows += [
                [kind.removeprefix("by_"), value, n]
                for value, n in counts[kind].items()
            ]
    proof = manifest.counts.proof.model_dump()
    rows.append(["rubrics proved", None, proof.pop("cases")])
    rows += [["mean of these", name, figure] for name, figure in proof.items()]
    title = f"medlive {manifest.version}, made {manifest.created_at:%Y-%m-%d}"
    print_table(
        ["what", "value", "count"],
        rows,
        title=title + ", NOT PUBLISHABLE" * (not manifest.publishable),
    )
    echo()
    print_table(["what", "of", "value"], _made_with(manifest), title="How it was made")
    if manifest.partial is not None:
        say(f"partial: {manifest.partial.in_short}")
    for warning in manifest.warnings:
        say(f"warning: {warning}")
    for reason in manifest.why_not:
        say(f"not publishable: {reason}")


def _made_with(manifest: "Manifest") -> list[tuple[str, str | None, str]]:
    made, key = manifest.provenance, manifest.signing
    parent = (
        f"{manifest.parent} ({manifest.parent_digest})"
        if manifest.parent
        else "none: the first of its line"
    )
    evidence = [
        (
            e.retriever,
            f"{e.passages:,} passages, {', '.join(e.corpora)}; {e.index_digest}",
        )
        for e in made.evidence
    ]
    return [
        ("medlive", None, made.code_version),
        ("parent", None, parent),
        ("signing key", None, "none" if key is None else key.key_id),
        *(("engine", use.role, f"{use.engine}, {use.model}") for use in made.engines),
        *(("prompt", task, digest) for task, digest in made.prompts.items()),
        *(("evidence", retriever, text) for retriever, text in evidence),
        *(("threshold", name, str(value)) for name, value in made.thresholds.items()),
        *(("written by", name, library) for name, library in manifest.writers.items()),
    ]


@app.command()
def verify(
    path: PathArgument,
    public_key: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="The key that must have signed it [the key it names: proves no origin].",
        ),
    ] = None,
    parent: Annotated[
        Path | None, Option(metavar="PATH", help="The parent's folder [beside it].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a snapshot from its files alone; exit status 1 when a step fails."""
    from medlive.integrity.signing import public_key_of
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.verify.run import verify_snapshot

    folder = snapshot_folder(load_settings().settings, path)
    _check_exist([folder, *([parent] if parent else [])])
    report = verify_snapshot(
        folder, public_key=public_key_of(public_key), parent=parent
    )
    value = attributes(report, "path ok complete trust") | {
        "steps": [check_as_json(s) for s in report.steps]
    }
    failure = None if report.ok else CheckFailed(f"{folder.name} does not verify")
    print_result(value, as_json, lambda: print_checks(report.steps), failure=failure)
    say(
        f"{folder.name} verifies"
        + ("" if report.complete else ", but steps were skipped")
    )
    say(_TRUST[report.trust.value])


def _check_exist(folders: list[Path]) -> None:
    for folder in folders:
        if not folder.exists():
            raise BadInput(f"{folder} does not exist")


@app.command()
def keygen(
    out: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Where to [keys, in medlive's home]."),
    ] = None,
    password_env: Annotated[
        str | None, Option(metavar="NAME", help="The variable with its password.")
    ] = None,
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
    folder = out or load_settings().settings.home / "keys"
    secret_text, public_text = generate(password)
    secret, public = write_keys(folder, secret_text, public_text)
    key = PublicKey.parse(public_text)
    value = {
        "secret_key": secret,
        "public_key": public,
        "key_id": key.id_text(),
        "line": key.line(),
        "encrypted": password is not None,
    }
    text = f"secret key: {secret}\npublic key: {public}\nkey id: {key.id_text()}\n{key.line()}"
    print_result(value, as_json, lambda: echo_lines(text + "\n"))
    say(
        f"To sign: set {FILE_VARIABLE}={secret}, or put the file's text into {KEY_VARIABLE}."
    )
    encrypted = f"Its password is read from {PASSWORD_VARIABLE}."
    say(
        encrypted
        if password
        else f"It is not encrypted: whoever can read {secret.name} can sign in your name."
    )
    say(
        "Keep a copy of it offline, and never in a repository, database or configuration."
    )
    say(
        f"Publish {public.name} apart from snapshots: a snapshot cannot prove that its own key is genuine."
    )
    say(f"To check: minisign -VHm SHA256SUMS -P {key.line()}")


@app.command()
@grouped
def export(
    snapshot: Annotated[
        str, Argument(metavar="PATH", help="A snapshot's folder, a version, or latest.")
    ],
    out: Annotated[
        Path, Option(metavar="FILE", help="The file to write; it must not exist.")
    ],
    form: Annotated[
        ExportFormat | None, Option("--format", help="Default: by the suffix.")
    ] = None,
    *,
    part: CaseFilter,
    public_key: Annotated[
        str | None, Option(metavar="KEY", help="The key, or its file, that signed it.")
    ] = None,
    unverified: Annotated[
        bool, Option("--unverified", help="Do not verify it first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a slice of a snapshot as one file: LiveMedBench's JSON, JSON Lines, CSV for spreadsheets, or parquet.

    The file is not a snapshot: it has no manifest and nothing verifies it but its digest, which is printed with
    that of the snapshot it was cut from.
    """
    if (chosen_format := form or SUFFIXES.get(out.suffix.lower())) is None:
        raise UsageError(
            f"{out.name!r} has no known suffix",
            hint="--format livemedbench, jsonl, csv or parquet",
        )
    loaded = open_snapshot(snapshot, verify=not unverified, public_key=public_key)
    done = export_slice(loaded.filter(**part.given()), out, chosen_format)
    manifest = loaded.manifest
    value = attributes(done, "path format cases criteria digest snapshot_digest=source")
    value |= {"of_cases": manifest.counts.cases} | attributes(
        manifest, "snapshot=version publishable"
    )
    text = f"{done.path}: {done.cases} of {manifest.counts.cases} cases, {done.criteria} criteria, {done.digest}"
    print_result(value, as_json, lambda: echo(text))
    say(
        f"cut from medlive-{loaded.version} ({done.source}): cite the snapshot, not this file"
    )
    if not manifest.publishable:
        say("not publishable: " + "; ".join(manifest.why_not))


app.command()(release.publish)


@app.command()
def fetch(
    version: Annotated[
        str, Argument(metavar="VERSION|latest", help="Such as 2026.W47.")
    ],
    source: Annotated[
        str,
        Option(
            "--from", metavar="URL_OR_FOLDER", help="Where snapshots are published."
        ),
    ],
    out: Annotated[
        Path, Option(metavar="FOLDER", help="Where medlive-VERSION goes.")
    ] = Path(),
    public_key: Annotated[
        Path | None, Option(help="Refuse what this minisign key has not signed.")
    ] = None,
    allow_older: Annotated[
        bool,
        Option(
            "--allow-older",
            help="Take a latest version that is older than what is there.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch a published snapshot and verify it; a fetch that was cut off goes on where it stopped."""
    from medlive.integrity.signing import public_key_of
    from medlive.publishing.download import fetch_snapshot

    key = public_key_of(public_key)
    with progress("bytes fetched") as tick:
        done = wait_for(
            fetch_snapshot(
                source, version, out, key, progress=tick, allow_older=allow_older
            )
        )
    verb = "was here already" if done.already else "fetched"
    text = f"medlive {done.version} ({done.digest}) {verb}, in {done.path}"
    print_result(asdict(done), as_json, lambda: echo(text))
    say("it verifies" + ("" if done.complete else ", but steps were skipped"))
    for step in done.skipped:
        say(f"skipped: {step}")
    if done.trust is Trust.INTEGRITY:
        say(_TRUST[done.trust])
    if done.why_not:
        say("not publishable: " + "; ".join(done.why_not))
    if done.errata_kept is not None:
        say(f"the errata here were kept: {done.errata_kept}")
    if done.errata:
        say(f"{done.errata} errata concern it: see errata.json beside it")


app.command()(prove.prove)
app.command()(release.withdraw)
app.command()(release.reinstate)


@app.command()
def diff(
    old: Annotated[
        str, Argument(metavar="A", help="The older snapshot: its folder or version.")
    ],
    new: Annotated[str, Argument(metavar="B", help="The newer one.")],
    limit: Annotated[
        int, Option(min=0, help="How many cases of each kind are listed.")
    ] = 20,
    unverified: Annotated[
        bool, Option("--unverified", help="Do not verify them first.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changed from snapshot A to B: cases, with reasons, and how the releases were made."""
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.diff import diff_snapshots
    from medlive.snapshot.verify.run import verify_snapshot

    settings = load_settings().settings
    folders = [snapshot_folder(settings, given) for given in (old, new)]
    _check_exist(folders)
    for folder in folders if not unverified else ():
        if not (report := verify_snapshot(folder)).ok:
            raise CheckFailed(
                report.summary(), hint="--unverified compares it as it is"
            )
    found = diff_snapshots(*folders, limit=limit)
    notes = (
        ["not verified: what the files say was taken as it stands"]
        if unverified
        else []
    )
    print_result(_diff_rows(found), as_json, lambda: _print_diff(found), notes=notes)


def _print_diff(found: SnapshotDiff) -> None:
    echo(f"{found.old.version} → {found.new.version}")
    print_table(
        ["cases", "count"], [[kind.value, n] for kind, n in found.counts.items()]
    )
    if found.touched:
        print_table(
            ["in revised cases", "cases"],
            [[name, n] for name, n in found.touched.items()],
        )
    if found.settings:
        shown = [[e.name, _short(e.old), _short(e.new)] for e in found.settings]
        print_table(["how it was made", found.old.version, found.new.version], shown)
    for kind in ChangeKind:
        cases = [case for case in found.listed if case.kind is kind]
        for case in cases:
            for line in _lines(case, found.reasons.get(case.case_id)):
                echo(line)
        if left := found.counts[kind] - len(cases):
            say(f"{left} more {kind.value}; --limit lists more")
    say(f"reasons: {found.reasons_from}")


def _lines(case: CaseDiff, reason: str | None) -> list[str]:
    steps = " → ".join(
        str(r) for r in (case.from_revision, case.to_revision) if r is not None
    )
    lines = [
        printable(
            f"{case.kind.value} {case.case_id} (revision {steps})"
            + (f": {reason}" if reason else "")
        )
    ]
    lines += [f"  {e.name}: {_short(e.old)} → {_short(e.new)}" for e in case.fields]
    return lines + [f"  {_criterion(edit)}" for edit in case.criteria]


def _criterion(edit: CriterionEdit) -> str:
    named = edit.new or edit.old or {}
    text = printable(f"{named['criterion_id']} {', '.join(edit.edits)}: ")
    if edit.old is None or edit.new is None:
        return (
            text
            + f"{_short(named['criterion'])} ({named['axis']}, {named['points']:+d})"
        )
    names = (
        "criterion",
        "axis",
        "points",
        "origin",
        "source",
        "criterion_id",
        "position",
    )
    changed = [
        f"{_short(edit.old[n])} → {_short(edit.new[n])}"
        for n in names
        if edit.old[n] != edit.new[n]
    ]
    return text + "; ".join(changed)


def _short(value: Any) -> str:
    """A value on one line, at most 80 characters of it, in signs that can stand on a screen."""
    text = (
        "none"
        if value is None
        else ", ".join(map(str, value))
        if isinstance(value, list)
        else str(value)
    )
    text = "".join(c if c.isprintable() else " " for c in text[: 4 * _CUT])
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"


def _diff_rows(found: SnapshotDiff) -> dict[str, Any]:
    names = "old=old.version new=new.version counts revised_cases_by_what_changed=touched reasons_from"
    rows = attributes(found, names) | {
        "made_otherwise": [attributes(e, "name old new") for e in found.settings]
    }
    for kind in ChangeKind:
        rows[kind.value] = [
            attributes(c, "case_id from_revision to_revision")
            | {
                "reason": found.reasons.get(c.case_id),
                "fields": [attributes(e, "name old new") for e in c.fields],
                "criteria": [attributes(e, "edits old new") for e in c.criteria],
            }
            for c in found.listed
            if c.kind is kind
        ]
    return rows
