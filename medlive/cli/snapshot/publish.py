"""`medlive snapshot publish`: a frozen snapshot goes where others find it."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from medlive.cli.options import JsonOption
from medlive.cli.output import print_result, print_table, progress, say
from medlive.config import load_settings

if TYPE_CHECKING:
    from medlive.publishing.publish import Published


class To(StrEnum):
    """Kinds of places."""

    FOLDER = "folder"
    S3 = "s3"
    HUGGINGFACE = "huggingface"


def publish(
    snapshot: Annotated[
        str | None, typer.Argument(metavar="VERSION_OR_PATH", help="Default: the newest that is frozen here.")
    ] = None,
    to: Annotated[
        To | None, typer.Option("--to", help="What kind of place. Default: config, else a folder.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="WHERE", help="A folder, s3://bucket/prefix or org/name. Default: config."),
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option("--endpoint-url", help="The store's or hub's address, where it is not the usual.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Where readers find the place. Default: links are relative.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="Refuse what this minisign key has not signed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Verify and compare; send nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish a verified snapshot; its files never change there, and a run that was cut off is resumed."""
    from medlive.integrity.signing import public_key_of
    from medlive.service.release.publish import find_snapshot, publish_snapshot

    settings = load_settings().settings
    folder = find_snapshot(settings, snapshot)
    key = public_key_of(public_key)
    given = {"to": to and to.value, "at": at, "endpoint_url": endpoint_url, "base_url": base_url}
    section = settings.publish.model_copy(update={name: value for name, value in given.items() if value})
    with progress("bytes sent") as tick:
        done = publish_snapshot(section, folder, key, dry_run=dry_run, progress=tick)
    if not done.signed:
        say("the release has no key: nothing proves to others who made it")
    for version in done.unfinished:
        say(f"half published there: {version}; publish it again to finish it")
    print_result(asdict(done), as_json, lambda: _print(done))


def _print(done: "Published") -> None:
    would = "would be " if done.dry_run else ""
    print(
        f"medlive {done.version} ({done.digest}) at {done.where}: {len(done.sent)} files, {done.bytes_sent} bytes "
        f"{would}sent; {len(done.already)} were there"
    )
    if done.latest is not None:
        print(f"newest there: {done.latest}" + (f"; updated: {', '.join(done.updated)}" if done.updated else ""))
    if done.dry_run and done.sent:
        print_table(["would be sent"], [[name] for name in done.sent])
