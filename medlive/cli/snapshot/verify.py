"""`medlive snapshot verify`: what lies in a folder is what was frozen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive.cli.output import JsonOption, print_json, print_table, say
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from medlive.snapshot.verify.run import StepResult, VerificationReport


def verify(
    path: Annotated[str, typer.Argument(help="A snapshot's folder, or the version of one frozen here.")],
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="The key that must have signed it. Without one, a signature is checked with the key that the "
            "snapshot itself names, which proves that nothing has changed, not where it came from.",
        ),
    ] = None,
    parent: Annotated[
        Path | None,
        typer.Option(
            "--parent", metavar="PATH", help="The parent's folder; default: the one beside it, if it is there."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify a snapshot from its files alone; exit status 1 when a step fails."""
    from medlive.integrity.public_key import public_key_of
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.verify.run import verify_snapshot

    folder = snapshot_folder(load_settings().settings, path)
    for place in (folder, *((parent,) if parent else ())):
        if not place.exists():
            raise BadInput(f"{place} is not there")
    report = verify_snapshot(folder, public_key=public_key_of(public_key), parent=parent)
    if as_json:
        _print_json(report)
    else:
        print_table(
            ["step", "what", "state", "finding"],
            [[s.number, s.name, s.state.value, _told(s)] for s in report.steps],
        )
    if not report.ok:
        raise CheckFailed(f"{folder.name} does not verify")
    say(f"{folder.name} verifies" + ("" if report.complete else ", but steps were skipped"))
    say(_TRUST[report.trust.value])


def _told(step: "StepResult") -> str | None:
    more = step.faults - len(step.findings)
    return "; ".join([*map(str, step.findings), *([f"and {more} more"] if more else [])]) or step.why or None


_TRUST = {
    "not signed": "It is not signed: nothing proves where it came from.",
    "integrity": "Its signature is of the key that it names itself: this proves integrity, not origin. "
    "Give --public-key to prove both.",
    "origin": "It was signed with the key that was given.",
    "broken": "Its signature could not be looked at.",
}


def _print_json(report: "VerificationReport") -> None:
    print_json(
        {
            "path": report.path, "ok": report.ok, "complete": report.complete, "trust": report.trust.value,
            "steps": [
                {"number": s.number, "name": s.name, "state": s.state.value, "why": s.why, "faults": s.faults,
                 "findings": [{"file": f.file, "expected": f.expected, "got": f.got} for f in s.findings]}
                for s in report.steps
            ],
        }
    )  # fmt: skip
