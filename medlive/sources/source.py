"""A source: one community, read by one adapter that turns its pages into threads."""

import codecs
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from medlive.errors import ConfigError, MedliveError
from medlive.threads.model import Thread

_T = TypeVar("_T")

Anonymiser = Callable[[str], str]
"""Replaces a handle by a keyed hash."""

_ENCODING_NAME = re.compile(
    r"(?:utf-?(?:8|16)|gb|big5|hz|iso-?8859|latin|windows-|cp\d|shift|euc-|ascii|us-ascii)"
)
_META_CHARSET = re.compile(rb"<meta\b[^>]{0,300}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_ABSOLUTE = re.compile(r"https?://[^/?#]+/", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_GB_PAIR = re.compile(rb"[\x81-\xfe][\xa1-\xfe]")
_BOM_BYTES = tuple(bom for bom, _ in _BOMS)


class LayoutError(MedliveError):
    """A page has a layout that its adapter does not know."""

    def __init__(self, url: str, looked_for: str, *, found: str | None = None) -> None:
        """`looked_for` names the expected markup, `found` what the page has instead."""
        self.url = url
        self.looked_for = looked_for
        super().__init__(
            f"{url}: no layout fits: looked for {looked_for}" + (f", found {found}" if found else ""),
            hint="keep the page and mend the adapter; docs/sources.md says what it reads",
        )


class NotAThread(MedliveError):
    """A page is whole but shows no discussion."""


class IncompleteThread(NotAThread):
    """The pages are not a complete thread."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page: GET, or POST of a form if `form` is not None."""

    url: str
    form: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Page:
    """A page as it was received."""

    url: str
    """The address that answered, after redirects."""
    body: bytes
    content_type: str = ""
    """The Content-Type header; empty if absent."""
    status: int = 200
    form: tuple[tuple[str, str], ...] | None = None
    """The form that was posted to get it, so that a list can ask for its next page."""

    @property
    def utf8(self) -> bytes:
        """The text in UTF-8: the body itself if it is valid UTF-8."""
        body = self.body
        if not body.startswith(_BOM_BYTES):
            try:
                body.decode("utf-8")
            except UnicodeDecodeError:
                pass
            else:
                return body
        return self.text.encode("utf-8")

    @property
    def text(self) -> str:
        """The body decoded: never fails, never trusts a declaration that the bytes contradict.

        A byte-order mark decides first. Bytes that are valid UTF-8 are UTF-8 whatever was declared (text in
        another encoding is practically never valid UTF-8). Then the header's charset, the page's own,
        GB18030, and last UTF-8 or Windows-1252 with replacement characters.
        """
        body = self.body
        for bom, encoding in _BOMS:
            if body.startswith(bom):
                return body.decode(encoding, "replace")
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            pass
        declared = [name for name in (self._header_charset(), self._meta_charset()) if name]
        # A page that is UTF-8 but for a few damaged bytes would often decode as GB18030, into nonsense.
        lenient = body.decode("utf-8", "replace")
        high_bytes = len(body) - len(body.translate(None, bytes(range(128, 256))))
        if lenient.count("\ufffd") * 20 < high_bytes:
            return lenient
        single_byte = [n for n in declared if n.startswith(("iso8859", "cp125", "latin"))]
        if "cp1252" in single_byte and 2 * len(_GB_PAIR.findall(body)) > 0.9 * high_bytes:
            # What servers say of every page. Western letters above ASCII hardly ever stand side by side.
            declared = [n for n in declared if n != "cp1252"]
            single_byte = []
        for name in [n for n in declared if n not in single_byte] + ([] if single_byte else ["gb18030"]):
            try:
                return body.decode(name)
            except (UnicodeDecodeError, LookupError):
                continue
        for name in declared:
            if name != "utf-8":
                return body.decode(name, "replace")
        # Neither declared nor strictly decodable: Chinese pages cut in mid-character come out nearly whole
        # this way.
        gb = body.decode("gb18030", "replace")
        return gb if gb.count("\ufffd") * 20 < max(high_bytes, 1) else body.decode("cp1252", "replace")

    def _header_charset(self) -> str | None:
        match = _HEADER_CHARSET.search(self.content_type)
        return _codec(match[1]) if match else None

    def _meta_charset(self) -> str | None:
        match = _META_CHARSET.search(self.body, 0, 4096)
        return _codec(match[1].decode("ascii")) if match else None


class Memo(Generic[_T]):
    """Caches the result of parsing a page for as long as the page exists."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[weakref.ref[Page], _T]] = {}

    def get(self, page: Page, read: Callable[[Page], _T]) -> _T:
        """Return the result of `read` for the page, computed once."""
        place = id(page)
        cached = self._read.get(place)
        if cached is None:
            forget = weakref.ref(page, lambda _: self._read.pop(place, None))
            cached = self._read[place] = (forget, read(page))
        return cached[1]


def _codec(name: str) -> str | None:
    """Python's name for a declared text encoding, or None for one that is unknown or no text encoding.

    GB2312 and GBK are read as GB18030, their superset, and ISO-8859-1 as Windows-1252, as browsers do.
    """
    name = name.lower()
    if not _ENCODING_NAME.match(name):
        return None
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return None
    if found in ("gb2312", "gbk", "hz"):
        return "gb18030"
    return "cp1252" if found in ("iso8859-1", "ascii") else found


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One row of a list page."""

    url: str
    thread_id: str
    title: str
    posted_at: datetime | None = None
    """When the thread was opened, if the list shows it."""
    last_post_at: datetime | None = None
    """The latest activity that the list shows for the thread, its opening included."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a list page shows, and how to ask for the page after it."""

    entries: tuple[ListEntry, ...]
    next_page: PageRequest | None = None


class SourceSettings(BaseModel):
    """How one community is harvested; each adapter's file holds its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str
    """Scheme, host, optional port and path prefix, without a final slash."""
    boards: tuple[str, ...] = ()
    """The boards, sections or topics to list, as its paths spell them; empty: the site's whole list."""
    min_interval_s: float = Field(default=5.0, ge=0)
    """Least seconds between two requests to one host of this source; a longer Crawl-delay wins."""
    overlap_days: int = Field(default=14, ge=0)
    """Days before the latest activity of the last harvest that are read again, for late replies and edits."""
    stop_statuses: frozenset[int] = frozenset({403})
    """Answers after which the host is left alone for the rest of the run."""
    verified_labels: tuple[str, ...] = ()
    """The site's own words for a verified physician, where the site says it in words."""

    @field_validator("base_url")
    @classmethod
    def _base_url_is_http(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("must be an http or https address without query or fragment")
        if parts.username or parts.password:
            raise ValueError("must not hold a user name or password: medlive never logs in")
        return value.rstrip("/")


class Site(Protocol):
    """An adapter: where a community's lists are, and how its pages are parsed."""

    @property
    def name(self) -> str:
        """The source's name in threads, settings and commands."""
        ...

    @property
    def settings(self) -> SourceSettings:
        """How this community is harvested."""
        ...

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The community's hosts; no request goes to any other."""
        ...

    def listing_requests(self, base_url: str) -> Sequence[PageRequest]:
        """The first page of every list to read."""
        ...

    def parse_listing(self, page: Page) -> Listing:
        """The threads that a list page shows. Raises LayoutError."""
        ...

    def next_page(self, page: Page) -> str | None:
        """The address of a thread's following page, or None on its last."""
        ...

    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The whole thread from all its pages in order.

        Raises LayoutError for markup that does not fit, IncompleteThread for missing pages and NotAThread
        for a page that is whole but holds no discussion.
        """
        ...


def host_of(url: str) -> str:
    """Return the host of an address in lower case, with a port that is not the scheme's default; "" for none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    host = (parts.hostname or "").rstrip(".")
    if port is None or port == {"http": 80, "https": 443}.get(parts.scheme):
        return host
    return f"{host}:{port}"


def allowed_hosts(site: Site, base_url: str) -> frozenset[str]:
    """The hosts that a harvest from `base_url` may ask.

    Against the community itself its own hosts; against any other server (a demonstration, a mirror) that
    server alone, so that no link in its pages leads out to the real community. Raises ConfigError for a base
    without host.
    """
    host = host_of(base_url)
    if not host:
        raise ConfigError(f"{base_url!r} is not a base address: it has no host")
    return site.allowed_hosts if host in site.allowed_hosts else frozenset({host})


def link(page: Page, href: str | None) -> str | None:
    """The absolute http(s) address of a link on a page, without fragment; None for any other link."""
    if not href:
        return None
    try:
        href = href.strip()
        url = href if _ABSOLUTE.match(href) else urljoin(page.url, href)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        return url if url.startswith("http") and "#" not in url else parts._replace(fragment="").geturl()
    except ValueError:
        return None
