"""Numbered verification steps over untrusted files (a snapshot, a bundle), and their results."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from medlive.guard.printable import printable

from .folder import SIGNATURE, SUMS, Finding
from .signing import (
    BadKey,
    BadSignature,
    PublicKey,
    check_signature,
)

MAX_FINDINGS = 20
"""Findings that are kept of one step; further ones are counted."""
MAX_CHARACTERS = 500
"""Characters of each text of a finding."""


@dataclass
class Faults:
    """The first faults of a step, and how many there were."""

    findings: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(
        self,
        file: str,
        expected: str,
        got: str,
    ) -> None:
        """Add a fault; its texts are cut, and unprintable characters escaped."""
        texts = [printable(text[:MAX_CHARACTERS]) for text in (file, expected, got)]
        self.append(Finding(*texts))

    def append(self, finding: Finding) -> None:
        """Add a finding as it is."""
        self.count += 1
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)

    def extend(self, others: "Faults") -> None:
        """Add the faults of another step."""
        self.findings = (self.findings + others.findings)[:MAX_FINDINGS]
        self.count += others.count


Trust = Literal["not signed", "integrity", "origin", "broken"]
"""What a signature proves.

- `not signed`: nothing, there is no key.
- `integrity`: nothing has changed since it was signed. The key is named only by the signed files themselves.
- `origin`: it was signed with a key that the caller gave.
- `broken`: the signature is invalid or cannot be checked.
"""

StepState = Literal["passed", "failed", "skipped"]
"""How a step ended; `skipped` says nothing about the files, good or bad."""


@dataclass(frozen=True)
class StepResult:
    """One step's outcome."""

    number: int
    name: str
    state: StepState
    findings: tuple[Finding, ...] = ()  # The first faults; `faults` counts them all
    faults: int = 0
    why: str = ""  # Why it was skipped, or what a passed step does not prove

    def __str__(self) -> str:
        """The step with its first finding, or why it was skipped."""
        return f"step {self.number} ({self.name}): {[*self.findings, self.why][0]}"


class Skip(Exception):
    """A step cannot run; the message says why."""

    def __init__(
        self,
        why: str,
        *,
        allowed: bool = False,
    ) -> None:
        """`allowed`: nothing is wrong; otherwise this is a fault unless an earlier step failed."""
        self.allowed = allowed
        super().__init__(why)


@dataclass(kw_only=True)
class Inspection(ABC):
    """What is verified, and what its steps have found so far."""

    note: str = ""  # What the running step reports although it passes
    failed: tuple[int, ...] = ()  # The numbers of the failed steps
    trust: Trust = "broken"  # What the signature proves

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return a file's bytes. Raises Skip if it is missing."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results of all steps, in order."""

    path: Path
    steps: tuple[StepResult, ...]
    trust: Trust  # What the signature proves

    @property
    def failed(self) -> tuple[StepResult, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.state == "failed")

    @property
    def skipped(self) -> tuple[StepResult, ...]:
        """The steps that were skipped."""
        return tuple(step for step in self.steps if step.state == "skipped")

    @property
    def ok(self) -> bool:
        """Whether no step failed."""
        return not self.failed

    @property
    def complete(self) -> bool:
        """Whether no step was skipped."""
        return not self.skipped


InspectionT = TypeVar("InspectionT", bound=Inspection)


def run_steps(
    subject: InspectionT,
    steps: Sequence[tuple[str, Callable[[InspectionT, Faults], None]]],
) -> tuple[StepResult, ...]:
    """Run every step, (name, function), in order and return the results; a step fails if it adds a fault."""
    results: list[StepResult] = []
    for number, (name, step) in enumerate(steps, start=1):
        subject.note = ""
        faults = Faults()
        skipped = None
        try:
            step(subject, faults)
        except Skip as skip:
            if not faults.count and (skip.allowed or subject.failed):
                skipped = str(skip)
            else:
                faults.add(".", "what this step needs", str(skip))
        except OSError as exc:  # TooLong among them
            expected = "a readable file within the size limits"
            faults.add(
                str(exc.filename or "."),
                expected,
                exc.strerror or str(exc),
            )
        state: StepState = "passed"
        why = subject.note
        if skipped is not None:
            state, why = "skipped", skipped
        elif faults.count:
            state, why = "failed", ""
            subject.failed = (*subject.failed, number)
        findings = tuple(faults.findings)
        results.append(StepResult(number, name, state, findings, faults.count, why))
    return tuple(results)


def check_signed(
    subject: Inspection,
    faults: Faults,
    *,
    document: str,
    key: tuple[str, str] | None,
    comments: tuple[str, str],
    signers: Sequence[PublicKey],
    has_signature: bool,
) -> None:
    """Check the signature of SHA256SUMS, and note what it proves.

    Args:
        subject: What is verified.
        faults: Takes the faults.
        document: The file that names the key.
        key: The key's id and base64 line as the document states them; None: the document names no key.
        comments: The expected trusted and untrusted comment.
        signers: The keys of which one must have signed; if there is none, the key that the document names.
        has_signature: Whether there is a signature.

    Raises:
        Skip: If no key is named or given and there is no signature.
    """
    if key is None:
        if has_signature:
            faults.add(SIGNATURE, f"none, since {document} names no key", "a file")
        elif signers:
            faults.add(document, f"the key {_any_of(signers)}", "no key")
        else:
            subject.trust = "not signed"
            why = f"unsigned: {document} names no key"
            raise Skip(why, allowed=True)
        return
    if not has_signature:
        faults.add(SIGNATURE, "a file", "none")
        return
    key_id, line = key
    trusted, untrusted = comments
    try:
        public = PublicKey.parse(line)
        if public.id_text() != key_id:
            faults.add(document, f"the key {_any_of([public])}", f"{key_id} as {line}")
        # Whole keys are compared: anybody may choose the eight bytes of an id.
        if signers and public not in signers:
            faults.add(document, f"the key {_any_of(signers)}", _any_of([public]))
        text = subject.read(SIGNATURE).decode("utf-8", "replace")
        sums = subject.read(SUMS)
        comment = check_signature(sums, text, public, untrusted_comment=untrusted)
        if comment != trusted:
            expected = f"the trusted comment {trusted!r}"
            faults.add(SIGNATURE, expected, repr(comment))
    except (BadKey, BadSignature) as exc:
        expected = f"a signature of {SUMS} by the key {key_id}"
        faults.add(SIGNATURE, expected, str(exc))
    if faults.count:
        return
    subject.trust = "origin" if signers else "integrity"
    named_alone = (
        f"named only by {document} itself: this proves that nothing has changed since, "
        "not who signed it"
    )
    origin = "which was given" if signers else named_alone
    subject.note = f"signed with the key {key_id}, {origin}"


def _any_of(keys: Sequence[PublicKey]) -> str:
    """The first keys in words."""
    return " or ".join(f"{key.id_text()}, {key.line()}" for key in keys[:5])
