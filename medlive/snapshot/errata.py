"""Errata: what was withdrawn after it was frozen, listed beside the frozen folders, which never change.

`parse_errata` parses bytes, `read_errata` also checks their signature, `load_errata` does both for a file.
`write_errata_file` signs and writes Errata, `put_errata` writes bytes and signature as they are.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    StringConstraints,
    ValidationError,
    field_serializer,
    model_validator,
)

from medlive.errors import BadInput, CheckFailed, first_fault
from medlive.guard.bounds import SMALL_FILE_BYTES
from medlive.integrity.log import read_bytes, read_found, write_whole, writing
from medlive.integrity.signing import BadSignature, PublicKey, check_signature

from .manifest import Version, moment_text, optional, pretty_json
from .model import CASE_ID
from .model import WithdrawalKind as WithdrawalKind
from .verify.text_checks import find_unstorable

ERRATA = "errata.json"
"""The file's name, beside the frozen folders and at the root of every place of publication."""
SIGNATURE = "errata.json.minisig"
PUBLIC_ERRATA = "errata-public.json"
"""Errata of publishable snapshots alone; the web gives them out as `errata.json`, and they are signed as that."""
MOST_REASON = 500
"""The most characters of a public reason."""


def _check_storable(text: str) -> str:
    if (character := find_unstorable(text)) is not None:
        raise ValueError(f"it holds {character}")
    return text


Id = Annotated[str, StringConstraints(pattern=f"^{CASE_ID.pattern}$")]
Reason = Annotated[
    str,
    StringConstraints(
        min_length=1,
        max_length=MOST_REASON,
    ),
    AfterValidator(_check_storable),
]


class Erratum(BaseModel, extra="forbid", frozen=True):
    """A withdrawn case or criterion that frozen snapshots hold."""

    id: Annotated[int, Field(ge=1)]
    """The withdrawal's number; a criterion that snapshots hold under two ids has an entry for each."""
    issued_at: AwareDatetime
    kind: WithdrawalKind
    case_id: Id
    criterion_id: Id | None  # None: the whole case
    reason: Reason
    revision: Annotated[int, Field(ge=1)] | None
    """The latest frozen revision of the case that holds the criterion under this id; None for a whole case."""
    snapshots: Annotated[tuple[Version, ...], Field(min_length=1)]
    """The frozen snapshots that hold the case or criterion, oldest first."""
    # The first frozen snapshot after `snapshots`; None while there is none
    fixed_in: Version | None
    origin: Literal["evidence", "consensus"] | None = optional(None)
    """Where a criterion comes from, if not from the case's advice; else None, and absent in the file."""
    reinstated_at: AwareDatetime | None = optional(None)
    """When the withdrawal was undone; None, and absent in the file, while it is in force."""

    @field_serializer("issued_at", "reinstated_at", when_used="json")
    def _format_moment(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment_text(moment.astimezone(UTC))

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if list(self.snapshots) != sorted(set(self.snapshots)):
            raise ValueError("snapshots are not in order, each once")
        if self.fixed_in is not None and self.fixed_in <= self.snapshots[-1]:
            raise ValueError("fixed_in must be a later snapshot")
        if (self.criterion_id is None) != (self.revision is None):
            raise ValueError("a criterion has a revision, and a case has none")
        prefix = f"{self.case_id}-"
        if self.criterion_id and not self.criterion_id.startswith(prefix):
            raise ValueError("the criterion is of another case")
        return self


class Errata(BaseModel, extra="forbid", frozen=True):
    """The content of `errata.json`."""

    format: Literal["medlive-errata"] = "medlive-errata"
    format_version: Literal[1] = 1
    entries: tuple[Erratum, ...] = ()  # In the order of their numbers

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        keys = list(map(_key, self.entries))
        if keys != sorted(set(keys)):
            raise ValueError("entries are not in the order of their numbers, each once")
        return self

    def affecting(self, version: str) -> tuple[Erratum, ...]:
        """Return the entries that were not undone and concern a snapshot."""
        return tuple(entry for entry in self.standing if version in entry.snapshots)

    def find_lost(self, known: "Errata") -> str | None:
        """Return what `known` holds that these lack, which only an older file does; None if nothing.

        Entries are never removed, a reinstatement stays, and the snapshots of an entry only become more.
        """
        entries = {_key(entry): entry for entry in self.entries}
        for entry in known.entries:
            own = entries.get(_key(entry))
            if (
                own is None
                or (entry.reinstated_at and not own.reinstated_at)
                or not set(entry.snapshots) <= set(own.snapshots)
                or (
                    own.snapshots == entry.snapshots
                    and entry.fixed_in
                    and not own.fixed_in
                )
            ):
                subject = entry.criterion_id or entry.case_id
                return f"the latest state of entry {entry.id} ({subject})"
        return None

    @property
    def standing(self) -> tuple[Erratum, ...]:
        """The entries that were not undone."""
        return tuple(entry for entry in self.entries if entry.reinstated_at is None)

    def text(self) -> str:
        """Return the file's text: indented JSON with sorted keys."""
        return pretty_json(self.model_dump(mode="json"))


def _key(entry: Erratum) -> tuple[int, str]:
    return entry.id, entry.criterion_id or ""


def parse_errata(data: bytes, name: str = ERRATA) -> Errata:
    """Parse the bytes of an errata file. Raises BadInput with the first fault; `name` is the file's name in it."""
    try:
        errata = Errata.model_validate_json(data)
    except ValidationError as exc:
        fault = first_fault(exc)[:300]
        raise BadInput(f"{name} is not a valid errata file: {fault}") from exc
    if missing := sorted(Errata.model_fields.keys() - errata.model_fields_set):
        fault = f"{', '.join(missing)} missing"
        raise BadInput(f"{name} is not a valid errata file: {fault}")
    return errata


def load_errata(
    path: str | Path,
    *,
    public_key: PublicKey | None = None,
    is_named: bool = False,
) -> Errata:
    """Load an errata file.

    Args:
        path: The file.
        public_key: The key that must have signed it, in `errata.json.minisig` beside it; None skips this check.
        is_named: Whether a user named the file, so that it may be a link; a file found in a folder may not.

    Raises:
        BadInput: If the file is missing or not valid.
        CheckFailed: If the signature is missing or not valid.
    """
    path = Path(path)
    beside = path.parent / f"{path.name}.minisig"
    read = read_bytes if is_named else read_found
    signature = None
    if public_key is not None and beside.is_file():
        signature = read(beside, SMALL_FILE_BYTES)
    data = read(path, SMALL_FILE_BYTES)
    return read_errata(data, signature, str(path), public_key)


def read_errata(
    data: bytes,
    signature: bytes | None,
    name: str,
    public_key: PublicKey | None,
) -> Errata:
    """Parse the bytes of an errata file and, if there is a key, check the signature; `name` is for messages.

    Raises:
        BadInput: If the file is not valid.
        CheckFailed: If the signature is missing or not valid.
    """
    if public_key is None:
        return parse_errata(data, name)
    hint = "if the publisher has another key now, give it with --public-key"
    if signature is None:
        raise CheckFailed(
            f"{name} is not signed",
            hint=f"its signature lies beside it as {SIGNATURE}: ask the publisher for it",
        )
    beside = f"the signature beside {name}"
    try:
        text = signature.decode("utf-8", "replace")
        comment = check_signature(data, text, public_key)
    except BadSignature as exc:
        text = f"{beside} is not a valid signature: {exc}"
        raise CheckFailed(text, hint=hint) from exc
    errata = parse_errata(data, name)
    if comment != (expected := trusted_comment(errata)):
        raise CheckFailed(
            f"{beside}: expected the comment {expected!r}, got {comment!r}"
        )
    return errata


def write_errata_file(
    folder: Path,
    errata: Errata,
    sign: Callable[[bytes], str] | None,
    name: str = ERRATA,
) -> Path:
    """Sign and write errata, each file as a whole; return the path. An unsigned file that is the same is left.

    Args:
        folder: Where the frozen snapshots are.
        errata: What the file holds.
        sign: Signs the file's bytes; None: no signature, and that of other bytes is removed.
        name: The file's name there.

    Raises:
        BadInput, DiskFull: If the folder cannot be written.
    """
    path = folder / name
    data = errata.text().encode("utf-8")
    signature = None if sign is None else sign(data).encode("utf-8")
    if signature is not None or not path.is_file() or read_bytes(path) != data:
        put_errata(folder, data, signature, name)
    return path


def put_errata(
    folder: Path,
    data: bytes,
    signature: bytes | None,
    name: str = ERRATA,
) -> None:
    """Replace the errata of a folder and their signature by these bytes, each file whole. Raises BadInput, DiskFull."""
    beside = f"{name}.minisig"
    if signature is None:
        with writing(folder):
            (folder / beside).unlink(missing_ok=True)
    else:
        write_whole(folder / beside, signature)
    write_whole(folder / name, data)


def trusted_comment(errata: Errata) -> str:
    """Return the signature's trusted comment: the last moment of an entry and the number of entries."""
    moments = [0]
    for entry in errata.entries:
        latest = entry.reinstated_at or entry.issued_at
        moments += [int(entry.issued_at.timestamp()), int(latest.timestamp())]
    return f"timestamp:{max(moments)}\tfile:{ERRATA}\tentries:{len(errata.entries)}"
