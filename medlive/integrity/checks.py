"""Numbered verification steps over untrusted files (a snapshot, a bundle), and their results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from medlive.integrity.folder import SIGNATURE, SUMS, Finding, TooLong, printable

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey


MAX_FINDINGS: Final = 20
"""Findings that are kept of one step; further ones are counted."""


@dataclass(slots=True)
class Faults:
    """The first faults of a step, and how many there were."""

    findings: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, file: str, expected: str, got: str) -> None:
        """Add a fault; unprintable characters are escaped."""
        self.append(Finding(printable(file), printable(expected), printable(got)))

    def append(self, finding: Finding) -> None:
        """Add a finding as it is."""
        self.count += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def extend(self, others: "Faults") -> None:
        """Add the faults of another step."""
        self.findings = (self.findings + others.findings)[:MAX_FINDINGS]
        self.count += others.count


class Trust(StrEnum):
    """What a signature proves."""

    NOT_SIGNED = "not signed"
    """Nothing: there is no key."""
    INTEGRITY = "integrity"
    """Nothing has changed since it was signed; the key is named only by the signed files themselves."""
    ORIGIN = "origin"
    """It was signed with a key that the caller gave."""
    BROKEN = "broken"
    """The signature is invalid or cannot be checked."""


class StepState(StrEnum):
    """How a step ended; `skipped` says nothing about the files, good or bad."""

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
    """Why it was skipped, or what a passed step does not prove."""


class Skip(Exception):
    """A step cannot run; the message says why."""

    def __init__(self, why: str, *, allowed: bool = False) -> None:
        """`allowed`: nothing is wrong; otherwise this is a fault unless an earlier step failed."""
        self.allowed = allowed
        super().__init__(why)


class Subject(Protocol):
    """What the steps check."""

    note: str
    """What the running step reports although it passes."""
    failed: tuple[int, ...]
    """The numbers of the failed steps so far."""


SubjectT = TypeVar("SubjectT", bound=Subject)
Step = Callable[[SubjectT, Faults], None]


def run_steps(subject: SubjectT, steps: Sequence[tuple[str, Step[SubjectT]]]) -> tuple[StepResult, ...]:
    """Run every named step in order and return the results."""
    results: list[StepResult] = []
    for number, (name, step) in enumerate(steps, start=1):
        subject.note = ""
        result = _run_step(subject, number, name, step)
        if result.state is StepState.FAILED:
            subject.failed = (*subject.failed, number)
        results.append(result)
    return tuple(results)


def _run_step(subject: SubjectT, number: int, name: str, step: Step[SubjectT]) -> StepResult:
    faults = Faults()
    try:
        step(subject, faults)
    except Skip as skip:
        if not faults.count and (skip.allowed or subject.failed):
            return StepResult(number, name, StepState.SKIPPED, why=str(skip))
        faults.add(".", "what this step needs", str(skip))
    except OSError as exc:
        faults.add(str(exc.filename or "."), "a readable file", exc.strerror or str(exc)[:200])
    except TooLong as exc:
        faults.add(".", "files and lines within the size limits", str(exc)[:200])
    state = StepState.FAILED if faults.count else StepState.PASSED
    why = "" if faults.count else subject.note
    return StepResult(number, name, state, tuple(faults.findings), faults.count, why)


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """What a document states about the signature of SHA256SUMS."""

    what: str
    """What is signed, in a word: "snapshot"."""
    document: str
    """The file that names the key."""
    key: tuple[str, str] | None
    """The key's id and base64 line; None: the document names none."""
    comment: str
    untrusted: str
    """The expected trusted and untrusted comments."""


def check_signed(
    signed: SignedDocument,
    has_signature: bool,
    given: Sequence["PublicKey"],
    read: Callable[[str], bytes],
    faults: Faults,
) -> tuple[Trust, str]:
    """Check the signature of SHA256SUMS; return what it proves, and that in words.

    Args:
        signed: What the document states.
        has_signature: Whether SHA256SUMS.minisig exists.
        given: The keys of which one must have signed; without any, the key that the document names.
        read: Returns a file's bytes.
        faults: Where faults are added.

    Raises:
        Skip: If there is no key and none was given.
    """
    if signed.key is None:
        if has_signature:
            faults.add(SIGNATURE, f"none, since {signed.document} names no key", "a file")
        elif not given:
            raise Skip(f"the {signed.what} is unsigned, so its origin cannot be verified", allowed=True)
        else:
            expected = f"the key {_any_of(given)}"
            faults.add(signed.document, expected, f"no key: the {signed.what} is unsigned")
        return Trust.BROKEN, ""
    if not has_signature:
        faults.add(SIGNATURE, "a file", "none")
        return Trust.BROKEN, ""
    key_id = _check_key(signed, signed.key, given, read, faults)
    if faults.count:
        return Trust.BROKEN, ""
    if given:
        return Trust.ORIGIN, f"signed with the key {key_id}, which was given"
    return Trust.INTEGRITY, (
        f"signed with the key {key_id}, named only by the {signed.what} itself: "
        "this proves that nothing has changed since, not who signed it"
    )


def _check_key(
    signed: SignedDocument,
    stated: tuple[str, str],
    given: Sequence["PublicKey"],
    read: Callable[[str], bytes],
    faults: Faults,
) -> str:
    """Check that the key that the document states is one of those given, and signed. Returns its id."""
    from medlive.integrity.signing import BadKey, BadSignature, PublicKey, check_signature

    try:
        key = PublicKey.parse(stated[1])
    except BadKey as exc:
        faults.add(signed.document, "a public key", str(exc)[:200])
        return stated[0]
    if key.id_text() != stated[0]:
        faults.add(signed.document, f"the key {_any_of([key])}", f"{stated[0]} as {stated[1]}")
    # Whole keys are compared: anybody may choose the eight bytes of an id.
    if given and key not in given:
        faults.add(signed.document, f"the key {_any_of(given)}", _any_of([key]))
    try:
        text = read(SIGNATURE).decode("utf-8", "replace")
        comment = check_signature(read(SUMS), text, key, untrusted_comment=signed.untrusted)
        if comment != signed.comment:
            faults.add(SIGNATURE, f"the trusted comment {signed.comment!r}", repr(comment)[:300])
    except BadSignature as exc:
        faults.add(SIGNATURE, f"a signature of {SUMS} by the key {key.id_text()}", str(exc)[:300])
    return key.id_text()


def _any_of(keys: Sequence["PublicKey"]) -> str:
    return " or ".join(f"{key.id_text()}, {key.line()}" for key in keys[:5])
