"""What tells of the published snapshots: `latest.json`, an Atom feed and a page, made of their manifests alone."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final
from urllib.parse import quote, urljoin, urlsplit
from xml.etree import ElementTree

from medlive.integrity.folder import SIGNATURE, SUMS
from medlive.snapshot.errata import ERRATA, Errata, Erratum
from medlive.snapshot.identity import folder_name
from medlive.snapshot.manifest import FileEntry, Manifest, moment_text, pretty_json

LATEST: Final = "latest.json"
FEED: Final = "feed.xml"
INDEX: Final = "index.html"

_ATOM: Final = "http://www.w3.org/2005/Atom"
_ENCLOSED: Final = ("data/cases.parquet", "data/criteria.parquet", "data/cases.jsonl", "data/criteria.jsonl", SUMS)
_SUMMARY: Final = (
    "Clinical cases rewritten from public medical discussions, each with a question, the physicians' advice and a "
    "rubric of weighted criteria. For research evaluation only: no medical advice, no training of models."
)


@dataclass(frozen=True, slots=True)
class Release:
    """A version that lies complete on a shelf."""

    manifest: Manifest
    sums: FileEntry
    """SHA256SUMS itself: its digest is the release's."""
    others: Mapping[str, FileEntry]
    """manifest.json and, where the release is signed, the signature."""

    @property
    def version(self) -> str:
        """`2026.W47`."""
        return self.manifest.version

    @property
    def digest(self) -> str:
        """The digest of SHA256SUMS."""
        return f"sha256:{self.sums.sha256}"

    @property
    def files(self) -> dict[str, FileEntry]:
        """Every file, by name."""
        return dict(sorted({**self.manifest.files, **self.others, SUMS: self.sums}.items()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where readers find the shelf."""

    base_url: str | None = None
    """With or without a last `/`; None: links are relative to the root of the shelf."""
    authority: str | None = None
    """The domain that entry ids are made from (RFC 4151); None: ids come from the versions' digests."""

    def url(self, name: str) -> str:
        """The address of a file on the shelf."""
        return urljoin(f"{self.base_url.rstrip('/')}/", quote(name)) if self.base_url else quote(name)


def newest_first(releases: Sequence[Release]) -> list[Release]:
    """By version, whichever was published last."""
    return sorted(releases, key=lambda r: r.version, reverse=True)


def latest_json(releases: Sequence[Release], place: Place) -> bytes:
    """`latest.json`: the newest version with its files, and the digests of all.

    Raises ValueError when there is no release.
    """
    newest = newest_first(releases)[0]
    manifest, folder = newest.manifest, folder_name(newest.version)
    files = {
        name: {"size": entry.size, "sha256": entry.sha256, "url": place.url(f"{folder}/{name}")}
        for name, entry in newest.files.items()
    }
    value = {
        "format": "medlive-latest",
        "format_version": 1,
        "version": newest.version,
        "digest": newest.digest,
        "created_at": moment_text(manifest.created_at),
        "parent": manifest.parent,
        "counts": manifest.model_dump(mode="json")["counts"],
        "url": place.url(f"{folder}/"),
        "files": files,
        "versions": [
            {
                "version": r.version,
                "digest": r.digest,
                "created_at": moment_text(r.manifest.created_at),
                "url": place.url(f"{folder_name(r.version)}/"),
            }
            for r in newest_first(releases)
        ],
    }
    return pretty_json(value).encode("utf-8")


def feed_xml(releases: Sequence[Release], place: Place, errata: Errata | None) -> bytes:
    """`feed.xml`: Atom 1.0 (RFC 4287), an entry for each version and each erratum, by moment, newest first.

    The moments are those of the manifests and of errata.json. An erratum that names more snapshots later keeps its
    entry and its moment.
    """
    ElementTree.register_namespace("", _ATOM)
    feed = ElementTree.Element(f"{{{_ATOM}}}feed", {"xml:lang": "en"})
    _text(feed, "id", _feed_id(releases, place))
    _text(feed, "title", "medlive snapshots")
    _text(feed, "subtitle", _SUMMARY)
    ordered = newest_first(releases)
    entries = [(release.manifest.created_at, _release_entry(release, place)) for release in ordered]
    entries += [(e.issued_at, _erratum_entry(e, place)) for e in (errata.entries if errata is not None else ())]
    _text(feed, "updated", moment_text(max(moment for moment, _ in entries)))
    _text(ElementTree.SubElement(feed, f"{{{_ATOM}}}author"), "name", "medlive")
    _link(feed, "self", place.url(FEED), "application/atom+xml")
    _link(feed, "alternate", place.url(INDEX), "text/html")
    feed.extend(entry for _, entry in sorted(entries, key=lambda one: one[0], reverse=True))
    ElementTree.indent(feed)
    body = ElementTree.tostring(feed, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{body}\n'.encode()


def _release_entry(release: Release, place: Place) -> ElementTree.Element:
    manifest, folder = release.manifest, folder_name(release.version)
    entry = _entry(
        _entry_id(release, place),
        f"medlive {release.version}",
        manifest.created_at,
        f"{_counted(manifest)}. SHA256SUMS has {release.digest}.",
    )
    _link(entry, "alternate", place.url(INDEX) + f"#{release.version}", "text/html")
    for name in _ENCLOSED:
        if (file := release.files.get(name)) is not None:
            kind = "text/plain" if name == SUMS else _kind(name)
            _link(entry, "enclosure", place.url(f"{folder}/{name}"), kind, name, file.size)
    return entry


def _erratum_entry(erratum: Erratum, place: Place) -> ElementTree.Element:
    subject = erratum.criterion_id or erratum.case_id
    name = f"medlive/errata/{erratum.id}/{subject}"
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{moment_text(erratum.issued_at.astimezone(UTC))}").urn
    if place.authority:
        identity = f"tag:{place.authority},2026:{quote(name)}"
    entry = _entry(
        identity,
        f"medlive {erratum.kind.value}: {subject}",
        erratum.issued_at.astimezone(UTC),
        f"{erratum.reason} (withdrawn; frozen in {', '.join(erratum.snapshots)})",
    )
    _link(entry, "alternate", place.url(ERRATA), "application/json")
    return entry


def _entry(identity: str, title: str, moment: datetime, summary: str) -> ElementTree.Element:
    entry = ElementTree.Element(f"{{{_ATOM}}}entry")
    _text(entry, "id", identity)
    _text(entry, "title", title)
    _text(entry, "published", moment_text(moment))
    _text(entry, "updated", moment_text(moment))
    _text(entry, "summary", summary)
    return entry


def _feed_id(releases: Sequence[Release], place: Place) -> str:
    if place.authority:
        return f"tag:{place.authority},2026:medlive/snapshots"
    return uuid.uuid5(uuid.NAMESPACE_URL, "medlive/snapshots").urn


def _entry_id(release: Release, place: Place) -> str:
    if place.authority:
        return f"tag:{place.authority},2026:medlive/snapshots/{release.version}"
    # Of the digest, and not the canary: a canary that stands in a feed would prove nothing about the data.
    return uuid.uuid5(uuid.NAMESPACE_URL, f"medlive/snapshots/{release.digest}").urn


def _text(parent: ElementTree.Element, name: str, text: str) -> None:
    ElementTree.SubElement(parent, f"{{{_ATOM}}}{name}").text = text


def _link(
    parent: ElementTree.Element,
    rel: str,
    href: str,
    kind: str,
    title: str | None = None,
    length: int | None = None,
) -> None:
    more = {"title": title} if title else {}
    more |= {"length": str(length)} if length is not None else {}
    ElementTree.SubElement(parent, f"{{{_ATOM}}}link", {"rel": rel, "type": kind, "href": href, **more})


def _kind(name: str) -> str:
    return "application/vnd.apache.parquet" if name.endswith(".parquet") else "application/x-ndjson"


def _counted(manifest: Manifest) -> str:
    return f"{manifest.counts.cases} cases, {manifest.counts.criteria} criteria"


def index_html(releases: Sequence[Release], place: Place, *, errata: Errata | None, key: str | None) -> bytes:
    """`index.html`: every version with its files and digests, the errata, and how to verify and load.

    `errata` is what errata.json on the shelf says, `key` the public key's file name there; None where
    there is none. The page needs no script and no other host.
    """
    found = newest_first(releases)
    newest = found[0]
    notes = _errata(errata) if errata is not None else ""
    sections = "".join(_section(release, place, opened=release is newest) for release in found)
    root = place.url("")
    title = f"medlive {newest.version}"
    body = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src 'self'">
<meta name="description" content="{escape(_SUMMARY)}">
<title>{escape(title)}</title>
<link rel="alternate" type="application/atom+xml" title="medlive snapshots" href="{escape(place.url(FEED))}">
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>medlive</h1>
<p>{escape(_SUMMARY)}</p>
<p>Newest: <a href="#{escape(newest.version)}">{escape(newest.version)}</a>, {escape(_counted(newest.manifest))} ·
<a href="{escape(place.url(LATEST))}">{LATEST}</a> · <a href="{escape(place.url(FEED))}">Atom feed</a></p>
<h2>Use</h2>
{_key(newest, place, key)}<pre>{escape(_use(newest, root, key))}</pre>
{notes}<h2>Versions</h2>
{sections}</main>
</body>
</html>
"""
    return body.encode("utf-8")


def _use(newest: Release, root: str, key: str | None) -> str:
    source = root or "FOLDER-OR-URL"
    keyed = f" --public-key {key}" if key else ""
    signed = f"\nminisign -VHm {SUMS} -p ../{key}" if key and SIGNATURE in newest.files else ""
    checked = f', public_key="{key}"' if key and SIGNATURE in newest.files else ""
    return (
        f"medlive snapshot fetch {newest.version} --from {source}{keyed}\n\n"
        f"# the bytes, in the version's folder{signed}\nsha256sum -c --strict {SUMS}\n\n"
        f"# the bytes and their meaning\nmedlive snapshot verify {folder_name(newest.version)}{keyed}\n\n"
        "# Python\nfrom medlive import load_snapshot\n"
        f'snapshot = load_snapshot("{folder_name(newest.version)}"{checked})'
    )


def _key(newest: Release, place: Place, key: str | None) -> str:
    signing = newest.manifest.signing
    if signing is None or key is None:
        return "<p>The newest version has no key: its digests show damage, and not who made it.</p>\n"
    return (
        f"<p>Signed with the key <code>{signing.key_id}</code>, "
        f'<a href="{escape(place.url(key))}">{escape(key)}</a>. '
        "Compare it with what you know from elsewhere: a key proves nothing about the page it came from.</p>\n"
    )


def _section(release: Release, place: Place, *, opened: bool) -> str:
    manifest, folder = release.manifest, folder_name(release.version)
    figures = sorted(name for name in manifest.files if name.startswith("figures/"))
    shown = "".join(
        f'<img loading="lazy" alt="{escape(_figure_name(name))}" src="{escape(quote(f"{folder}/{name}"))}">\n'
        for name in (figures if opened else ())
    )
    if shown:
        shown = f'<div class="figures">\n{shown}</div>\n'
    rows = "".join(
        f'<tr><td><a href="{escape(place.url(f"{folder}/{name}"))}">{escape(name)}</a></td>'
        f'<td class="n">{entry.size:,}</td><td><code>{entry.sha256}</code></td></tr>\n'
        for name, entry in release.files.items()
    )
    parent = f"after {manifest.parent}" if manifest.parent else "the first of its line"
    signed = f"signed with {manifest.signing.key_id}" if manifest.signing else "not signed"
    languages = ", ".join(f"{name} {count:,}" for name, count in sorted(manifest.counts.by_language.items()))
    return f"""<details id="{escape(release.version)}"{" open" if opened else ""}>
<summary>{escape(release.version)} · {_day(manifest.created_at)} · {escape(_counted(manifest))}</summary>
<p>{escape(parent)}; {escape(languages)}; {len(figures)} figures; {escape(signed)}.
<a href="{escape(place.url(f"{folder}/README.md"))}">Card</a> ·
<a href="{escape(place.url(f"{folder}/CHANGES.md"))}">Changes</a> ·
<a href="{escape(place.url(f"{folder}/LICENSE"))}">Terms</a></p>
<p>Digest of {SUMS}: <code>{release.digest}</code></p>
{shown}<div class="wide"><table>
<thead><tr><th>file</th><th class="n">bytes</th><th>sha256</th></tr></thead>
<tbody>
{rows}</tbody></table></div>
</details>
"""


def _figure_name(name: str) -> str:
    return name.removeprefix("figures/").removesuffix(".svg").replace("-", " ")


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _errata(errata: Errata) -> str:
    if not errata.entries:
        return ""
    rows = "".join(
        f"<tr><td>{_day(e.issued_at)}</td><td>{escape(e.kind.value)}</td>"
        f"<td><code>{escape(e.criterion_id or e.case_id)}</code></td><td>{escape(e.reason)}</td>"
        f"<td>{escape(', '.join(e.snapshots))}</td><td>{escape(e.fixed_in or '–')}</td></tr>\n"
        for e in reversed(errata.entries)
    )
    return f"""<h2>Errata</h2>
<p>Frozen versions do not change; what is known to be wrong with them stands here and in
<a href="{ERRATA}">{ERRATA}</a>.</p>
<div class="wide"><table>
<thead><tr><th>issued</th><th>kind</th><th>case or criterion</th><th>reason</th><th>in</th>
<th>fixed in</th></tr></thead>
<tbody>
{rows}</tbody></table></div>
"""


def safe_base(url: str) -> bool:
    """Whether a public address can be linked to: http or https, with a host and nothing behind the path."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)


def safe_authority(name: str) -> bool:
    """Whether entry ids can be made from a name: a domain name in lower case, as RFC 4151 wants it."""
    return _DOMAIN.fullmatch(name) is not None


_DOMAIN: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
_STYLE: Final = (
    ":root{color-scheme:light dark}body{margin:0;font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:64rem;margin:0 auto;padding:1rem}pre,.wide{overflow-x:auto}"
    "pre{padding:.75rem;border:1px solid #8886;border-radius:.4rem;font-size:.85rem}"
    "summary{cursor:pointer;padding:.5rem 0;font-weight:600}details{border-top:1px solid #8886}"
    "table{border-collapse:collapse;font-size:.85rem}th,td{text-align:left;padding:.2rem .6rem .2rem 0;"
    "vertical-align:top}.n{text-align:right}code{font-size:.85em;overflow-wrap:anywhere}"
    ".figures{columns:2 20rem}img{display:block;width:100%;height:auto;margin:0 0 .75rem;background:#fff;"
    "break-inside:avoid}"
)
