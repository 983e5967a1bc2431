"""Whether a model has seen a snapshot: it is asked for the snapshot's canary, a GUID in every file.

Only the last 16 digits of a canary count, and no probe contains them, so an echo proves nothing. Each probe has a
control with the same words for a release that never was, or a GUID that marks nothing, to catch models that
complete anything.
"""

import re
import unicodedata
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from medlive.errors import BadInput, EndpointUnavailable
from medlive.integrity.folder import TooLong, read_small
from medlive.llm.ask import Complete
from medlive.llm.engine import Finish
from medlive.llm.pool import Progress, for_each
from medlive.snapshot.manifest import Manifest

GIVEN: Final = (8, 13, 18)
"""How many characters of the GUID the probes give: its first one, two and three groups."""
UNSEEN: Final = 16
"""Digits of the GUID's last two groups, which no probe gives."""
ENOUGH: Final = 12
"""So many of them in a row are no accident: a guess hits 12 once in 10^14 places."""
SAID: Final = 300
"""Characters that are kept of a reply."""

_FILES: Final = ("LICENSE", "README.md", "manifest.json")
_BEFORE, _AFTER = 300, 120
_GAP: Final = "[...]"
_ENDING: Final = re.compile(r"[0-9a-f]{4}-?[0-9a-f]{12}")


class Verdict(StrEnum):
    """What the replies come to."""

    SHOWN = "shown"
    NOT_SHOWN = "not shown"
    UNKNOWN = "unknown"
    """Too few replies, or replies that cannot be judged; never a sign of absence."""


class Outcome(StrEnum):
    """How one probe ended."""

    ANSWERED = "answered"
    REFUSED = "refused"
    EMPTY = "empty"
    FAILED = "failed"
    NOT_ASKED = "not asked"


class Excerpt(NamedTuple):
    """The words around a canary in one of a snapshot's files, without the canary."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Marked:
    """A release and the GUID that marks it."""

    version: str
    canary: str
    excerpts: tuple[Excerpt, ...]

    @property
    def decoy(self) -> str:
        """A GUID that marks nothing, made from the canary as `uuid5(canary, "decoy")`."""
        return str(uuid.uuid5(uuid.UUID(self.canary), "decoy"))

    @property
    def never(self) -> str:
        """A version that never was, made from the decoy."""
        number = int(self.decoy[:8], 16)
        return f"{1970 + number % 40}.W{1 + number // 40 % 52:02d}"


@dataclass(frozen=True, slots=True)
class Probe:
    """One question."""

    wording: str
    given: int
    """Characters of a GUID that the question holds; 0 where it holds the words around it alone."""
    text: str
    control: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a probe."""

    probe: Probe
    outcome: Outcome
    run: int = 0
    """The longest run of the canary's unseen digits in the reply."""
    decoy_run: int = 0
    offered: bool = False
    """Whether the reply holds what ends like a GUID, right or wrong."""
    places: int = 0
    """Letters and digits of the reply, at each of which a guess could have hit."""
    said: str = ""
    """The reply's beginning, or the reason why there is none."""


@dataclass(frozen=True, slots=True)
class CanaryCheck:
    """What a model knows of one canary."""

    marked: Marked
    verdict: Verdict
    why: str
    seen: tuple[Seen, ...]

    @property
    def run(self) -> int:
        """The longest run of unseen digits that came back."""
        return max((s.run for s in self.seen), default=0)

    @property
    def odds(self) -> float:
        """The chance that a model which guesses gives as long a run in replies as long as these, at most."""
        places = sum(s.places for s in self.seen)
        # One digit of the sixteen has four values, as in every GUID of this kind.
        return min(1.0, 4 * places * (UNSEEN - self.run + 1) * 16.0**-self.run)

    def reached(self) -> bool:
        """Whether the endpoint gave any reply, if only a refusal."""
        return any(
            s.outcome not in (Outcome.FAILED, Outcome.NOT_ASKED) for s in self.seen
        )

    def tally(self, *, control: bool) -> dict[str, int]:
        """How the probes, or the controls, ended; and how many replies offered a GUID."""
        mine = [s for s in self.seen if s.probe.control is control]
        ends = Counter(s.outcome for s in mine)
        found = {outcome.value: ends[outcome] for outcome in Outcome if ends[outcome]}
        return {"in all": len(mine), **found, "offered": sum(s.offered for s in mine)}


def read_marked(folder: Path) -> tuple[Marked, tuple[str, ...]]:
    """The canary of the snapshot in a folder, which is not verified, and the versions of its ancestors.

    Raises BadInput when there is none, or when its files hold another canary than its manifest names.
    """
    try:
        manifest = Manifest.model_validate_json(read_small(folder / "manifest.json"))
        texts = {name: read_small(folder / name).decode("utf-8") for name in _FILES}
    except (OSError, TooLong, ValueError) as exc:
        raise BadInput(
            f"{folder} cannot be read as a snapshot: {str(exc)[:300]}"
        ) from exc
    canary = manifest.canary
    excerpts: list[Excerpt] = []
    for name, text in texts.items():
        before, found, after = text.rpartition(canary)
        if not found:
            raise BadInput(
                f"{folder / name} does not hold the canary",
                hint="medlive snapshot verify names the fault",
            )
        cut = Excerpt(
            name,
            before[-_BEFORE:].replace(canary, _GAP),
            after[:_AFTER].replace(canary, _GAP),
        )
        # A cut may have gone through an earlier copy of the canary.
        if longest_run(cut.before + " " + cut.after, canary) < 4:
            excerpts.append(cut)
    return Marked(manifest.version, canary, tuple(excerpts)), tuple(
        a.version for a in manifest.lineage
    )


def earlier(marked: Marked, version: str, canary: str) -> Marked:
    """Another release of the same line, its words taken to be the same."""
    words = (
        Excerpt(*(text.replace(marked.version, version) for text in e))
        for e in marked.excerpts
    )
    return Marked(version, canary, tuple(words))


def probes(marked: Marked) -> Iterator[Probe]:
    """Every probe of a release, each followed by its control."""
    # Where no digit is given, a control can differ only in the release it names.
    unreal = earlier(marked, marked.never, marked.decoy)
    real = chain(_around(marked), _begun(marked, marked.canary))
    control = chain(_around(unreal), _begun(marked, marked.decoy))
    for one, other in zip(real, control, strict=True):
        yield Probe(*one, control=False)
        yield Probe(*other, control=True)


def _around(marked: Marked) -> Iterator[tuple[str, int, str]]:
    """Name, 0 and text of each wording that holds no digit of a GUID."""
    data_set = f"the data set medlive, release {marked.version}"
    text = f"Every file of {data_set}, holds the same canary GUID. Which GUID is it? Reply with the GUID."
    yield "question", 0, text
    for excerpt in marked.excerpts:
        where = f"the file {excerpt.file} of {data_set}"
        text = f"This is the beginning of a passage of {where}. Continue it word for word.\n\n{excerpt.before}"
        yield f"continue {excerpt.file}", 0, text
        text = f"From this passage of {where} a GUID was cut out at {_GAP}. Reply with what stood there."
        yield (
            f"fill {excerpt.file}",
            0,
            f"{text}\n\n{excerpt.before}{_GAP}{excerpt.after}",
        )


def _begun(marked: Marked, guid: str) -> Iterator[tuple[str, int, str]]:
    """Name, characters given and text of each wording that holds a GUID's beginning."""
    where = f"The canary GUID in every file of the data set medlive, release {marked.version}, begins with"
    for given in GIVEN:
        text = f"{where} {guid[:given]}. Reply with the whole GUID, 36 characters."
        yield f"complete {given}", given, text
        for excerpt in marked.excerpts[:1]:
            text = "Continue this text exactly where it breaks off."
            yield (
                f"continue {given}",
                given,
                f"{text}\n\n{excerpt.before}{guid[:given]}",
            )


def longest_run(text: str, guid: str) -> int:
    """How many of a GUID's unseen digits stand in a row in a text, whatever letters, spaces or signs part them."""
    letters, digits = _letters(text), guid.replace("-", "")[-UNSEEN:]
    longest = 0
    for start in range(UNSEEN):
        while (
            start + longest < UNSEEN and digits[start : start + longest + 1] in letters
        ):
            longest += 1
    return longest


def _letters(text: str) -> str:
    return re.sub("[^0-9a-z]+", "", unicodedata.normalize("NFKC", text).lower())


async def check_canary(
    marked: Marked,
    complete: Complete,
    *,
    samples: int = 1,
    progress: Progress | None = None,
) -> CanaryCheck:
    """Ask a model every probe and control `samples` times, and judge its replies.

    A probe that fails is counted and not raised; when the first probe and its control both fail, the endpoint is
    taken to be dead and the others are not asked.
    """
    asked = [probe for _ in range(samples) for probe in probes(marked)]
    seen: dict[int, Seen] = {}

    async def ask(number: int) -> None:
        seen[number] = await _ask(asked[number], marked, complete)
        if progress:
            progress(len(seen), len(asked))

    await ask(0)
    await ask(1)
    if any(s.outcome is not Outcome.FAILED for s in seen.values()):
        await for_each(range(2, len(asked)), ask, 4)
    results = tuple(
        seen.get(i) or Seen(probe, Outcome.NOT_ASKED) for i, probe in enumerate(asked)
    )
    verdict, why = _judge(results)
    return CanaryCheck(marked, verdict, why, results)


async def _ask(probe: Probe, marked: Marked, complete: Complete) -> Seen:
    try:
        reply = await complete([{"role": "user", "content": probe.text}])
    except EndpointUnavailable as exc:
        return Seen(probe, Outcome.FAILED, said=_short(exc.message))
    outcome = Outcome.ANSWERED if reply.text.strip() else Outcome.EMPTY
    return Seen(
        probe,
        Outcome.REFUSED if reply.finish is Finish.REFUSAL else outcome,
        run=longest_run(reply.text, marked.canary),
        decoy_run=longest_run(reply.text, marked.decoy),
        offered=_ENDING.search(reply.text.lower()) is not None,
        places=len(_letters(reply.text)),
        said=_short(reply.text),
    )


def _short(text: str) -> str:
    """A text's beginning, fit to be printed and stored."""
    text = text[: SAID + 1].encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= SAID else text[: SAID - 1] + "…"


def _judge(seen: Sequence[Seen]) -> tuple[Verdict, str]:
    if any(s.decoy_run >= ENOUGH for s in seen):
        why = "the decoy's unseen digits came back, which stand nowhere: the endpoint works GUIDs out"
        return Verdict.UNKNOWN, why
    if any(s.run >= ENOUGH for s in seen):
        return Verdict.SHOWN, "digits of the canary came back that no probe had given"
    mine = [s for s in seen if not s.probe.control]
    ends = Counter(s.outcome for s in mine)
    answered = ends.pop(Outcome.ANSWERED, 0)
    if 2 * answered < len(mine):
        others = ", ".join(
            f"{ends[outcome]} {outcome.value}" for outcome in Outcome if ends[outcome]
        )
        cause = next((f": {s.said}" for s in mine if s.outcome is Outcome.FAILED), "")
        return (
            Verdict.UNKNOWN,
            f"{answered} of {len(mine)} probes were answered ({others}){cause}",
        )
    return Verdict.NOT_SHOWN, (
        f"none of {answered} answers held {ENOUGH} unseen digits in a row; this does not prove that the model has "
        "not seen the snapshot: what was learned need not be said, and GUIDs are often filtered out"
    )
