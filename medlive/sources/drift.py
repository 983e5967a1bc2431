"""Detect a changed site: `compare` sets the figures of a run's threads (`measures`) beside those of earlier runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log
from statistics import median

from medlive.threads.model import Thread

HISTORY = 8
"""Earlier runs that a median is taken over, at most."""
LEAST_RUNS = 3
"""Earlier runs that a median needs."""
LEAST_THREADS = 8
"""Threads that a run's share needs to be compared, or to be part of a median."""
CHANCE = 0.001
"""A share that would arise by chance less often than this, were nothing changed, is a collapse if it is also
far from its median."""
_FEWER = 0.5
"""A share or number below this part of its median is far from it."""
_MORE = 0.3
"""A share of failures this much above its median is far from it, and so is a usual share (`_RULE`) this much below its
median: some of the pages have a new layout."""
_RULE = 0.9
"""A share with a median of at least this is usual."""
_FAILURES = ("layout", "not_a_thread", "incomplete", "fault")
"""Failures of a page's markup; network failures are not drift."""


Measure = tuple[float, int]
"""One figure of a run: a share from 0 to 1, a count, or a median; and the number of its threads."""


@dataclass(frozen=True)
class Compared:
    """A figure beside its median in earlier runs."""

    name: str
    """field:<name> for the share of threads with that field, median:<name>, count:listed, or end:<reason> for the
    share of the threads asked for that ended for that reason."""
    value: float
    n: int  # Threads
    median: float | None
    """None: fewer than LEAST_RUNS runs to compare with."""
    collapsed: bool

    @property
    def message(self) -> str:
        """The figure with its value now and before."""
        before = "unknown" if self.median is None else f"{round(self.median, 3):g}"
        name, value = self.name.replace(":", " "), f"{round(self.value, 3):g}"
        return f"{name}: {value} over {self.n} threads (median before: {before})"


def thread_fields(thread: Thread) -> dict[str, bool | int]:
    """Return the fields and the number of messages of a thread, by which drift is measured."""
    fields: dict[str, bool | int] = {
        "title": bool(thread.title.strip()),
        "posted_at": thread.posted_at is not None,
        "tags": bool(thread.tags),
        "question": False,
        "reply": False,
        "verified reply": False,
        "dated messages": bool(thread.messages),
        "whole text": bool(thread.messages),
        "media": False,
        "messages": len(thread.messages),
    }
    for message in thread.messages:
        text = bool(message.text.strip())
        fields["question" if message.role == "patient" else "reply"] |= text
        fields["verified reply"] |= message.verified
        fields["dated messages"] &= message.posted_at is not None
        fields["whole text"] &= text or bool(message.media)
        fields["media"] |= bool(message.media)
    return fields


def measures(
    fields: Mapping[str, tuple[float, int]], ends: Mapping[str, int]
) -> dict[str, Measure]:
    """A run's figures, named as in `Compared`.

    `fields`: of the threads it read, field → (share or median, threads), keys as `thread_fields` gives them;
    `ends`: state or reason → threads that ended with it, and "listed" → threads that its lists showed (without those
    that were asked for because no list shows them any more).
    """
    by_name: dict[str, Measure] = {}
    for name, (value, n) in fields.items():
        kind = "median" if name == "messages" else "field"
        by_name[f"{kind}:{name}"] = value, n
    listed = ends.get("listed", 0)
    by_name["count:listed"] = float(listed), listed
    requested = sum(ends.get(end, 0) for end in ("read", *_FAILURES))
    gone = ends.get("gone", 0)
    if gone:
        present = gone + requested + ends.get("not_modified", 0)
        by_name["end:gone"] = gone / present, present
    for end in _FAILURES if requested else ():
        by_name[f"end:{end}"] = ends.get(end, 0) / requested, requested
    return by_name


def compare(
    now: Mapping[str, Measure], before: Sequence[Mapping[str, Measure]]
) -> list[Compared]:
    """Each figure beside its median in the runs `before`, which are newest first; sorted by name.

    A field that earlier runs had and this one lacks altogether is compared as well.
    """
    names = set(now)
    for run in before:
        names.update(name for name in run if name.startswith("field:"))
    _, threads = now.get("median:messages", (0.0, 0))
    compared = []
    for name in sorted(names):
        kind = name.partition(":")[0]
        value, n = now.get(name, (0.0, threads))
        past = []
        for run in before[:HISTORY]:
            past_value, past_n = run.get(name, (0.0, -1))
            if past_n >= LEAST_THREADS or (kind == "count" and name in run):
                past.append(past_value)
        middle = median(past) if len(past) >= LEAST_RUNS else None
        collapsed = _collapsed(kind, value, n, middle, past)
        compared.append(Compared(name, value, n, middle, collapsed))
    return compared


def reads_nothing(ends: Mapping[str, int]) -> bool:
    """Whether a run read no thread because none had a known layout."""
    unknown = ends.get("layout", 0) + ends.get("fault", 0)
    return unknown > 0 and not ends.get("read")


def _collapsed(
    kind: str,
    value: float,
    n: int,
    middle: float | None,
    past: Sequence[float],
) -> bool:
    """Whether a figure is too far from its values in `past` and their median `middle`; for a share, beyond chance."""
    if kind == "end":
        # Without a history too: a source whose threads mostly fail is not read, however new it is.
        usual = middle if middle is not None else 0.2
        far = n >= LEAST_THREADS and value > usual + _MORE
        return far and _tail(round(value * n), n, max(usual, 0.02)) < CHANCE
    if middle is None:
        return False
    if kind == "count":
        return middle >= LEAST_THREADS and value < 0.1 * middle
    if n < LEAST_THREADS:
        return False
    if kind == "median":
        # Lengths of threads vary more from week to week than any share: only one beyond all earlier ones counts.
        return not _FEWER * min(past) <= value <= 4 * max(past)
    far = value < _FEWER * middle or (middle >= _RULE and value < middle - _MORE)
    return far and _tail(n - round(value * n), n, 1 - min(middle, 0.98)) < CHANCE


def _tail(k: int, n: int, p: float) -> float:
    """The probability of `k` or more of `n`, each with probability `p` strictly between 0 and 1."""
    total = 0.0
    for i in range(k, n + 1):
        ways = lgamma(n + 1) - lgamma(i + 1) - lgamma(n - i + 1)
        total += exp(ways + i * log(p) + (n - i) * log(1 - p))
    return min(1.0, total)
