"""`medlive snapshot verify`: what lies in a folder is what was frozen."""

from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, say
from medlive.cli.verification import print_steps, step_as_json
from medlive.config import load_settings
from medlive.errors import BadInput, CheckFailed


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
    from medlive.integrity.signing import public_key_of
    from medlive.service.paths import snapshot_folder
    from medlive.snapshot.verify.run import verify_snapshot

    folder = snapshot_folder(load_settings().settings, path)
    for place in (folder, *((parent,) if parent else ())):
        if not place.exists():
            raise BadInput(f"{place} is not there")
    report = verify_snapshot(folder, public_key=public_key_of(public_key), parent=parent)
    value = {
        "path": report.path, "ok": report.ok, "complete": report.complete, "trust": report.trust.value,
        "steps": [step_as_json(step) for step in report.steps],
    }  # fmt: skip
    failure = None if report.ok else CheckFailed(f"{folder.name} does not verify")
    print_result(value, as_json, lambda: print_steps(report.steps), failure=failure)
    say(f"{folder.name} verifies" + ("" if report.complete else ", but steps were skipped"))
    say(_TRUST[report.trust.value])


_TRUST = {
    "not signed": "It is not signed: nothing proves where it came from.",
    "integrity": "Its signature is of the key that it names itself: this proves integrity, not origin. "
    "Give --public-key to prove both.",
    "origin": "It was signed with the key that was given.",
    "broken": "Its signature could not be looked at.",
}
