"""The public corpora that medlive fetches, as `sources.toml` lists them."""

import tomllib
from dataclasses import replace
from importlib.resources import files
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from medlive.errors import UsageError
from medlive.evidence.fetch.model import Source

_TABLE = tomllib.loads(files(__package__).joinpath("sources.toml").read_text("utf-8"))
SOURCES = tuple(
    TypeAdapter(Source).validate_python(
        {"name": name, **_TABLE["publishers"][entry["publisher"]], **entry}
    )
    for name, entry in _TABLE["corpora"].items()
)


def find_source(name: str, mirror: str | None = None) -> Source:
    """Return the source of that name, at its mirror if one is given.

    Args:
        name: A name of `SOURCES`.
        mirror: The address of a copy that is arranged in the same way; its host is then the only one asked.

    Raises:
        UsageError: for an unknown name, or a mirror that is no http address.
    """
    sources = {source.name: source for source in SOURCES}
    if name not in sources:
        raise UsageError(
            f"{name!r} is not a corpus that medlive fetches",
            hint=f"choose from {', '.join(sources)}",
        )
    source = sources[name]
    if mirror is None:
        return source
    host = urlsplit(mirror)
    if host.scheme not in ("http", "https") or not host.netloc or "@" in host.netloc:
        raise UsageError(
            f"[evidence.mirrors] {name} = {mirror!r}: expected an http or https address"
        )
    base = mirror.rstrip("/") + "/"
    page = source.address.rpartition("/")[2]
    return replace(
        source,
        address=base + page,
        files=base,
        hosts=frozenset({host.netloc}),
        mirrored=True,
    )
