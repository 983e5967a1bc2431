"""`medlive snapshot list|show|verify|keygen|fetch|diff|export`: frozen snapshots, and what holders do with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text
from typer import Argument, Option

from medlive.cli.options import (
    PublicKeyOption,
    SnapshotArgument,
    UnverifiedOption,
)
from medlive.cli.output import (
    TRUST,
    Grid,
    Result,
    Shown,
    describe_report,
    list_result,
    table_of,
    wait_for,
    with_session,
)
from medlive.errors import CheckFailed
from medlive.instance.loading import dotted, read_settings
from medlive.integrity.signing import (
    FILE_VARIABLE,
    KEY_VARIABLE,
    PublicKey,
    generate,
    write_keys,
)
from medlive.publishing.download import fetch_snapshot
from medlive.snapshot.diff import diff_snapshots
from medlive.snapshot.export import export_slice
from medlive.snapshot.load import open_snapshot
from medlive.snapshot.manifest import unknown_note
from medlive.snapshot.slices import Slice
from medlive.snapshot.verify.steps import verify_snapshot

_CHANGE = ("change", "case_id", "from_revision", "to_revision", "reason")
_NOT_SHOWN = ("files", "columns", "enumerations", "lineage", "why_not", "warnings")
"""Parts of a manifest that are for machines, or shown as remarks."""
_LISTED = ("version", "state", "cases", "criteria", "publishable", "parent", "path")


def list_() -> Result:
    """List the snapshots that were frozen here, newest first."""
    from medlive.db.release.snapshots import list_snapshots

    return list_result(with_session(list_snapshots), _LISTED)


def show(snapshot: SnapshotArgument) -> Result:
    """Show what a snapshot holds and how it was made, from its manifest."""
    manifest = open_snapshot(snapshot).manifest
    notes = []
    if manifest.partial:
        notes.append(f"partial: {manifest.partial.in_short}")
    notes += [f"warning: {warning}" for warning in manifest.warnings]
    notes += [f"not publishable: {reason}" for reason in manifest.why_not]
    value = manifest.model_dump(mode="json")
    title = f"medlive {manifest.version}, made {manifest.created_at:%Y-%m-%d}"
    if not manifest.publishable:
        title += ", NOT PUBLISHABLE"
    shown = {name: part for name, part in value.items() if name not in _NOT_SHOWN}
    return Result(
        value,
        [Grid(["what", "value"], dotted(shown), title)],
        notes,
    )


def verify(
    snapshot: SnapshotArgument,
    public_key: PublicKeyOption = None,
) -> Result:
    """Verify a snapshot from its files alone; exit status 1 when a step fails.

    Args:
        public_key: The key that must have signed it [the key it names: proves no origin].
    """
    report = verify_snapshot(snapshot, public_key=public_key)
    result = describe_report(report, ["unknown"])
    note = unknown_note(report.unknown)
    if result.failure or not note:
        return result
    known = f"What is in it is authentic to its digests, but {note}"
    return result._replace(notes=[*result.notes, known])


def keygen(out: Path | None = None) -> Result:
    """Make a key pair to sign snapshots with, in minisign's format; an existing one is never overwritten.

    Args:
        out: The folder for the keys [keys, in medlive's home].
    """
    folder = out or read_settings().home / "keys"
    secret_text, public_text = generate()
    secret, public = write_keys(folder, secret_text, public_text)
    key = PublicKey.parse(public_text)
    value = {
        "secret_key": secret,
        "public_key": public,
        "key_id": key.id_text(),
        "line": key.line(),
    }
    text = f"secret key: {secret}\npublic key: {public}\nkey id: {key.id_text()}\n{key.line()}"
    notes = [
        f"To sign: set {FILE_VARIABLE}={secret}, or put the file's text into {KEY_VARIABLE}.",
        f"It is not encrypted: whoever can read {secret.name} can sign in your name.",
        "Keep a copy of it offline, and never in a repository, database or configuration.",
        f"Publish {public.name} apart from snapshots: a snapshot cannot prove that its own key is genuine.",
        f"To check: minisign -VHm SHA256SUMS -P {key.line()}",
    ]
    return Result(value, [Text(text)], notes)


def fetch(
    version: Annotated[str, Argument(metavar="VERSION|latest")],
    *,
    from_: str,
    out: Path = Path(),
    public_key: PublicKeyOption = None,
) -> Result:
    """Fetch a published snapshot and verify it; a fetch that was cut off goes on where it stopped.

    Args:
        version: Such as 2026.W47.
        from_: The address or folder where snapshots are published.
        out: The folder in which medlive-VERSION is made.
        public_key: Refuse what this minisign key has not signed.
    """
    done = wait_for(fetch_snapshot(from_, version, out, public_key))
    verb = "was here already" if done["already"] else "fetched"
    text = f"medlive {done['version']} ({done['digest']}) {verb}, in {done['path']}"
    skipped = ", but steps were skipped" if done["skipped"] else ""
    notes = [f"it verifies{skipped}"]
    notes += [f"skipped: {step}" for step in done["skipped"]]
    if done["trust"] == "integrity":
        notes.append(TRUST["integrity"])
    if done["why_not"]:
        notes.append("not publishable: " + "; ".join(done["why_not"]))
    if done["errata_kept"]:
        notes.append(f"the errata here were kept: {done['errata_kept']}")
    if done["errata"]:
        notes.append(f"{done['errata']} errata concern it: see errata.json beside it")
    return Result(done, [text], notes)


def diff(
    old: SnapshotArgument,
    new: SnapshotArgument,
    limit: Annotated[int, Option(min=0)] = 20,
    unverified: UnverifiedOption = False,
) -> Result:
    """Show which cases changed from an older snapshot to a newer one, with reasons.

    Args:
        limit: How many cases of each kind are listed.
    """
    for folder in () if unverified else (old, new):
        if not (report := verify_snapshot(folder)).ok:
            raise CheckFailed(
                report.summary(), hint="--unverified compares it as it is"
            )
    difference = diff_snapshots(old, new, limit=limit)
    notes = []
    if not difference["has_reasons"]:
        notes.append(
            "no reasons are stated: the older one is not the parent of the newer"
        )
    if unverified:
        notes.append("not verified: what the files say was taken as it stands")
    return Result(difference, _describe_diff(difference), notes)


def _describe_diff(difference: Mapping[str, Any]) -> Shown:
    """The counts of changed cases, the cases, and the edits of each."""
    old, new, counts = difference["old"], difference["new"], difference["counts"]
    yield f"{old} → {new}"
    yield Grid(["cases", "count"], counts.items())
    cases, edits = [], []
    for kind, count in counts.items():
        for case in difference[kind]:
            cases.append({"change": kind, **case})
            for edit in case["fields"]:
                edits.append([case["case_id"], edit["name"], edit["old"], edit["new"]])
            for edit in case["criteria"]:
                criterion = edit["new"] or edit["old"]
                what = f"{criterion['criterion_id']}: {', '.join(edit['edits'])}"
                both = map(_criterion, (edit["old"], edit["new"]))
                edits.append([case["case_id"], what, *both])
        if left := count - len(difference[kind]):
            yield f"{left} more {kind}; --limit lists more"
    yield table_of(cases, _CHANGE, "changed cases")
    yield Grid(["case", "what", "old", "new"], edits, "edits")


def _criterion(criterion: Mapping[str, Any] | None) -> str | None:
    """A criterion in words; None where there is none."""
    if criterion is None:
        return None
    return "{criterion} ({axis}, {points:+d})".format(**criterion)


def export(
    snapshot: SnapshotArgument,
    *,
    out: Path,
    part: Slice,
    public_key: PublicKeyOption = None,
    unverified: UnverifiedOption = False,
) -> Result:
    """Write a slice of a snapshot as one file of LiveMedBench's JSON.

    The file is not a snapshot: it has no manifest and nothing verifies it but its digest, which is printed with
    that of the snapshot it was cut from.

    Args:
        out: The file to write; it must not exist.
        public_key: The key, or its file, that signed it.
    """
    loaded = open_snapshot(snapshot, verify=not unverified, public_key=public_key)
    cases = loaded.take(part)
    digest = export_slice(cases, out)
    manifest = loaded.manifest
    value = {
        "path": out,
        "cases": len(cases.cases),
        "digest": digest,
        "snapshot_digest": loaded.digest,
        "of_cases": manifest.counts.cases,
        "snapshot": manifest.version,
        "publishable": manifest.publishable,
    }
    text = f"{out}: {len(cases.cases)} of {manifest.counts.cases} cases, {digest}"
    cut = f"medlive-{loaded.version} ({loaded.digest})"
    notes = [f"cut from {cut}: cite the snapshot, not this file"]
    if not manifest.publishable:
        notes.append("not publishable: " + "; ".join(manifest.why_not))
    return Result(value, [text], notes)
