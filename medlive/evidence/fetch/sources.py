"""The nouns of fetching: a source, a file of it, and what is chosen of it."""

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from medlive.integrity.paths import split_name

_SIZE = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


ArticleType = Literal[
    "guideline", "systematic-review", "meta-analysis", "review", "trial"
]
"""What PubMed's articles are chosen by."""


class Selection(BaseModel):
    """Which of PubMed's articles are kept; empty: all."""

    model_config = ConfigDict(frozen=True)

    types: tuple[ArticleType, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file that a publisher offers."""

    name: str  # Below the corpus's folder; safe by `split_name`
    url: str
    mark: str  # Changes when the publisher changes the file
    size: int | None = None  # About, as the page shows it
    md5: str | None = None  # 32 hexadecimal digits
    # Where the MD5 is published, if it is not known yet
    checksum_url: str | None = None

    def __post_init__(self) -> None:
        split_name(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    wanted: str = ""  # Which files of the list
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


def read_size(text: str) -> int | None:
    """Read about how many bytes a size such as `19M` or `2.27GB` is; None for text that is none."""
    matched = _SIZE.fullmatch(text.strip())
    if matched is None:
        return None
    number = float(matched[1].replace(",", ""))
    return int(number * _UNITS[matched[2].upper()])
