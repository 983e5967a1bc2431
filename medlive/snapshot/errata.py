"""Errata: what was withdrawn after it was frozen, told beside the frozen folders, which stay as they are."""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_serializer,
    model_validator,
)

from medlive.errors import BadInput, CheckFailed
from medlive.integrity.folder import TooLong, read_small
from medlive.snapshot.manifest import Version, moment_text, pretty_json
from medlive.snapshot.model import CASE_ID
from medlive.snapshot.verify.leaks import find_unstorable

if TYPE_CHECKING:
    from medlive.integrity.signing import PublicKey

ERRATA: Final = "errata.json"
"""The file's name, beside the frozen folders and at the root of every place they are published at."""
SIGNATURE: Final = "errata.json.minisig"
MOST_REASON: Final = 500
"""Characters of a public reason."""


class WithdrawalKind(StrEnum):
    """Why something was withdrawn."""

    ERRATUM = "erratum"
    """It is wrong."""
    TAKEDOWN = "takedown"
    """Who wrote it, or the law, asked for it."""
    PRIVACY = "privacy"
    """It tells of a person."""


def _an_id(text: str) -> str:
    if not CASE_ID.fullmatch(text):
        raise ValueError("an id holds no space, slash or control character, and 1 to 200 others")
    return text


def _storable(text: str) -> str:
    if (character := find_unstorable(text)) is not None:
        raise ValueError(f"it holds {character}")
    return text


Id = Annotated[str, AfterValidator(_an_id)]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=MOST_REASON), AfterValidator(_storable)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Erratum(_Frozen):
    """A case, or a criterion of one, that was withdrawn and that frozen snapshots hold."""

    id: Annotated[int, Field(ge=1)]
    """The withdrawal's number. A criterion that snapshots hold under two ids has an entry for each."""
    issued_at: AwareDatetime
    kind: WithdrawalKind
    case_id: Id
    criterion_id: Id | None
    """None: the whole case."""
    reason: Reason
    revision: Annotated[int, Field(ge=1)] | None
    """Of a criterion: the latest frozen revision of its case that holds it under this id; None for a case."""
    snapshots: Annotated[tuple[Version, ...], Field(min_length=1)]
    """The frozen snapshots that hold it, oldest first."""
    fixed_in: Version | None
    """The first frozen snapshot after the last of these; None while there is none."""

    @field_serializer("issued_at", when_used="json")
    def _moment(self, moment: datetime) -> str:
        return moment_text(moment.astimezone(UTC))

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if list(self.snapshots) != sorted(set(self.snapshots)):
            raise ValueError("snapshots are not in order, each once")
        if self.fixed_in is not None and self.fixed_in <= self.snapshots[-1]:
            raise ValueError("fixed_in is no later snapshot")
        if (self.criterion_id is None) != (self.revision is None):
            raise ValueError("a criterion has a revision, and a case has none")
        if self.criterion_id is not None and not self.criterion_id.startswith(f"{self.case_id}-"):
            raise ValueError("the criterion is of another case")
        return self


class Errata(_Frozen):
    """`errata.json`."""

    format: Literal["medlive-errata"] = "medlive-errata"
    format_version: Literal[1] = 1
    entries: tuple[Erratum, ...] = ()
    """In the order of their numbers."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        keys = [_key(entry) for entry in self.entries]
        if keys != sorted(set(keys)):
            raise ValueError("entries are not in the order of their numbers, each once")
        return self

    def affecting(self, version: str) -> tuple[Erratum, ...]:
        """The entries about what the snapshot of that version holds."""
        return tuple(entry for entry in self.entries if version in entry.snapshots)

    def text(self) -> str:
        """The errata as their file holds them: JSON for people, keys in order, one line end."""
        return pretty_json(self.model_dump(mode="json"))

    @property
    def last_moment(self) -> datetime | None:
        """When the last entry was issued; None without any."""
        return max((entry.issued_at for entry in self.entries), default=None)


def _key(entry: Erratum) -> tuple[int, str]:
    return entry.id, entry.criterion_id or ""


def parse_errata(data: bytes, name: str = ERRATA) -> Errata:
    """The errata in a file's bytes. Raises BadInput, by the file's `name`, with the first thing that is wrong."""
    try:
        errata = Errata.model_validate_json(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise BadInput(f"{name} holds no errata: {place[:100]}: {first['msg'][:200]}") from exc
    if missing := sorted(Errata.model_fields.keys() - errata.model_fields_set):
        raise BadInput(f"{name} holds no errata: {', '.join(missing)} missing")
    return errata


def load_errata(path: str | Path, *, public_key: "PublicKey | None" = None) -> Errata:
    """The errata in a file.

    With `public_key`, `errata.json.minisig` beside it must be that key's signature of these bytes: raises
    CheckFailed when it is not, or not there. Raises BadInput for a file that is missing or holds no errata.
    """
    place = Path(path)
    data = _read(place)
    told = None if public_key is None else _check(data, place, public_key)
    errata = parse_errata(data, str(place))
    if told is not None and told != (expected := trusted_comment(errata)):
        raise CheckFailed(f"the signature beside {place} speaks of {told!r}, not of {expected!r}")
    return errata


def _read(place: Path) -> bytes:
    try:
        return read_small(place)
    except OSError as exc:
        raise BadInput(f"{place} cannot be read: {exc.strerror or exc}") from exc
    except TooLong as exc:
        raise BadInput(str(exc)) from exc


def _check(data: bytes, place: Path, public_key: "PublicKey") -> str:
    """The trusted comment of the signature beside a file."""
    from medlive.integrity.signing import BadSignature, check_signature

    beside = place.with_name(f"{place.name}.minisig")
    try:
        signature = _read(beside).decode("utf-8")
    except (BadInput, UnicodeDecodeError) as exc:
        raise CheckFailed(f"{place} is not signed: {exc}", hint="score without a key at your own risk") from exc
    try:
        return check_signature(data, signature, public_key)
    except BadSignature as exc:
        raise CheckFailed(f"{beside} is not that key's signature of {place.name}: {exc}") from exc


def write_errata_file(folder: Path, errata: Errata, sign: Callable[[bytes], str] | None) -> Path:
    """Write `errata.json` into the folder, and its signature where `sign` makes one; the file's path.

    Each file is replaced as a whole. A signature of other bytes than these is taken away. Raises BadInput when the
    folder cannot be written.
    """
    path, beside = folder / ERRATA, folder / SIGNATURE
    data = errata.text().encode("utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        changed = not path.is_file() or path.read_bytes() != data
        drafts = [(beside, sign(data).encode("utf-8"))] if sign is not None else []
        if changed:
            if sign is None:
                beside.unlink(missing_ok=True)
            drafts.append((path, data))
        for target, content in drafts:
            draft = target.with_name(f".{target.name}.partial")
            draft.write_bytes(content)
            draft.replace(target)
    except OSError as exc:
        raise BadInput(f"{folder} cannot be written: {exc.strerror or exc}") from exc
    return path


def trusted_comment(errata: Errata) -> str:
    """What the signature vouches for beside the bytes: the last entry's moment and how many there are."""
    moment = errata.last_moment
    return f"timestamp:{int(moment.timestamp()) if moment else 0}\tfile:{ERRATA}\tentries:{len(errata.entries)}"
