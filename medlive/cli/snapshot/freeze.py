"""`medlive snapshot freeze` and `rebuild`: a week's release, and the proof that its folder is what was frozen."""

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive import __version__
from medlive.cli.database import with_database
from medlive.cli.options import JsonOption
from medlive.cli.output import Tick, print_result, progress, say
from medlive.config import load_settings
from medlive.errors import CheckFailed

if TYPE_CHECKING:
    from medlive.service.release.freeze import FreezeResult

_MOST_REASONS = 50
"""Reasons on a terminal; --json has them all."""


def freeze(
    week: Annotated[
        str | None, typer.Option("--week", metavar="YYYY.WNN", help="The ISO week; default: the present one.")
    ] = None,
    hold_out: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Hold this share of new cases out: salted digests now, cases later."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Drop what an unfinished freeze of the week fixed, and fix it anew.")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Sign with this key; default: MEDLIVE_SIGNING_KEY…."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Freeze the cases that are ready into the week's snapshot and write its folder.

    A freeze that was broken off goes on where it stopped. A frozen week stays as it is; its folder is built again
    where it is missing or not whole.
    """
    from medlive.integrity.signing import load_signing_key
    from medlive.service.release.freeze import freeze as freeze_week

    settings = load_settings().settings
    key = load_signing_key(os.environ, key_file)
    bars: list[Tick] = []
    with ExitStack() as stack:

        def tick(number: int, total: int) -> None:
            # Only where the gates have something to read.
            if not bars:
                bars.append(stack.enter_context(progress("cases read by the gates")))
            bars[0](number, total)

        done = with_database(
            settings,
            lambda database: freeze_week(
                database, settings, week, key=key, hold_out=hold_out, anew=anew, notify=say, tick=tick
            ),
        )
    # Cases by gate, one that several gates kept out under each.
    gates = dict(sorted(Counter(gate for gate, _ in {(h.gate.value, h.case_id) for h in done.kept_out}).items()))
    value = {
        "version": done.version, "path": done.path, "cases": done.cases, "criteria": done.criteria,
        "held": done.held, "revealed": done.revealed, "dropped": done.dropped, "key_id": done.key_id,
        "publishable": done.publishable, "why_not": done.why_not, "already_frozen": done.already,
        "built_again": done.built_again, "kept_out_by_gate": gates,
        "kept_out": [{"case_id": h.case_id, "gate": h.gate.value, "detail": h.detail} for h in done.kept_out],
    }  # fmt: skip
    print_result(value, as_json, lambda: _print(done, gates))


def _print(done: "FreezeResult", gates: dict[str, int]) -> None:
    verb = "was frozen already" if done.already else "frozen"
    print(f"{done.version} {verb}: {done.cases} cases, {done.criteria} criteria, in {done.path}")
    if done.built_again:
        say("its folder was not whole and was built again, byte for byte as it was frozen")
    if done.held or done.revealed or done.dropped:
        say(f"held out: {done.held} cases; {done.revealed} are shown now, {done.dropped} were dropped unshown")
    say(f"signed with key {done.key_id}" if done.key_id else "not signed: no key is set")
    for reason in done.why_not:
        say(f"not publishable: {reason}")
    for gate, count in gates.items():
        say(f"kept out by {gate}: {count} cases")
    for hit in done.kept_out[:_MOST_REASONS]:
        say(f"kept out: {hit.case_id}: {hit.gate.value}: {hit.detail}")
    if len(done.kept_out) > _MOST_REASONS:
        say(f"and {len(done.kept_out) - _MOST_REASONS} more reasons; --json has them all")


def rebuild(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version of a snapshot frozen here.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Keep the folder that is built there.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build a frozen snapshot again from its rows and compare it byte by byte; exit status 1 when it differs."""
    from medlive.service.release.rebuild import IDENTITY
    from medlive.service.release.rebuild import rebuild as rebuild_version

    settings = load_settings().settings

    done = with_database(settings, lambda database: rebuild_version(database, settings, version, out))
    value = {
        "version": done.version, "folder": done.folder, "is_there": done.folder_exists,
        "identical": done.identical, "expected": done.expected, "got": done.got,
        "differing": done.differing, "parquet_writers": done.writers, "out": done.out,
    }  # fmt: skip
    print_result(
        value, as_json, lambda: print(f"{done.version}: identical, {done.got}") if done.identical else None
    )
    if done.writers is not None:
        say(f"parquet was written by {done.writers[0]} and is written by {done.writers[1]} here: JSON decides")
    if done.out is not None:
        say(f"built in {done.out}")
    if done.identical:
        return
    if not done.folder_exists:
        raise CheckFailed(
            f"{done.folder} is not there", hint=f"medlive snapshot freeze --week {version} builds it"
        )
    if not done.differing:
        raise CheckFailed(f"the frozen rows now make {done.got}, {done.expected} was frozen")
    for name in () if as_json else done.differing:
        print(name)
    raise CheckFailed(
        f"{len(done.differing)} files of {done.folder} are not what the frozen rows make",
        hint=None
        if set(done.differing) & set(IDENTITY)
        else "rows, changes and held-out cases are as they were frozen: what differs is the wording of this "
        f"medlive, {__version__}; with the medlive that froze it the bytes are the same",
    )
