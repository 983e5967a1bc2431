"""The files about all published snapshots, made of their manifests: `latest.json`, an Atom feed, an HTML page."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from medlive.integrity.folder import SUMS
from medlive.snapshot.errata import ERRATA, Errata
from medlive.snapshot.manifest import FileEntry, Manifest, moment_text, pretty_json
from medlive.snapshot.model import folder_name
from medlive.text.html import environment

LATEST = "latest.json"
FEED = "feed.xml"
INDEX = "index.html"

_SUMMARY = (
    "Clinical cases rewritten from public medical discussions, each with a question, the physicians' advice and a "
    "rubric of weighted criteria. For research evaluation only: no medical advice, no training of models."
)


@dataclass(frozen=True)
class Release:
    """A version that is published completely."""

    manifest: Manifest
    files: Mapping[str, FileEntry]  # Every file, by name, in order

    @property
    def version(self) -> str:
        """`2026.W47`."""
        return self.manifest.version

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return folder_name(self.version)

    @property
    def digest(self) -> str:
        """The digest of SHA256SUMS."""
        return f"sha256:{self.files[SUMS].sha256}"

    @property
    def signed(self) -> bool:
        """Whether it is signed."""
        return self.manifest.signing is not None

    @property
    def ancestry(self) -> dict[str, str]:
        """The digests of its ancestors and its own, by version."""
        return self.manifest.ancestry | {self.version: self.digest}

    @property
    def counted(self) -> str:
        """How many cases and criteria it has, in words."""
        counts = self.manifest.counts
        return f"{counts.cases} cases, {counts.criteria} criteria"


def url_at(base_url: str | None, name: str) -> str:
    """The address of a published file below `base_url`, whose last `/` is optional; relative if there is no base."""
    if base_url is None:
        return quote(name)
    return urljoin(f"{base_url.rstrip('/')}/", quote(name))


def _entry_id(unique: str) -> str:
    """A stable id for a feed or an entry, made from `unique`."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"medlive/{unique}").urn


def _newest_first(releases: Sequence[Release]) -> list[Release]:
    return sorted(releases, key=lambda release: release.version, reverse=True)


def latest_json(releases: Sequence[Release], base_url: str | None) -> bytes:
    """Return `latest.json`: the newest version with its files, and all digests. `releases` must not be empty."""
    ordered = _newest_first(releases)

    def head(release: Release) -> dict[str, Any]:
        return {
            "version": release.version,
            "digest": release.digest,
            "created_at": moment_text(release.manifest.created_at),
            "url": url_at(base_url, f"{release.folder}/"),
        }

    newest = ordered[0]
    files = {}
    for name, entry in newest.files.items():
        url = url_at(base_url, f"{newest.folder}/{name}")
        files[name] = {"size": entry.size, "sha256": entry.sha256, "url": url}
    value = {
        **head(newest),
        "format": "medlive-latest",
        "format_version": 1,
        "parent": newest.manifest.parent,
        "counts": newest.manifest.model_dump(mode="json")["counts"],
        "files": files,
        "versions": list(map(head, ordered)),
    }
    return pretty_json(value).encode("utf-8")


def feed_xml(
    releases: Sequence[Release],
    base_url: str | None,
    errata: Errata,
) -> bytes:
    """Return `feed.xml`: Atom 1.0 (RFC 4287), an entry for each version and each erratum, newest first.

    Without entries it is a valid feed, updated at the beginning of 1970. The moments are those of the manifests and of
    errata.json. An erratum that names more snapshots later keeps its entry and its moment.
    """
    entries: list[dict[str, Any]] = []
    for release in _newest_first(releases):
        entry = {
            # Made of the digest, not the canary: a canary that is in a feed would prove nothing about the data.
            "id": _entry_id(f"snapshots/{release.digest}"),
            "moment": release.manifest.created_at,
            "title": f"medlive {release.version}",
            "summary": f"{release.counted}. SHA256SUMS has {release.digest}.",
            "link": url_at(base_url, INDEX) + f"#{release.version}",
            "link_type": "text/html",
        }
        entries.append(entry)
    for erratum in errata.entries:
        subject = erratum.criterion_id or erratum.case_id
        moment = erratum.issued_at.astimezone(UTC)
        state = "withdrawn"
        if erratum.reinstated_at is not None:
            state += f", reinstated {erratum.reinstated_at:%Y-%m-%d}"
        frozen = ", ".join(erratum.snapshots)
        entry = {
            "id": _entry_id(f"errata/{erratum.id}/{subject}/{moment_text(moment)}"),
            "moment": moment,
            "title": f"medlive {erratum.kind.value}: {subject}",
            "summary": f"{erratum.reason} ({state}; frozen in {frozen})",
            "link": url_at(base_url, ERRATA),
            "link_type": "application/json",
        }
        entries.append(entry)
    entries.sort(key=itemgetter("moment"), reverse=True)
    text = _TEMPLATES.get_template("feed.xml.j2").render(
        id=_entry_id("snapshots"),
        summary=_SUMMARY,
        url=partial(url_at, base_url),
        entries=entries,
        updated=entries[0]["moment"] if entries else datetime.fromtimestamp(0, UTC),
    )
    return text.encode("utf-8")


def index_html(
    releases: Sequence[Release],
    base_url: str | None,
    *,
    errata: Errata,
    key: str | None,
) -> bytes:
    """Return `index.html`: every version with its files and digests, the errata, and how to verify and load.

    The page needs no script and no other host. `key` is the file name of the public key there, None if there is no
    key. `releases` must not be empty.
    """
    ordered = _newest_first(releases)
    text = _TEMPLATES.get_template("index.html.j2").render(
        summary=_SUMMARY,
        url=partial(url_at, base_url),
        newest=ordered[0],
        releases=ordered,
        errata=errata.entries[::-1],
        key=key,
    )
    return text.encode("utf-8")


_TEMPLATES = environment("medlive.snapshot.describe", keep_trailing_newline=True)
_TEMPLATES.filters["moment"] = moment_text


def safe_base(url: str) -> bool:
    """Whether a public address can be linked to: http or https, with a host, no query and no fragment."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return False
    return not (parts.query or parts.fragment)
