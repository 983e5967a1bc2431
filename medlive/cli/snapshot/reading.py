"""`medlive snapshot list|show|verify|keygen|fetch|diff|export`: frozen snapshots, and what holders do with them."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Argument, Option

from medlive.cli.options import (
    CaseFilter,
    SnapshotArgument,
    UnverifiedOption,
    read_settings,
)
from medlive.cli.output import (
    Grid,
    Result,
    checks_table,
    fields_of,
    shortened,
    table_of,
    wait_for,
    with_session,
)
from medlive.errors import BadInput, CheckFailed, UsageError
from medlive.guard.printable import printable
from medlive.instance.loading import dotted
from medlive.instance.paths import snapshot_folder
from medlive.integrity.signing import (
    FILE_VARIABLE,
    KEY_VARIABLE,
    PublicKey,
    generate,
    public_key_of,
    write_keys,
)
from medlive.publishing.download import fetch_snapshot
from medlive.snapshot.diff import Change, ChangeKind, SnapshotDiff, diff_snapshots
from medlive.snapshot.export import SUFFIXES, ExportFormat, export_slice
from medlive.snapshot.load import open_snapshot
from medlive.snapshot.manifest import unknown_note
from medlive.snapshot.verify.steps import verify_snapshot

_CUT = 80
"""Characters of a value in a diff."""
_TRUST = {
    "not signed": "Unsigned: its origin cannot be verified.",
    "integrity": "Signed with the key that it names itself: this proves integrity, not origin. "
    "Give --public-key to prove both.",
    "origin": "Signed with the key that was given.",
    "broken": "Its signature could not be checked.",
}

_NOT_SHOWN = ("files", "columns", "enumerations", "lineage", "why_not", "warnings")
"""Parts of a manifest that are for machines, or shown as remarks."""
_LISTED = (
    "version",
    "state",
    "cases",
    "criteria",
    "publishable",
    "parent",
    "path",
)


def list_() -> Result:
    """List the snapshots that were frozen here, newest first."""
    from medlive.db.release.snapshots import list_snapshots

    rows = [fields_of(info, _LISTED) for info in with_session(list_snapshots)]
    return Result(rows, [table_of(rows, _LISTED)])


def show(path: SnapshotArgument) -> Result:
    """Show what a snapshot holds and how it was made, from its manifest."""

    snapshot = open_snapshot(snapshot_folder(read_settings(), path))
    manifest = snapshot.manifest
    notes = []
    if manifest.partial:
        notes.append(f"partial: {manifest.partial.in_short}")
    for warning in manifest.warnings:
        notes.append(f"warning: {warning}")
    for reason in manifest.why_not:
        notes.append(f"not publishable: {reason}")
    value = manifest.model_dump(mode="json")
    title = f"medlive {manifest.version}, made {manifest.created_at:%Y-%m-%d}"
    if not manifest.publishable:
        title += ", NOT PUBLISHABLE"
    rows: list[tuple[str, object]] = []
    for name, part in value.items():
        if name not in _NOT_SHOWN:
            rows += dotted(part, name)
    return Result(value, [Grid(["what", "value"], rows, title)], notes)


def verify(
    path: SnapshotArgument,
    public_key: Path | None = None,
    parent: Path | None = None,
) -> Result:
    """Verify a snapshot from its files alone; exit status 1 when a step fails.

    Args:
        public_key: The key that must have signed it [the key it names: proves no origin].
        parent: The parent's folder [beside it].
    """

    folder = snapshot_folder(read_settings(), path)
    _check_exist(filter(None, [folder, parent]))
    report = verify_snapshot(
        folder, public_key=public_key_of(public_key), parent=parent
    )
    names = ("path", "ok", "complete", "trust", "unknown", "steps")
    value, shown = fields_of(report, names), [checks_table(report.steps)]
    if not report.ok:
        failure = CheckFailed(f"{folder.name} does not verify")
        return Result(value, shown, failure=failure)
    skipped = "" if report.complete else ", but steps were skipped"
    notes = [f"{folder.name} verifies{skipped}", _TRUST[report.trust]]
    if note := unknown_note(report.unknown):
        notes.append(f"What is in it is authentic to its digests, but {note}")
    return Result(value, shown, notes)


def _check_exist(folders: Iterable[Path]) -> None:
    for folder in folders:
        if not folder.exists():
            raise BadInput(f"{folder} does not exist")


def keygen(out: Path | None = None) -> Result:
    """Make a key pair to sign snapshots with, in minisign's format; an existing one is never overwritten.

    Args:
        out: Where to [keys, in medlive's home].
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
    source: Annotated[str, Option("--from", metavar="URL_OR_FOLDER")],
    out: Path = Path(),
    public_key: Path | None = None,
    allow_older: bool = False,
) -> Result:
    """Fetch a published snapshot and verify it; a fetch that was cut off goes on where it stopped.

    Args:
        version: Such as 2026.W47.
        source: Where snapshots are published.
        out: Where medlive-VERSION goes.
        public_key: Refuse what this minisign key has not signed.
        allow_older: Take a latest version that is older than what is there.
    """

    key = public_key_of(public_key)
    done = wait_for(fetch_snapshot(source, version, out, key, allow_older=allow_older))
    verb = "was here already" if done.already else "fetched"
    text = f"medlive {done.version} ({done.digest}) {verb}, in {done.path}"
    skipped = "" if done.complete else ", but steps were skipped"
    notes = [f"it verifies{skipped}"]
    for step in done.skipped:
        notes.append(f"skipped: {step}")
    if done.trust == "integrity":
        notes.append(_TRUST[done.trust])
    if done.why_not:
        notes.append("not publishable: " + "; ".join(done.why_not))
    if done.errata_kept:
        notes.append(f"the errata here were kept: {done.errata_kept}")
    if done.errata:
        notes.append(f"{done.errata} errata concern it: see errata.json beside it")
    return Result(done, [text], notes)


def diff(
    old: Annotated[str, Argument(metavar="A")],
    new: Annotated[str, Argument(metavar="B")],
    limit: Annotated[int, Option(min=0)] = 20,
    unverified: UnverifiedOption = False,
) -> Result:
    """Show what changed from snapshot A to B: cases, with reasons, and how the releases were made.

    Args:
        old: The older snapshot: its folder or version.
        new: The newer one.
        limit: How many cases of each kind are listed.
    """

    settings = read_settings()
    folders = [snapshot_folder(settings, version) for version in (old, new)]
    _check_exist(folders)
    for folder in folders if not unverified else ():
        if not (report := verify_snapshot(folder)).ok:
            raise CheckFailed(
                report.summary(), hint="--unverified compares it as it is"
            )
    difference = diff_snapshots(*folders, limit=limit)
    notes = [f"reasons: {difference.reasons_from}"]
    if unverified:
        notes.append("not verified: what the files say was taken as it stands")
    cases: dict[str, list[object]] = {kind.value: [] for kind in ChangeKind}
    for case in difference.listed:
        row = asdict(case)
        cases[row.pop("kind")].append(row)
    value = {
        "old": difference.old.version,
        "new": difference.new.version,
        "counts": difference.counts,
        "reasons_from": difference.reasons_from,
        "made_otherwise": difference.settings,
        **cases,
    }
    return Result(value, _describe_diff(difference), notes)


def _describe_diff(difference: SnapshotDiff) -> Iterator[Grid | str]:
    old, new = difference.old.version, difference.new.version
    yield f"{old} → {new}"
    yield Grid(["cases", "count"], difference.counts.items())
    shown = []
    for edit in difference.settings:
        shown.append([edit.name, _short(edit.old), _short(edit.new)])
    if shown:
        yield Grid(["how it was made", old, new], shown)
    for kind in ChangeKind:
        left = difference.counts[kind]
        for case in difference.listed:
            if case.kind is kind:
                left -= 1
                yield from _lines(case)
        if left:
            yield f"{left} more {kind.value}; --limit lists more"


def _lines(case: Change) -> Iterator[str]:
    revisions = []
    for revision in (case.from_revision, case.to_revision):
        if revision is not None:
            revisions.append(str(revision))
    line = f"{case.kind.value} {case.case_id} (revision {' → '.join(revisions)})"
    yield f"{line}: {case.reason}" if case.reason else line
    for edit in case.fields:
        yield f"  {edit.name}: {_short(edit.old)} → {_short(edit.new)}"
    for change in case.criteria:
        named = change.new or change.old or {}
        text = f"{_short(named['criterion'])} ({named['axis']}, {named['points']:+d})"
        if change.old is not None and change.new is not None:
            changed = []
            for name, new in change.new.items():
                if (old := change.old[name]) != new:
                    changed.append(f"{_short(old)} → {_short(new)}")
            text = "; ".join(changed)
        yield f"  {named['criterion_id']} {', '.join(change.edits)}: {text}"


def _short(value: object) -> str:
    """A value on one line, at most 80 characters of it, in signs that can stand on a screen."""
    text = "none" if value is None else str(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    return shortened(printable(text[: 4 * _CUT]), _CUT)


def export(
    snapshot: Annotated[str, Argument(metavar="PATH")],
    out: Annotated[Path, Option()],
    form: Annotated[ExportFormat | None, Option("--format")] = None,
    *,
    part: CaseFilter,
    public_key: Annotated[str | None, Option(metavar="KEY")] = None,
    unverified: UnverifiedOption = False,
) -> Result:
    """Write a slice of a snapshot as one file: LiveMedBench's JSON, or JSON Lines with a case a line.

    The file is not a snapshot: it has no manifest and nothing verifies it but its digest, which is printed with
    that of the snapshot it was cut from.

    Args:
        snapshot: A snapshot's folder, a version, or latest.
        out: The file to write; it must not exist.
        form: Default: by the suffix.
        public_key: The key, or its file, that signed it.
    """
    if (chosen := form or SUFFIXES.get(out.suffix.lower())) is None:
        hint = "--format livemedbench or jsonl"
        raise UsageError(f"{out.name!r} has no known suffix", hint=hint)
    loaded = open_snapshot(snapshot, verify=not unverified, public_key=public_key)
    cases = loaded.filter(**part.given())
    digest = export_slice(cases, out, chosen)
    criteria = sum(len(case.criteria) for case in cases.cases)
    manifest = loaded.manifest
    value = {
        "path": out,
        "format": chosen,
        "cases": len(cases.cases),
        "criteria": criteria,
        "digest": digest,
        "snapshot_digest": loaded.digest,
        "of_cases": manifest.counts.cases,
        "snapshot": manifest.version,
        "publishable": manifest.publishable,
    }
    text = f"{out}: {len(cases.cases)} of {manifest.counts.cases} cases, {criteria} criteria, {digest}"
    cut = f"medlive-{loaded.version} ({loaded.digest})"
    notes = [f"cut from {cut}: cite the snapshot, not this file"]
    if not manifest.publishable:
        notes.append("not publishable: " + "; ".join(manifest.why_not))
    return Result(value, [text], notes)
