"""What a host's robots.txt lets medlive fetch, and how often."""

import codecs
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from protego import Protego

from medlive.sources.fetching.page import PRODUCT

_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

MAX_BYTES = 512 * 1024
"""Most of a robots.txt that is read (RFC 9309 §2.5 asks for at least this much)."""


MAX_INTERVAL_S = 3600.0
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

    def allows(self, url: str, product: str) -> bool:
        """Whether `product`, the first word of the User-Agent, may fetch an address."""
        if self.state is RobotsState.UNREADABLE:
            return False
        return self.rules is None or bool(self.rules.can_fetch(url, product))

    def interval_s(self, product: str) -> float:
        """The seconds between requests that the host demands; 0 for none."""
        return 0.0 if self.rules is None else _interval_s(self.rules, product)


def read_robots(host: str, status: int, body: bytes, fetched_at: datetime) -> Robots:
    """The rules in an answer to `GET /robots.txt`, for the product medlive.

    A page of markup in its place, and a pause that is endless, are taken as a refusal and say so in `detail`.
    """
    if status in (404, 410):
        return Robots(host, RobotsState.ABSENT, fetched_at, status)
    if not 200 <= status < 300:
        detail = f"robots.txt was answered with status {status}"
        return Robots(host, RobotsState.UNREADABLE, fetched_at, status, detail=detail)
    content = body[:MAX_BYTES]
    if len(body) > MAX_BYTES:
        # Half a line would be another rule: "Allow: /public" cut to "Allow: /".
        content = content[: max(content.rfind(b"\n"), content.rfind(b"\r")) + 1]
    text = content.decode("utf-16" if content.startswith(_UTF16_BOMS) else "utf-8-sig", "replace").replace(
        "\x00", ""
    )
    if text.lstrip().startswith("<"):
        detail = "robots.txt was answered with a page of markup"
        return Robots(host, RobotsState.UNREADABLE, fetched_at, status, content, detail)
    rules = Protego.parse(text)
    pause = _interval_s(rules, PRODUCT)
    if pause > MAX_INTERVAL_S:
        detail = f"robots.txt asks for {pause:g} s between requests, too slow to read the source"
        return Robots(host, RobotsState.UNREADABLE, fetched_at, status, content, detail)
    return Robots(host, RobotsState.RULES, fetched_at, status, content, rules=rules)


def _interval_s(rules: Protego, product: str) -> float:
    """The seconds between requests; 0 for none or an invalid value."""
    waits = [0.0, float(rules.crawl_delay(product) or 0.0)]
    rate = rules.request_rate(product)
    if rate is not None and rate.requests > 0:
        waits.append(rate.seconds / rate.requests)
    return max(waits)
