"""What making and restoring a backup share: reading, copying and signing its files, and running pg_dump or pg_restore.

No link is followed. SHA256SUMS is signed with a key of its own, `backup.key`, which is in no backup. Whoever can write
where backups lie can therefore neither alter one nor make one; what proves it is the public key, which is not a secret
(docs/builders/decisions/0037-backups-are-signed.md).
"""

import asyncio
import errno
import hashlib
import io
import json
import logging
import os
import re
import stat
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from medlive.config import Settings
from medlive.db.embedded import find_program
from medlive.db.session import connection_url
from medlive.errors import (
    BadInput,
    CheckFailed,
    DiskFull,
    ServiceUnavailable,
    UsageError,
)
from medlive.guard.child_environment import LIBPQ, child_environment
from medlive.integrity.folder import SIGNATURE, SUMS, TooLong, read_small
from medlive.integrity.log import writing
from medlive.integrity.paths import (
    PRIVATE_FOLDER,
    create_below,
    open_below,
    split_name,
    walk,
)
from medlive.integrity.signing import (
    BadSignature,
    PublicKey,
    SecretKey,
    check_signature,
    generate,
    load_signing_key,
    public_key_of,
    sign,
)
from medlive.service.database import create_key_file, database_url

DUMP = "database.dump"
"""The database in pg_dump's own format."""
ABOUT = "backup.json"
"""What the backup says of itself."""
TAKEDOWNS = "takedowns.jsonl"
"""The erased threads that must not come back."""

_NAME = re.compile(
    r"database\.dump|backup\.json|takedowns\.jsonl|(?:archive|snapshots)/.+|keys/[^/]+\.key"
)
"""Every file of a backup besides SHA256SUMS and its signature: nothing else is restored."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE = 1024 * 1024  # Bytes that are copied at once


class About(BaseModel):
    """The content of `backup.json`."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    created_at: AwareDatetime
    medlive: str
    """The version of the program that wrote it."""
    schema_revision: str
    """The newest migration of the database."""
    rows: dict[str, int]
    """Table → its rows."""
    archives: dict[str, int]
    """File of raw pages → how many of its bytes are committed."""
    snapshots: list[str]
    """The frozen versions."""


class Takedown(BaseModel):
    """A line of `takedowns.jsonl`."""

    model_config = ConfigDict(frozen=True)

    source: str
    thread_id: str
    reason: str


def plain_files(folder: Path) -> set[str]:
    """Return the names of all files below a folder.

    Raises:
        BadInput: if it holds a link or a special file, or cannot be read.
    """
    names: set[str] = set()
    try:
        for name, mode in walk(folder):
            if stat.S_ISREG(mode):
                names.add(name)
            elif not stat.S_ISDIR(mode):
                raise BadInput(
                    f"{folder}: {name} is a link or a special file, which no backup holds",
                    hint="it was put there by hand: restore another backup",
                )
    except OSError as exc:
        raise BadInput(f"{folder} cannot be read: {exc.strerror or exc}") from exc
    return names


def read_whole(folder: Path, name: str) -> bytes:
    """Return a small file of a backup. Raises BadInput."""
    split_name(name)
    try:
        return read_small(folder / name)
    except (OSError, TooLong) as exc:
        raise BadInput(
            f"{folder}: {name} cannot be read: {exc}", hint="it is not a whole backup"
        ) from exc


def parse_sums(sums: bytes) -> dict[str, str]:
    """Return name → digest of the lines of SHA256SUMS.

    Raises:
        BadInput: if a line is not as sha256sum prints it, a name is unsafe or given twice, or no backup holds it.
    """
    digests: dict[str, str] = {}
    for line in sums.decode("utf-8", "replace").splitlines():
        digest, _, name = line.partition("  ")
        if (
            not _DIGEST.fullmatch(digest)
            or not _NAME.fullmatch(name)
            or name in digests
        ):
            raise BadInput(
                f"{SUMS}: expected a digest and a file of a backup, named once, got {line[:300]!r}",
                hint="it is not a whole backup",
            )
        split_name(name)
        digests[name] = digest
    return digests


def make_private_folder(place: Path) -> None:
    """Make a folder for the owner alone, unless it exists. Raises DiskFull, or BadInput."""
    with writing(place):
        place.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def digest_of(folder: Path, name: str) -> str:
    """Return the SHA-256 of a file. Raises UnsafePath, or OSError."""
    with open_below(folder, name) as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def copy_file(source: Path, name: str, target: Path, new_name: str) -> str:
    """Copy a file between folders, for the owner alone, and return the SHA-256 of what was copied.

    Raises:
        UnsafePath: if a name is unsafe, or something on the way or the file itself is not plain.
        OSError: if the file is missing, or cannot be read or written.
    """
    digest = hashlib.sha256()
    with (
        open_below(source, name) as original,
        io.BufferedWriter(create_below(target, new_name)) as copy,
    ):
        while piece := original.read(_PIECE):
            digest.update(piece)
            copy.write(piece)
    return digest.hexdigest()


KEY = "backup.key"  # In the home, unless the settings name another file
_COMMENT = "signature of a medlive backup"
# Begins the signed comment; the folder's name and time follow as JSON
_PREFIX = "medlive backup "
# The last resort, in hints
_UNVERIFIED = "if you know where it comes from: --unverified"
_log = logging.getLogger(__name__)


def key_path(settings: Settings) -> Path:
    """Return the path of the secret key, which need not exist."""
    return settings.backup.key_file or settings.home / KEY


def secret_key(settings: Settings) -> SecretKey:
    """Return the key that backups are signed with; the first time it is made, and its public key beside it.

    Raises BadKey for a file that others may read, or that is not a key.
    """
    path = key_path(settings)
    if not path.exists():
        secret_text, public_text = generate()
        if create_key_file(path, secret_text):
            create_key_file(path.with_suffix(".pub"), public_text)
            _log.warning(
                "backups are signed with the new key %s: keep %s elsewhere, a restore needs it",
                path,
                path.with_suffix(".pub").name,
            )
    key = load_signing_key({}, path)
    assert key
    return key


def public_keys(settings: Settings, texts: Sequence[str]) -> tuple[PublicKey, ...]:
    """Return the keys that a restored backup may be signed with: the given ones, else this instance's own.

    Raises:
        UsageError: if none is given and this instance has none.
        BadKey: if one is not a key.
    """
    keys = [*filter(None, map(public_key_of, texts))]
    if not keys and key_path(settings).exists():
        keys.append(secret_key(settings).public)
    if not keys:
        raise UsageError(
            "nothing says which key this instance's backups are signed with",
            hint=f"--public-key with the key that `medlive backup` showed, or its file; {_UNVERIFIED}",
        )
    return tuple(keys)


def seal(folder: Path, name: str, created_at: str, key: SecretKey) -> None:
    """Sign a backup's SHA256SUMS.

    Args:
        folder: The backup.
        name: What the folder will be called.
        created_at: When it was written.
        key: The key of backups.
    """
    comment = _PREFIX + json.dumps({"name": name, "created_at": created_at})
    (folder / SIGNATURE).write_text(
        sign((folder / SUMS).read_bytes(), key, comment, _COMMENT), encoding="utf-8"
    )


def check_seal(
    folder: Path,
    keys: Sequence[PublicKey],
) -> tuple[str, dict[str, str]]:
    """Check a backup's signature; return the folder's name when it was written, and file → SHA-256 by SHA256SUMS.

    No file is read but SHA256SUMS and its signature.

    Raises:
        CheckFailed: if it has no signature, or one by none of these keys or of something other than a backup.
        BadInput: if it is not a backup.
    """
    sums = read_whole(folder, SUMS)
    if not os.path.lexists(folder / SIGNATURE):
        raise CheckFailed(
            f"{folder} is not signed: expected {SIGNATURE}", hint=_UNVERIFIED
        )
    signature = read_whole(folder, SIGNATURE).decode("utf-8", "replace")
    comment, reason = None, ""
    for key in keys:
        try:
            comment = comment or check_signature(sums, signature, key)
        except BadSignature as exc:
            reason = reason or exc.message
    if comment is None:
        raise CheckFailed(
            f"{folder} was not written by this instance, or was altered since: {reason}",
            hint=f"restore another backup; or --public-key with the key that it was signed with; {_UNVERIFIED}",
        )
    if not comment.startswith(_PREFIX):
        raise CheckFailed(
            f"{folder}: its signature is of something other than a backup"
        )
    return str(json.loads(comment.removeprefix(_PREFIX))["name"]), parse_sums(sums)


BARE = ("--no-owner", "--no-acl")
"""Options that leave out owners and rights, which belong to the server; `medlive db roles` gives them again."""
WHOLE = ("--exit-on-error", "--single-transaction", *BARE)
"""Options for a restore of all or nothing."""


async def run_program(
    settings: Settings, name: str, server: int, *options: str
) -> None:
    """Run one of PostgreSQL's programs on this instance's database.

    Args:
        settings: The settings, which name the database.
        name: `pg_dump` or `pg_restore`.
        server: The server's major version.
        options: The program's options besides the database.

    Raises:
        ServiceUnavailable: if it fails.
        DiskFull: if no space is left.
    """
    url = connection_url(database_url(settings)).set(drivername="postgresql")
    secret = {"PGPASSWORD": url.password} if url.password else {}
    shown = url.set(password=None).render_as_string(hide_password=False)
    running = await asyncio.create_subprocess_exec(
        find_program(name, server),
        *options,
        f"--dbname={shown}",
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
        env=child_environment(*LIBPQ, values=secret),
    )
    try:
        _, output = await running.communicate()
    except asyncio.CancelledError:
        running.kill()
        raise
    if running.returncode:
        lines = output.decode(errors="replace").strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error:" in line), lines[-1])
        hint = "it needs the database's owner, and to restore a PostgreSQL as new as the backup's"
        if os.strerror(errno.ENOSPC) in reason:
            raise DiskFull(
                f"{name} failed: {reason}", hint="free some space and run this again"
            )
        raise ServiceUnavailable(f"{name} failed: {reason}", hint=hint)
