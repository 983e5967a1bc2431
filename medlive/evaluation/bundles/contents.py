"""What the verification of a bundle reads, and its steps for signature, files, digests and schemas."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from medlive.digest import digest_bytes
from medlive.evaluation.bundles.bundle import UNTRUSTED_COMMENT, BundleInfo, ErrataUse, canary_of_cases
from medlive.evaluation.bundles.files import (
    ALWAYS,
    ANSWERS,
    BUNDLE,
    CASES,
    EVIDENCE_FILE,
    RUN,
    SCORES,
    checksums,
    encode_document,
    parse_document,
    parse_model,
    rows,
    through_json,
    trusted_comment,
)
from medlive.evaluation.model import Answer, CaseSet, EvaluationCase, Grade
from medlive.evaluation.runs.folder import GRADES, RESPONSES, RunInfo
from medlive.evaluation.runs.templates import TEMPLATES, load_template
from medlive.evaluation.scoring.errata import RunErrata
from medlive.integrity.checks import Faults, SignedDocument, Skip, Trust
from medlive.integrity.folder import SIGNATURE, SUMS, printable

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

_NO_FILE: Final = "no such file"
_SUM_LINE: Final = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9.]{1,40})\n")
Known = TypeVar("Known")
Row = TypeVar("Row", Answer, Grade)


@dataclass
class Verification:
    """What the steps read and produce; None where it could not be read, or not yet."""

    path: Path
    files: Mapping[str, bytes]
    packing_faults: Faults
    public_keys: "Sequence[PublicKey]"
    snapshot: Path | CaseSet | None
    errata_file: Path | None
    trust: Trust = Trust.BROKEN
    note: str = ""
    failed: tuple[int, ...] = ()
    info: BundleInfo | None = None
    run: RunInfo | None = None
    scores: dict[str, Any] | None = None
    errata: ErrataUse | None = None
    """None also if the bundle does not mention errata."""
    digests: list[list[str]] | None = None
    answers: list[Answer] | None = None
    grades: list[Grade] | None = None
    cases: tuple[EvaluationCase, ...] | None = None
    snapshots_folder: Path | None = None
    """The folder beside the snapshot that may contain errata."""
    withdrawn: RunErrata | None = None
    recomputed: dict[str, Any] | None = None

    def require_file(self, name: str) -> bytes:
        """Return the content of a file. Raises Skip if it is missing."""
        if name not in self.files:
            raise Skip(f"{name} is missing")
        return self.files[name]

    def add_note(self, text: str) -> None:
        """Add a note to the current step, which may still pass."""
        self.note = f"{self.note}; {text}" if self.note else text

    def require_cases(self) -> tuple[EvaluationCase, ...]:
        """Return the snapshot's cases. Raises Skip if the snapshot is not available."""
        if self.cases is None:
            raise Skip("the cases are not available", allowed=True)
        return self.cases

    def require_rows(self, rows: list[Row] | None, name: str) -> list[Row]:
        """Return the rows of a log. Raises Skip if the bundle was made without answers."""
        if self.info is not None and not self.info.answers:
            raise Skip("the bundle was made without answers and grades", allowed=True)
        return require(rows, name)


def require(value: Known | None, name: str) -> Known:
    """Return the value. Raises Skip if it could not be read."""
    if value is None:
        raise Skip(f"{name} could not be read")
    return value


def signature(state: Verification, out: Faults) -> None:
    """Check the signature with a given key, else with the one that the bundle names."""
    info = state.info = parse_model(state.require_file(BUNDLE), BUNDLE, BundleInfo, out)
    if info is None:
        return
    has_signature = SIGNATURE in state.files
    named_key = SignedDocument(
        what="bundle",
        document=BUNDLE,
        key=None if info.signing is None else (info.signing.key_id, info.signing.public_key),
        comment=trusted_comment(state.files[BUNDLE]),
        untrusted=UNTRUSTED_COMMENT,
        given=state.public_keys,
        read=state.require_file,
    )
    state.trust = (
        Trust.NOT_SIGNED if info.signing is None and not has_signature and not state.public_keys else Trust.BROKEN
    )
    state.trust, state.note = named_key.check(has_signature, out)


def files(state: Verification, out: Faults) -> None:
    """Check that exactly the files of a bundle are present, as regular files."""
    out.extend(state.packing_faults)
    full = state.info is None or state.info.answers
    wanted = {*ALWAYS, SUMS, *(ANSWERS if full else ())}
    for name in sorted(wanted - state.files.keys()):
        out.add(name, "a file", "none")
    # A later step checks whether evidence must be present.
    for name in sorted(state.files.keys() - wanted - {SIGNATURE, *([EVIDENCE_FILE] if full else [])}):
        out.add(name, _NO_FILE, "a file")


def digests(state: Verification, out: Faults) -> None:
    """Check every file's digest and size against SHA256SUMS and bundle.json."""
    text = state.require_file(SUMS).decode("utf-8", "replace")
    sums = {match[2]: "sha256:" + match[1] for match in _SUM_LINE.finditer(text)}
    signed = {name: data for name, data in state.files.items() if name not in (SUMS, SIGNATURE)}
    for name, data in sorted(signed.items()):
        if sums.get(name) != (got := digest_bytes(data)):
            out.add(name, f"{sums.get(name, 'a digest')} as in {SUMS}", got)
    if not out.count and state.files[SUMS] != checksums(signed):
        out.add(SUMS, "one sha256sum line for each file, in order", "different lines, order or line ends")
    named = require(state.info, BUNDLE).files
    for name in sorted(named.keys() | (signed.keys() - {BUNDLE})):
        data_or_none = signed.get(name) if name != BUNDLE else None
        got = _NO_FILE if data_or_none is None else f"{len(data_or_none)} bytes, {digest_bytes(data_or_none)}"
        want = f"{named[name].bytes} bytes, {named[name].digest}" if name in named else _NO_FILE
        if got != want:
            out.add(printable(name)[:200], f"{want} as in {BUNDLE}", got)


def schema(state: Verification, out: Faults) -> None:
    """Check that every document and row has its schema and its canonical form, and that they agree."""
    state.run = parse_model(state.require_file(RUN), RUN, RunInfo, out)
    state.scores = parse_document(state.require_file(SCORES), SCORES, out)
    _errata_row(state, out)
    listed = parse_document(state.require_file(CASES), CASES, out)
    if listed is not None:
        pairs = listed.get("cases") if len(listed) == 1 else None
        if isinstance(pairs, list) and all(_is_pair(pair) for pair in pairs):
            state.digests = pairs
        else:
            out.add(CASES, "a list of cases and their digests", "something else")
    info = require(state.info, BUNDLE)
    if info.answers:
        state.answers = rows(state.require_file(RESPONSES), RESPONSES, Answer, info.canary, out)
        state.grades = rows(state.require_file(GRADES), GRADES, Grade, info.canary, out)
    if state.run is not None:
        _agree(state, state.run, info, out)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(text, str) for text in value)


def _errata_row(state: Verification, out: Faults) -> None:
    row = None if state.scores is None else state.scores.get("errata")
    if row is None:
        return
    try:
        found = ErrataUse.model_validate_json(encode_document(row))
    except (ValidationError, RecursionError) as exc:
        out.add(SCORES, "an errata record", str(exc).replace("\n", " ")[:200])
        return
    if through_json(found.model_dump(mode="json")) == row:
        state.errata = found
    else:
        out.add(SCORES, "the errata record in canonical form", "another form")


def _agree(state: Verification, run: RunInfo, info: BundleInfo, out: Faults) -> None:
    for name in ("model", "template", "parameters", "cases"):
        if (want := getattr(run, name)) != (got := getattr(info, name)):
            out.add(BUNDLE, f"{name} as in {RUN}: {printable(str(want))[:150]}", printable(str(got))[:150])
    if run.snapshots is not None or run.endpoint is not None:
        out.add(RUN, "no endpoint or path of the machine that made it", "one")
    if info.canary != (canary := canary_of_cases(run)):
        out.add(BUNDLE, f"the canary {canary}", printable(str(info.canary))[:100])
    for what, text in (("model", run.model), ("template", run.template.name), ("grader", info.grader.model)):
        # Names are printed in tables and on terminals.
        if not text.strip() or printable(text) != text:
            out.add(BUNDLE, f"a printable name of the {what}", printable(text)[:100])
    template = run.template
    if template.name in TEMPLATES and template.digest not in (None, load_template(template.name).digest):
        state.add_note(f"the text of its template {template.name} differs from this version's")
