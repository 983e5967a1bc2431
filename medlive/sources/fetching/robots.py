"""What a host's robots.txt lets medlive fetch, and how often."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from protego import Protego

from medlive.sources.fetching.page import PRODUCT

_MAX_INTERVAL_S = 3600.0
"""The longest crawl delay that is honoured; a host that demands more is not read."""


class RobotsState(StrEnum):
    """The state of a host's robots.txt."""

    RULES = "rules"
    """A robots.txt was read."""
    ABSENT = "absent"
    """The host has none (404, 410): everything may be fetched (RFC 9309 §2.3.1.3)."""
    UNREADABLE = "unreadable"
    """Refused, broken or not reachable: nothing may be fetched (RFC 9309 §2.3.1.4, and for refusals too)."""


@dataclass(frozen=True, slots=True)
class Robots:
    """A host's rules as they were found in one run, with the bytes they were read from."""

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
        if self.state is RobotsState.UNREADABLE:
            return False
        return self.rules is None or bool(self.rules.can_fetch(url, PRODUCT))


def read_robots(host: str, status: int, body: bytes, fetched_at: datetime) -> Robots:
    """The rules in an answer to `GET /robots.txt`, for the product medlive.

    A page of markup in its place, and a pause that is endless, are taken as a refusal and say so in `detail`.
    """
    if status in (404, 410):
        return Robots(host, RobotsState.ABSENT, fetched_at, status)
    text = body.decode("utf-8-sig", "replace").replace("\x00", "")
    rules = Protego.parse(text)
    pause = _interval_s(rules)
    detail = ""
    if not 200 <= status < 300:
        detail = f"robots.txt was answered with status {status}"
    elif text.lstrip().startswith("<"):
        detail = "robots.txt was answered with a page of markup"
    elif pause > _MAX_INTERVAL_S:
        detail = f"robots.txt asks for {pause:g} s between requests, too slow to read the source"
    if detail:
        return Robots(host, RobotsState.UNREADABLE, fetched_at, status, body, detail)
    return Robots(host, RobotsState.RULES, fetched_at, status, body, rules=rules, interval_s=pause)


def _interval_s(rules: Protego) -> float:
    """The seconds between requests; 0 for none or an invalid value."""
    waits = [0.0, float(rules.crawl_delay(PRODUCT) or 0.0)]
    rate = rules.request_rate(PRODUCT)
    if rate is not None and rate.requests > 0:
        waits.append(rate.seconds / rate.requests)
    return max(waits)
