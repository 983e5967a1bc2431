"""What a host's robots.txt lets medlive fetch, and how often."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from protego import Protego

MAX_BYTES = 512 * 1024
"""Most of a robots.txt that is read (RFC 9309 §2.5 asks for at least this much)."""


class RobotsState(StrEnum):
    """What was found where a host's rules should be."""

    RULES = "rules"
    """A robots.txt was read."""
    ABSENT = "absent"
    """The host says that it has none (404, 410): everything may be fetched (RFC 9309 §2.3.1.3)."""
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

    def allows(self, url: str, product: str) -> bool:
        """Whether `product`, the first word of the User-Agent, may fetch an address."""
        if self.state is RobotsState.UNREADABLE:
            return False
        return self.rules is None or bool(self.rules.can_fetch(url, product))

    def interval_s(self, product: str) -> float:
        """The least seconds between requests that the host asks for; 0 where it asks for none."""
        if self.rules is None:
            return 0.0
        waits = [float(self.rules.crawl_delay(product) or 0.0)]
        rate = self.rules.request_rate(product)
        if rate is not None and rate.requests > 0:
            waits.append(rate.seconds / rate.requests)
        return max(waits)


def read_robots(host: str, status: int, body: bytes, fetched_at: datetime) -> Robots:
    """The rules in an answer to `GET /robots.txt`."""
    if 200 <= status < 300:
        # A file of another encoding still has ASCII directives; a page of markup has none and allows
        # everything, as it does for every crawler.
        rules = Protego.parse(body[:MAX_BYTES].decode("utf-8-sig", "replace").replace("\x00", ""))
        return Robots(host, RobotsState.RULES, fetched_at, status, body[:MAX_BYTES], rules=rules)
    if status in (404, 410):
        return Robots(host, RobotsState.ABSENT, fetched_at, status)
    detail = f"robots.txt was answered with status {status}"
    return Robots(host, RobotsState.UNREADABLE, fetched_at, status, detail=detail)
