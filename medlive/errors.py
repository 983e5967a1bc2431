"""One error tree; every error a user can meet carries the exit status of `docs/operations.md`.

A docstring is the class's default message. Stages raise these and never let a driver's or a client's own
exception through: `raise ... from exc`.
"""

import errno
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from .guard.redaction import hide_secrets

if TYPE_CHECKING:
    from pydantic import ValidationError


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The system's errors for a full disk, a quota, a limit on file sizes."""


class MedliveError(Exception):
    """Something went wrong."""

    exit_status: ClassVar[int] = 1
    default_hint: ClassVar[str | None] = None

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        """`message` defaults to the class's docstring; `hint` tells the user what to do, else `default_hint` does.

        Both lose what looks like a secret: they may quote an endpoint or a server.
        """
        self.message = hide_secrets(
            message or (type(self).__doc__ or "").strip().splitlines()[0]
        )
        hint = hint or self.default_hint
        self.hint = None if hint is None else hide_secrets(hint)
        super().__init__(self.message)

    @property
    def whole(self) -> str:
        """The message, with what to do about it."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


def describe(error: BaseException) -> str:
    """What is stored and shown of any error: a MedliveError's message, else its type and first line without secrets.

    Further lines of a database's or a validator's error quote the row, and with it a thread.
    """
    if isinstance(error, MedliveError):
        return error.message
    return hide_secrets(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def first_fault(exc: "ValidationError", whole: str = "the whole") -> str:
    """The first fault that a schema finds, "where: what"; where is `whole` if the whole value is at fault."""
    error = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, error['loc'])) or whole}: {error['msg']}"


class CheckFailed(MedliveError):
    """A check found a problem."""


class UsageError(MedliveError):
    """The command or the configuration is wrong."""

    exit_status = 2


class ConfigError(UsageError):
    """The configuration is wrong."""


class MissingExtra(UsageError):
    """A part of medlive that this command needs is not installed."""


def require(library: str, what: str, package: str | None = None) -> None:
    """Raise MissingExtra if the library that `what` needs is not installed; installing `package` brings it."""
    if find_spec(library) is None:
        raise MissingExtra(
            f"{what} needs {library}, which is not installed",
            hint=f"pip install {package or library}",
        )


class ServiceUnavailable(MedliveError):
    """A service that this command needs is not there."""

    exit_status = 3


class DatabaseUnavailable(ServiceUnavailable):
    """The database cannot be reached."""


class SchemaUnsuitable(DatabaseUnavailable):
    """The database's tables are not those of this version."""


class DatabaseFull(DatabaseUnavailable):
    """The database server has no disk space or no memory left."""


class DatabaseForbidden(ServiceUnavailable):
    """The database user has no right to do this."""


class EndpointUnavailable(ServiceUnavailable):
    """The model endpoint cannot be reached."""

    usage: Any = None
    """What the last HTTP request took, where it was answered without a usable reply (`llm.engine.Usage`)."""


class RequestRefused(EndpointUnavailable):
    """The model endpoint refuses this request, and may well answer others."""


class CallerRefused(EndpointUnavailable):
    """The model endpoint answers nobody with this key, for this model, or on this account."""


class CircuitOpen(EndpointUnavailable):
    """The model endpoint has failed too often, and is not asked."""

    def __init__(self, message: str, *, hint: str, retry_at: datetime) -> None:
        """`retry_at` is when one call is let through."""
        super().__init__(message, hint=hint)
        self.retry_at = retry_at


class EvidenceUnavailable(ServiceUnavailable):
    """The evidence index cannot be used."""


class LiteratureUnavailable(EvidenceUnavailable):
    """A literature service gave no usable answer."""


class IndexMissing(EvidenceUnavailable):
    """There is no evidence index."""

    default_hint = "build it: medlive evidence build CORPUS..., or medlive evidence fetch --recommended"


class IndexCorrupt(EvidenceUnavailable):
    """The evidence index is damaged."""

    # `--fresh` because a build keeps the other corpora of an index, which it has to read.
    default_hint = (
        "build it again from all its corpora: medlive evidence build CORPUS... --fresh"
    )


class IndexOutdated(EvidenceUnavailable):
    """The evidence index was built by another version of medlive or of the libraries it searches with."""

    default_hint = IndexCorrupt.default_hint


class AccountMissing(ServiceUnavailable):
    """There is no account yet, and the private rooms wait for one."""


class DiskFull(ServiceUnavailable):
    """The disk is full."""


class BadInput(MedliveError):
    """An input file cannot be read."""

    exit_status = 2
