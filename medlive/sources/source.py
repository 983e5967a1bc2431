"""What an adapter of a community is (`Site`): settings, lists, and turning its pages into threads; and its errors."""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from medlive.errors import MedliveError
from medlive.threads.model import Message, Role, Thread, is_thread_id

Anonymiser = Callable[[str], str]
"""Replaces a handle by a keyed hash."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# A Chinese character in GB18030
_GB_PAIR = re.compile(rb"[\x81-\xfe][\xa1-\xfe]")


ProblemKind = Literal[
    "layout",
    "not_a_thread",
    "incomplete",
    "fault",
    "gone",
    "fetch",
    "robots",
    "host_refused",
    "blocked",
    "down",
]
"""Why a page or thread was not read. `fault`: the adapter failed on it in a way that it should not; `blocked`: the host
turned us away; `down`: the host failed too often."""

REFUSALS = ("blocked", "down")
"""Kinds of problems after which a host is not asked again in a run."""


class SourceError(MedliveError):
    """A page was not fetched, or is not the thread or list that it should be."""

    kind: ProblemKind = "fault"
    """By default an adapter failed on a page in a way that it should not."""


class LayoutError(SourceError):
    """A page has a layout that its adapter does not know."""

    kind = "layout"

    def __init__(
        self,
        page: "Page | str",
        looked_for: str,
        *,
        found: str | None = None,
    ) -> None:
        """`page` may be its address; `looked_for` names the expected markup, `found` what the page has instead."""
        url = page if isinstance(page, str) else page.url
        seen = f", found {found}" if found else ""
        super().__init__(
            f"{url}: no layout fits: looked for {looked_for}{seen}",
            hint="keep the page and mend the adapter; docs/builders/sites.md says what it reads",
        )


class NotAThread(SourceError):
    """A page is whole but shows no discussion."""

    kind: ProblemKind = "not_a_thread"


class IncompleteThread(NotAThread):
    """The pages are not a complete thread."""

    kind = "incomplete"


@dataclass(frozen=True)
class PageRequest:
    """A request for a page: GET, or POST of a form if `form` is not None."""

    url: str
    form: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True)
class Page:
    """A page as it was received."""

    url: str
    """The address that answered, after redirects."""
    body: bytes
    """Decompressed."""
    form: tuple[tuple[str, str], ...] | None = None
    """The form that was posted to get it, so that a list can ask for its next page."""

    @property
    def text(self) -> str:
        """The body decoded by what its bytes are, whatever is declared; never fails.

        A byte-order mark decides first, then what is UTF-8 but for a few damaged bytes: text in another encoding is
        practically never valid UTF-8. Other pages are GB18030, or Windows-1252.
        """
        body = self.body
        for bom, encoding in _BOMS:
            if body.startswith(bom):
                return body.decode(encoding, "replace")
        with suppress(UnicodeDecodeError):
            return body.decode("utf-8")
        lenient = body.decode("utf-8", "replace")
        high_bytes = len(body) - len(body.translate(None, bytes(range(128, 256))))
        if lenient.count("\ufffd") * 20 < high_bytes:
            return lenient
        # Western letters above ASCII hardly ever stand side by side.
        is_chinese = 4 * len(_GB_PAIR.findall(body)) > high_bytes
        return body.decode("gb18030" if is_chinese else "cp1252", "replace")


@dataclass(frozen=True, kw_only=True)
class Fetched(Page):
    """A page with its headers and time, as it was answered or as an archive has it."""

    status: int = 200
    headers: Mapping[str, str] = field(hash=False)
    """Names in lower case; an answer's: content-type, content-language, etag, last-modified, date."""
    fetched_at: datetime
    """Aware."""
    elapsed_ms: int = 0
    not_modified: bool = False
    """Whether the request was conditional and the page is unchanged; `body` is empty then."""


@dataclass(frozen=True)
class ListEntry:
    """One row of a list page."""

    url: str
    thread_id: str
    posted_at: datetime | None = None
    """When the thread was opened, if the list shows it."""
    last_post_at: datetime | None = None
    """The latest activity that the list shows for the thread, its opening included."""


@dataclass(frozen=True)
class Listing:
    """What a list page shows, and how to ask for the page after it."""

    entries: tuple[ListEntry, ...]
    next_page: PageRequest | None = None


class SourceSettings(BaseModel):
    """How one community is harvested; each adapter's file holds its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    """Whether it is harvested at all."""
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
        if (
            parts.scheme not in ("http", "https")
            or not host_of(value)
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
        ):
            raise ValueError(
                "must be an http or https address without user, query or fragment"
            )
        return value.rstrip("/")


class Posted(NamedTuple):
    """A message as its page shows it, its author not yet hashed."""

    handle: str
    text: str
    media: tuple[str, ...]
    posted_at: datetime | None
    asks: bool
    """Whether its author asks; who asks is never verified."""
    verified_by: str | None
    """The site's words for a verified physician; empty if it shows one without words, None if it shows none."""


class Site(ABC):
    """An adapter: where a community's lists are, and how its pages are parsed."""

    name: ClassVar[str]
    """The source's name in threads, settings and commands."""
    allowed_hosts: ClassVar[frozenset[str]]
    """The community's hosts; no request goes to any other."""
    language: ClassVar[str]
    defaults: ClassVar[SourceSettings]

    def __init__(self, settings: SourceSettings | None = None) -> None:
        self.settings = settings or self.defaults

    @cached_property
    def hosts(self) -> frozenset[str]:
        """The hosts that are asked, with a port where it is not the scheme's own; addresses and redirects lead there.

        Under the community's own address all its hosts may be asked; under another server's (a demonstration, a
        mirror) that server alone, so that no link in its pages leads out to the real community.
        """
        host = host_of(self.settings.base_url)
        return self.allowed_hosts if host in self.allowed_hosts else frozenset({host})

    @abstractmethod
    def listing_requests(self) -> Sequence[PageRequest]:
        """The first page of every list to read."""

    @abstractmethod
    def parse_listing(self, page: Page) -> Listing:
        """The threads that a list page shows. Raises LayoutError."""

    def next_page(self, page: Page) -> str | None:
        """The address of a thread's following page, or None on its last; many sites have one page only."""
        return None

    @abstractmethod
    def parse_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """The thread from its pages in order.

        Raises LayoutError for markup that does not fit, IncompleteThread for missing pages and NotAThread
        for a page that is whole but holds no discussion.
        """

    def whole_thread(self, pages: Sequence[Page], anonymise: Anonymiser) -> Thread:
        """Return what `parse_thread` returns. Also raises IncompleteThread if another page follows the last."""
        if following := self.next_page(pages[-1]):
            raise IncompleteThread(
                f"{pages[-1].url} is followed by {following}, which is missing"
            )
        return self.parse_thread(pages, anonymise)

    def build_thread(
        self,
        thread_id: str,
        url: str,
        title: str,
        tags: Iterable[str],
        posted_at: datetime | None,
        posts: Sequence[Posted],
        anonymise: Anonymiser,
    ) -> Thread:
        """Make a thread of its messages in order; empty tags are left out. Raises LayoutError for an unusable id."""
        if not is_thread_id(thread_id):
            raise LayoutError(url, "a thread's id", found=repr(thread_id)[:100])
        messages = []
        for n, post in enumerate(posts):
            verified = post.verified_by is not None and not post.asks
            role: Role = "patient" if post.asks else "other"
            if verified:
                role = "physician"
            message = Message(
                id=f"m{n}",
                author=anonymise(post.handle),
                role=role,
                verified=verified,
                text=post.text,
                posted_at=post.posted_at or (posted_at if n == 0 else None),
                media=post.media,
                verified_by=(post.verified_by or None) if verified else None,
            )
            messages.append(message)
        shown_tags = tuple(dict.fromkeys(filter(None, tags)))
        return Thread(
            self.name,
            thread_id,
            url,
            title,
            self.language,
            shown_tags,
            posted_at,
            tuple(messages),
        )


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


def link(page: Page, href: str | None) -> str | None:
    """The absolute http(s) address of a link on a page, without fragment; None for any other link."""
    if not href:
        return None
    try:
        parts = urlsplit(urljoin(page.url, href.strip()))
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts._replace(fragment="").geturl()


def only_page(pages: Sequence[Page]) -> Page:
    """The page of a thread that has one page. Raises IncompleteThread for another number."""
    if len(pages) != 1:
        raise IncompleteThread(f"expected one page of the thread, found {len(pages)}")
    return pages[0]
