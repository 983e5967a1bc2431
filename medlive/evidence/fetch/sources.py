"""The public corpora that medlive fetches, as `sources.toml` lists them, and the ledger of what was fetched."""

import os
import tomllib
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from medlive.errors import BadInput, UsageError, first_fault
from medlive.integrity.digest import digest_json
from medlive.integrity.folder import sync
from medlive.integrity.log import writing
from medlive.integrity.paths import create_below, open_below, split_name

LEDGER = "fetched.json"

ArticleType = Literal[
    "guideline", "systematic-review", "meta-analysis", "review", "trial"
]
"""Types by which PubMed's articles are chosen."""


class Selection(BaseModel, frozen=True):
    """Which of PubMed's articles are kept; empty: all."""

    types: tuple[ArticleType, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that a publisher offers."""

    name: str  # Below the corpus's folder; safe by `split_name`
    url: str
    mark: str  # Changes when the publisher changes the file
    md5: str | None = None  # 32 hexadecimal digits
    # Where the MD5 is published, if it is not known yet
    checksum_url: str | None = None

    def __post_init__(self) -> None:
        split_name(self.name)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A public corpus: where it is, whose it is, how large."""

    name: str  # Also the corpus's name in the index
    about: str
    address: str  # Of the page or list that names the files
    files: str  # What the addresses of the files begin with
    # The publisher's; with the port where it is not the scheme's own
    hosts: frozenset[str]
    publisher: str  # Whose layout its files have
    reader: str  # The kind of corpus
    wanted: str = ""  # Which files of the list: a book's accession id, a kind of labels, a search for articles
    licence: str
    checksums: str  # What the publisher gives to check files by
    typical_bytes: int  # Of the whole, as last known
    typical_file: int  # Of one file
    largest: int  # No file is larger
    single: bool = False  # One file, which is the corpus itself
    # Whether a listed file that is not there is passed over
    may_be_absent: bool = False
    pause_s: float = 0.5  # Between two requests to a host
    mirrored: bool = False  # Whether the user named the host
    # What `--recommended` takes of it; None: it is not in it
    recommended: Selection | None = None


_TABLE = tomllib.loads(files(__package__).joinpath("sources.toml").read_text("utf-8"))
ARTICLE_TYPES: dict[ArticleType, list[str]] = _TABLE["article_types"]
"""Type → PubMed's own types; each includes its subtypes ("Clinical Trial, Phase III") except veterinary ones."""
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


class FetchedFile(BaseModel, frozen=True):
    """A file as it was fetched."""

    name: str
    url: str
    mark: str  # What the publisher's list said of this version
    size: int  # As published
    digest: str  # As published: `sha256:…`
    # `md5:…` as published, which the file has; None where none is published
    checksum: str | None
    kept_digest: str  # As it is here, after the selection
    fetched_at: datetime


class Ledger(BaseModel):
    """The whole account of a fetched corpus, in its folder: what came from where, when, and under which digests."""

    format_version: Literal[1] = 1
    source: str
    address: str
    licence: str
    selection: Selection = Selection()
    files: dict[str, FetchedFile] = {}  # By name
    complete: bool = False  # Whether every file that the publisher lists is here
    checked_at: datetime | None = None  # When the publisher's list was read last

    @property
    def digest(self) -> str:
        """The identity of the files that are here."""
        return digest_json(
            {name: file.kept_digest for name, file in self.files.items()}
        )

    @property
    def fetched_at(self) -> datetime | None:
        """When the newest file was fetched."""
        return max((file.fetched_at for file in self.files.values()), default=None)

    def write(self, folder: Path) -> None:
        """Replace the folder's ledger in one step. Raises DiskFull and BadInput."""
        new = f"{LEDGER}.new"
        with writing(folder / LEDGER), create_below(folder, new) as handle:
            handle.write(self.model_dump_json(indent=1).encode())
            os.fsync(handle.fileno())
        (folder / new).replace(folder / LEDGER)
        sync(folder)


def read_ledger(folder: Path) -> Ledger | None:
    """Read a folder's ledger; None where nothing was fetched. Raises BadInput for a damaged one."""
    try:
        with open_below(folder, LEDGER) as handle:
            return Ledger.model_validate_json(handle.readall() or b"")
    except FileNotFoundError:
        return None
    except ValidationError as exc:
        raise BadInput(
            f"{folder / LEDGER} is not a valid ledger: {first_fault(exc)}",
            hint="move the folder away and fetch the corpus again",
        ) from exc
