"""`medlive snapshot diff`: what changed between two releases."""

from typing import Annotated, Any

from typer import Argument, Option

from medlive.cli.options import JsonOption
from medlive.cli.output import attributes, print_result, print_table, say
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed
from medlive.integrity.folder import printable
from medlive.snapshot.diff import CaseDiff, ChangeKind, CriterionEdit, SnapshotDiff

_CUT = 80


def diff(
    old: Annotated[str, Argument(metavar="A", help="The older snapshot: its folder or version.")],
    new: Annotated[str, Argument(metavar="B", help="The newer one.")],
    limit: Annotated[int, Option(min=0, help="How many cases of each kind are listed.")] = 20,
    unverified: Annotated[bool, Option("--unverified", help="Do not verify them first.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changed from snapshot A to B: cases, with reasons, and how the releases were made."""
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.diff import diff_snapshots
    from medlive.snapshot.verify.run import verify_snapshot

    settings = load_settings().settings
    folders = [snapshot_folder(settings, given) for given in (old, new)]
    for folder in folders:
        if not folder.exists():
            raise BadInput(f"{folder} does not exist")
    for folder in folders if not unverified else ():
        if not (report := verify_snapshot(folder)).ok:
            raise CheckFailed(report.summary(), hint="--unverified compares it as it is")
    found = diff_snapshots(*folders, limit=limit)
    notes = ["not verified: what the files say was taken as it stands"] if unverified else []
    print_result(_rows(found), as_json, lambda: _print(found), notes=notes)


def _print(found: SnapshotDiff) -> None:
    print(f"{found.old.version} → {found.new.version}")
    print_table(["cases", "count"], [[kind.value, n] for kind, n in found.counts.items()])
    if found.touched:
        print_table(["in revised cases", "cases"], [[name, n] for name, n in found.touched.items()])
    if found.settings:
        shown = [[e.name, _short(e.old), _short(e.new)] for e in found.settings]
        print_table(["how it was made", found.old.version, found.new.version], shown)
    for kind in ChangeKind:
        cases = [case for case in found.listed if case.kind is kind]
        for case in cases:
            print("\n".join(_lines(case, found.reasons.get(case.case_id))))
        if left := found.counts[kind] - len(cases):
            say(f"{left} more {kind.value}; --limit lists more")
    say(f"reasons: {found.reasons_from}")


def _lines(case: CaseDiff, reason: str | None) -> list[str]:
    steps = " → ".join(str(r) for r in (case.from_revision, case.to_revision) if r is not None)
    lines = [printable(f"{case.kind.value} {case.case_id} (revision {steps})" + (f": {reason}" if reason else ""))]
    lines += [f"  {e.name}: {_short(e.old)} → {_short(e.new)}" for e in case.fields]
    return lines + [f"  {_criterion(edit)}" for edit in case.criteria]


def _criterion(edit: CriterionEdit) -> str:
    named = edit.new or edit.old or {}
    text = printable(f"{named['criterion_id']} {', '.join(edit.edits)}: ")
    if edit.old is None or edit.new is None:
        return text + f"{_short(named['criterion'])} ({named['axis']}, {named['points']:+d})"
    names = ("criterion", "axis", "points", "criterion_id", "position")
    changed = [f"{_short(edit.old[n])} → {_short(edit.new[n])}" for n in names if edit.old[n] != edit.new[n]]
    return text + "; ".join(changed)


def _short(value: Any) -> str:
    """A value on one line, at most 80 characters of it, in signs that can stand on a screen."""
    text = "none" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = "".join(c if c.isprintable() else " " for c in text[: 4 * _CUT])
    return text if len(text) <= _CUT else text[: _CUT - 1] + "…"


def _rows(found: SnapshotDiff) -> dict[str, Any]:
    names = "old=old.version new=new.version counts revised_cases_by_what_changed=touched reasons_from"
    rows = attributes(found, names) | {"made_otherwise": [attributes(e, "name old new") for e in found.settings]}
    for kind in ChangeKind:
        rows[kind.value] = [
            attributes(c, "case_id from_revision to_revision") | {
                "reason": found.reasons.get(c.case_id),
                "fields": [attributes(e, "name old new") for e in c.fields],
                "criteria": [attributes(e, "edits old new") for e in c.criteria],
            }
            for c in found.listed if c.kind is kind
        ]  # fmt: skip
    return rows
