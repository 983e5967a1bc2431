"""Taking numbered steps over something that nobody vouches for, a snapshot or a bundle, and what they come to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from medlive.integrity.folder import SIGNATURE, SUMS, Finding, TooLong, printable

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


MOST_FINDINGS: Final = 20
"""How many faults of one step are kept; the rest are counted."""


@dataclass(slots=True)
class Faults:
    """The first faults of a step, and how many there were."""

    kept: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, file: str, expected: str, got: str) -> None:
        """One fault more; whatever was found, it can be printed."""
        self.put(Finding(printable(file), printable(expected), printable(got)))

    def take(self, others: "Faults") -> None:
        """Those of another list as well."""
        self.kept = (self.kept + others.kept)[:MOST_FINDINGS]
        self.count += others.count

    def put(self, finding: Finding) -> None:
        """One fault more, made already."""
        self.count += 1
        if len(self.kept) < MOST_FINDINGS:
            self.kept.append(finding)


class Trust(StrEnum):
    """What a signature proves."""

    NOT_SIGNED = "not signed"
    """Nothing: there is no key."""
    INTEGRITY = "integrity"
    """Nothing has changed since it was signed, by whoever it was: the key is the one that what it signs names."""
    ORIGIN = "origin"
    """It was signed with a key that was given."""
    BROKEN = "broken"
    """The signature does not hold, or cannot be looked at."""


class StepState(StrEnum):
    """How a step ended. `skipped` says nothing about what was looked at, good or bad."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step's outcome."""

    number: int
    name: str
    state: StepState
    findings: tuple[Finding, ...] = ()
    """The first faults; `faults` counts them all."""
    faults: int = 0
    why: str = ""
    """Why it was skipped, or what it does not prove although it passed."""


class Skip(Exception):
    """A step cannot be taken; the text says why. An earlier step failed, then, unless it is `innocent`."""

    def __init__(self, why: str, *, innocent: bool = False) -> None:
        self.innocent = innocent
        super().__init__(why)


class Subject(Protocol):
    """What the steps look at."""

    note: str
    """What the present step says although it passes."""
    failed: tuple[int, ...]
    """The numbers of the steps before the present one that failed."""


Looked = TypeVar("Looked", bound=Subject)


def take_steps(
    subject: Looked, steps: Sequence[tuple[str, Callable[[Looked, Faults], None]]]
) -> tuple[StepResult, ...]:
    """Every step's outcome, in order; a step that cannot be taken is skipped, or a fault where nothing before it
    explains that."""
    results: list[StepResult] = []
    for number, (name, step) in enumerate(steps, start=1):
        subject.note = ""
        result = _take(subject, number, name, step)
        if result.state is StepState.FAILED:
            subject.failed = (*subject.failed, number)
        results.append(result)
    return tuple(results)


def _take(subject: Looked, number: int, name: str, step: Callable[[Looked, Faults], None]) -> StepResult:
    out = Faults()
    try:
        step(subject, out)
    except Skip as skip:
        if not out.count and (skip.innocent or subject.failed):
            return StepResult(number, name, StepState.SKIPPED, why=str(skip))
        out.add(".", "what this step needs", str(skip))
    except OSError as exc:
        out.add(printable(str(exc.filename or ".")), "a file that can be read", exc.strerror or str(exc)[:200])
    except TooLong as exc:
        out.add(".", "files and lines of a size that can be read", str(exc)[:200])
    state = StepState.FAILED if out.count else StepState.PASSED
    return StepResult(number, name, state, tuple(out.kept), out.count, "" if out.count else subject.note)


@dataclass(frozen=True, slots=True)
class SaidKey:
    """The key that a document says it is signed with, and the comments that go with it."""

    what: str
    """What is signed, in a word: "snapshot"."""
    document: str
    """The file that names the key."""
    key: tuple[str, str] | None
    """Its id and its line; None: the document names none."""
    comment: str
    """The trusted comment that the signature must have."""
    untrusted: str


def check_signed(
    said: SaidKey, there: bool, given: Sequence["PublicKey"], read: Callable[[str], bytes], out: Faults
) -> tuple[Trust, str]:
    """What the signature of SHA256SUMS proves, and that in words.

    `there`: whether there is a signature. `given`: the keys of which one must have signed; without any it is the
    one that the document names. Raises Skip where there is no key at all and none was given, and what `read`
    raises.
    """
    if there is not (said.key is not None):
        expected = "a file" if said.key else f"none, for {said.document} names no key"
        out.add(SIGNATURE, expected, "a file" if there else "none")
    elif said.key is None:
        if not given:
            raise Skip(f"the {said.what} has no key, and nothing proves where it came from", innocent=True)
        out.add(said.document, f"the key {_any_of(given)}", f"no key: the {said.what} is not signed")
    if not there or said.key is None:
        return Trust.BROKEN, ""
    from medlive.integrity.signing import BadKey, BadSignature, PublicKey, check_signature

    key_id, line = said.key
    try:
        named = PublicKey.parse(line)
    except BadKey as exc:
        out.add(said.document, "a public key", str(exc)[:200])
        return Trust.BROKEN, ""
    if (named.id_text(), named.line()) != said.key:
        out.add(said.document, f"the key {named.id_text()} as {named.line()}", f"{key_id} as {line}"[:200])
    # Keys are compared whole: an id is eight bytes that anybody may choose.
    if given and all(key.line() != named.line() for key in given):
        out.add(said.document, f"the key {_any_of(given)}", f"{named.id_text()}, {named.line()}")
    try:
        text = read(SIGNATURE).decode("utf-8", "replace")
        comment = check_signature(read(SUMS), text, named, untrusted_comment=said.untrusted)
        if comment != said.comment:
            out.add(SIGNATURE, f"the trusted comment {said.comment!r}", repr(comment)[:300])
    except BadSignature as exc:
        out.add(SIGNATURE, f"a signature of {SUMS} by the key {named.id_text()}", str(exc)[:300])
    if out.count:
        return Trust.BROKEN, ""
    told = f"signed with the key {named.id_text()}"
    if given:
        return Trust.ORIGIN, f"{told}, one that was given"
    told += f", which the {said.what} itself names: this proves that nothing has changed since, not who signed it"
    return Trust.INTEGRITY, told


def _any_of(given: Sequence["PublicKey"]) -> str:
    return " or ".join(f"{key.id_text()}, {key.line()}" for key in given[:5])
