"""Numbered verification steps over untrusted files (a snapshot, a bundle), and their results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from medlive.guard.printable import printable
from medlive.integrity.folder import SIGNATURE, SUMS, Finding, TooLong

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

    NOT_SIGNED = "not signed"  # Nothing: there is no key
    INTEGRITY = "integrity"
    """Nothing has changed since it was signed; the key is named only by the signed files themselves."""
    ORIGIN = "origin"  # It was signed with a key that the caller gave
    BROKEN = "broken"  # The signature is invalid or cannot be checked


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
    findings: tuple[Finding, ...] = ()  # The first faults; `faults` counts them all
    faults: int = 0
    why: str = ""  # Why it was skipped, or what a passed step does not prove


class Skip(Exception):
    """A step cannot run; the message says why."""

    def __init__(self, why: str, *, allowed: bool = False) -> None:
        """`allowed`: nothing is wrong; otherwise this is a fault unless an earlier step failed."""
        self.allowed = allowed
        super().__init__(why)


class Subject(Protocol):
    """What the steps check."""

    note: str  # What the running step reports although it passes
    failed: tuple[int, ...]  # The numbers of the failed steps so far


SubjectT = TypeVar("SubjectT", bound=Subject)
Step = Callable[[SubjectT, Faults], None]


def run_steps(
    subject: SubjectT, steps: Sequence[tuple[str, Step[SubjectT]]]
) -> tuple[StepResult, ...]:
    """Run every named step in order and return the results."""
    results: list[StepResult] = []
    for number, (name, step) in enumerate(steps, start=1):
        subject.note = ""
        result = _run_step(subject, number, name, step)
        if result.state is StepState.FAILED:
            subject.failed = (*subject.failed, number)
        results.append(result)
    return tuple(results)


def _run_step(
    subject: SubjectT, number: int, name: str, step: Step[SubjectT]
) -> StepResult:
    faults = Faults()
    try:
        step(subject, faults)
    except Skip as skip:
        if not faults.count and (skip.allowed or subject.failed):
            return StepResult(number, name, StepState.SKIPPED, why=str(skip))
        faults.add(".", "what this step needs", str(skip))
    except OSError as exc:
        faults.add(
            str(exc.filename or "."), "a readable file", exc.strerror or str(exc)[:200]
        )
    except TooLong as exc:
        faults.add(".", "files and lines within the size limits", str(exc)[:200])
    if faults.count:
        return StepResult(
            number, name, StepState.FAILED, tuple(faults.findings), faults.count
        )
    return StepResult(number, name, StepState.PASSED, why=subject.note)


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """What a document states about the signature of SHA256SUMS, and what it is checked with."""

    what: str  # What is signed, in a word: "snapshot"
    document: str  # The file that names the key
    # The key's id and base64 line; None: the document names none
    key: tuple[str, str] | None
    comment: str
    untrusted: str  # The expected trusted and untrusted comments
    given: Sequence["PublicKey"]
    """The keys of which one must have signed; without any, the key that the document names."""
    read: Callable[[str], bytes]  # Returns a file's bytes

    def check(self, has_signature: bool, faults: Faults) -> tuple[Trust, str]:
        """Return what the signature proves, and that in words. Raises Skip if no key is named or given."""
        if self.key is None:
            if has_signature:
                faults.add(
                    SIGNATURE, f"none, since {self.document} names no key", "a file"
                )
            elif not self.given:
                raise Skip(
                    f"the {self.what} is unsigned, so its origin cannot be verified",
                    allowed=True,
                )
            else:
                faults.add(
                    self.document,
                    f"the key {_any_of(self.given)}",
                    f"no key: the {self.what} is unsigned",
                )
        elif not has_signature:
            faults.add(SIGNATURE, "a file", "none")
        else:
            self._check_key(self.key, faults)
        if faults.count or self.key is None:
            return Trust.BROKEN, ""
        if self.given:
            return Trust.ORIGIN, f"signed with the key {self.key[0]}, which was given"
        return Trust.INTEGRITY, (
            f"signed with the key {self.key[0]}, named only by the {self.what} itself: "
            "this proves that nothing has changed since, not who signed it"
        )

    def _check_key(self, stated: tuple[str, str], faults: Faults) -> None:
        """Check that the key that the document states is one of those given, and signed."""
        from medlive.integrity.signing import (
            BadKey,
            BadSignature,
            PublicKey,
            check_signature,
        )

        try:
            key = PublicKey.parse(stated[1])
            if key.id_text() != stated[0]:
                faults.add(
                    self.document,
                    f"the key {_any_of([key])}",
                    f"{stated[0]} as {stated[1]}",
                )
            # Whole keys are compared: anybody may choose the eight bytes of an id.
            if self.given and key not in self.given:
                faults.add(
                    self.document, f"the key {_any_of(self.given)}", _any_of([key])
                )
            text = self.read(SIGNATURE).decode("utf-8", "replace")
            comment = check_signature(
                self.read(SUMS), text, key, untrusted_comment=self.untrusted
            )
            if comment != self.comment:
                faults.add(
                    SIGNATURE,
                    f"the trusted comment {self.comment!r}",
                    repr(comment)[:300],
                )
        except BadKey as exc:
            faults.add(self.document, "a public key", str(exc)[:200])
        except BadSignature as exc:
            faults.add(
                SIGNATURE,
                f"a signature of {SUMS} by the key {stated[0]}",
                str(exc)[:300],
            )


def _any_of(keys: Sequence["PublicKey"]) -> str:
    return " or ".join(f"{key.id_text()}, {key.line()}" for key in keys[:5])
