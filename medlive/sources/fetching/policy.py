"""How politely pages are fetched: settings, a host's robots.txt, and the errors of fetching."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from protego import Protego
from pydantic import BaseModel, ConfigDict, Field

from medlive import __version__
from medlive.sources.source import ProblemKind, SourceError

PRODUCT = "medlive"
"""The name by which a robots.txt addresses this program."""
_MAX_INTERVAL_S = 3600.0
"""The longest crawl delay that is honoured; a host that demands more is not read."""


FetchReason = Literal[
    "timeout",
    "connection",
    "server_error",
    "rate_limited",
    "not_found",
    "http_status",
    "too_large",
    "content_type",
    "encoding",
    "redirect",
]
"""Why a page was not fetched; each reason has its own number of retries."""

OUTAGES: Mapping[FetchReason, int] = {
    "timeout": 30,
    "connection": 30,
    "server_error": 60,
    "rate_limited": 20,
}
"""Failures of a host rather than of a page, and the attempts after the first that a whole run has for each."""


class FetchError(SourceError):
    """A page was not fetched: `kind` says whether its host, its robots.txt or a failure is the reason."""

    def __init__(
        self,
        url: str,
        message: str,
        *,
        kind: ProblemKind = "fetch",
        reason: FetchReason | None = None,
        status: int | None = None,
    ) -> None:
        """`reason` is given for the kind `fetch` only."""
        self.url = url
        self.cause = message
        """The message without the address."""
        self.kind = kind
        self.reason = reason
        self.status = status
        super().__init__(f"{url}: {message}")


class FetchSettings(BaseModel):
    """How politely and within what limits pages are fetched, whatever the source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    contact: str | None = Field(default=None, pattern=r"^[\x21-\x7e]{3,200}$")
    """The operator's e-mail or web address for the User-Agent; any host beyond this machine needs it."""
    allow_loopback: bool = False
    """Whether this machine's own addresses may be asked, as the demonstration and tests do."""
    concurrency_per_host: int = Field(default=1, ge=1, le=16)
    """Requests to one host at once."""
    retries: Mapping[FetchReason, int] = {
        "timeout": 2,
        "connection": 2,
        "server_error": 3,
        "rate_limited": 2,
    }
    """Attempts after the first, for each reason; one not named is not retried."""
    backoff_s: float = Field(default=2.0, ge=0)
    """The first wait before another attempt; it doubles each time, and half of it is random."""

    @property
    def user_agent(self) -> str:
        """The honest name that every request carries."""
        return f"{PRODUCT}/{__version__}" + (
            f" (+{self.contact})" if self.contact else ""
        )


RobotsState = Literal["rules", "absent", "unreadable"]
"""The state of a host's robots.txt.

`rules`: a robots.txt was read; `absent`: the host has none (404, 410), and everything may be fetched (RFC 9309
§2.3.1.3); `unreadable`: refused, broken or not reachable, and nothing may be fetched (RFC 9309 §2.3.1.4, and for
refusals too)."""


@dataclass(frozen=True)
class Robots:
    """The robots.txt rules of a host in one run, with the bytes they were read from."""

    host: str
    state: RobotsState
    fetched_at: datetime
    status: int | None
    """None when no answer came."""
    body: bytes = b""
    detail: str = ""
    """Why the rules are unreadable."""
    rules: Protego | None = None
    interval_s: float = 0.0
    """The seconds between requests that the host demands; 0 for none."""

    def allows(self, url: str) -> bool:
        """Whether medlive may fetch an address."""
        if self.state == "unreadable":
            return False
        return self.rules is None or bool(self.rules.can_fetch(url, PRODUCT))


def read_robots(
    host: str,
    status: int,
    body: bytes,
    fetched_at: datetime,
) -> Robots:
    """Read the rules for our user agent in an answer to `GET /robots.txt`.

    Something else than rules, and too long a pause, count as a refusal; `detail` says so.
    """
    if status in (404, 410):
        return Robots(host, "absent", fetched_at, status)
    # As much as RFC 9309, 2.5, asks for: a hostile file of megabytes would take seconds.
    body = body[: 512 * 1024]
    text = body.decode("utf-8-sig", "replace")
    rules = Protego.parse(text)
    pause = max(0.0, float(rules.crawl_delay(PRODUCT) or 0.0))
    detail = ""
    if not 200 <= status < 300:
        detail = f"robots.txt was answered with status {status}"
    elif "\x00" in text or text.lstrip().startswith("<"):
        detail = "robots.txt was answered with something else than rules"
    elif pause > _MAX_INTERVAL_S:
        detail = f"robots.txt asks for {pause:g} s between requests, too slow to read the source"
    state: RobotsState = "unreadable" if detail else "rules"
    return Robots(host, state, fetched_at, status, body, detail, rules, pause)
