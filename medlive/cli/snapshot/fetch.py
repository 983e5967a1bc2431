"""`medlive snapshot fetch`: a published snapshot comes here, verified."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, progress, say, wait_for


def fetch(
    version: Annotated[str, typer.Argument(metavar="VERSION|latest", help="Such as 2026.W47.")],
    source: Annotated[str, typer.Option("--from", metavar="URL_OR_FOLDER", help="Where snapshots are published.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where medlive-VERSION goes.")] = Path(),
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="Refuse what this minisign key has not signed.")
    ] = None,
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
