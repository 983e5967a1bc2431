"""The signature of a backup: it says that this instance wrote it, under which name and when.

SHA256SUMS is signed with a key of its own, `backup.key`, which is in no backup. Whoever can write where backups
lie can therefore neither alter one nor make one; what proves it is the public key, which is not a secret
(docs/builders/decisions/0037-backups-are-signed.md).
"""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from medlive.config import Settings
from medlive.errors import CheckFailed, UsageError
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
from medlive.service.backup.contents import SIGNATURE, SUMS, parse_sums, read_whole
from medlive.service.key_files import create_key_file

KEY: Final = "backup.key"
_COMMENT: Final = "signature of a medlive backup"
_PREFIX: Final = "medlive backup "
_UNVERIFIED: Final = "if you know where it comes from: --unverified"
_log: Final = logging.getLogger(__name__)


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
    assert key is not None
    return key


def public_keys(settings: Settings, texts: Sequence[str]) -> tuple[PublicKey, ...]:
    """Return the keys that a restored backup may be signed with: the given ones, else this instance's own.

    Raises:
        UsageError: if none is given and this instance has none.
        BadKey: if one is not a key.
    """
    keys: list[PublicKey] = []
    for text in texts:
        key = public_key_of(text)
        assert key is not None
        keys.append(key)
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
    signature = sign((folder / SUMS).read_bytes(), key, comment, _COMMENT)
    (folder / SIGNATURE).write_text(signature, encoding="utf-8")


def check_seal(folder: Path, keys: Sequence[PublicKey]) -> tuple[str, dict[str, str]]:
    """Check a backup's signature; the folder's name when it was written, and file → digest. No other file is read.

    Raises:
        CheckFailed: if it has no signature, or one that is not of these keys or of something else.
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
    name = str(json.loads(comment.removeprefix(_PREFIX))["name"])
    return name, parse_sums(sums)
