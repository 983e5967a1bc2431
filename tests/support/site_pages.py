"""Saved pages of every site: `tests/pages/<site>/`, whose `samples.toml` says what a reader sees in them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from medlive.sources.registry import SITES
from medlive.sources.source import Page

PAGES = Path(__file__).parents[1] / "pages"


@dataclass(frozen=True)
class Sample:
    """A thread's saved pages and what a reader sees in them."""

    site: str
    files: tuple[str, ...]
    urls: tuple[str, ...]
    roles: str
    """One letter a message: p asker, V verified physician, o other."""
    proofs: tuple[str, ...]
    """The site's words for each verified physician in turn."""

    def pages(self) -> list[Page]:
        return [
            Page(url, (PAGES / self.site / name).read_bytes())
            for name, url in zip(self.files, self.urls, strict=True)
        ]


SAMPLES: list[Sample] = []
SHELLS: dict[str, bytes] = {}
"""Site → the markup in which a thread's first message begins."""
for _site in SITES:
    _stated = tomllib.loads((PAGES / _site / "samples.toml").read_text("utf-8"))
    SHELLS[_site] = _stated["shell"].encode()
    for _thread in _stated["thread"]:
        _sample = Sample(
            site=_site,
            files=tuple(_thread["files"]),
            urls=tuple(_thread["urls"]),
            roles=_thread["roles"],
            proofs=tuple(_thread["proofs"]),
        )
        SAMPLES.append(_sample)

URLS = {sample.site: sample.urls[0] for sample in reversed(SAMPLES)}
"""Site → the address of its first sample."""
