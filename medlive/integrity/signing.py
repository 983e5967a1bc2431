"""Signatures in minisign's format, so that a snapshot can be checked with minisign or medlive.

Only the prehashed kind ("ED": Ed25519 over the BLAKE2b-512 of the data) is supported; the legacy kind is refused.
Parsing is strict: spare base64 bits, Windows line ends or a missing last line end are errors, so that no byte of a
signature's file can change unnoticed.

Format: https://jedisct1.github.io/minisign/; the cost of encrypted keys: libsodium's
`crypto_pwhash_scryptsalsa208sha256` and its `pickparams`.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from medlive.errors import CheckFailed, UsageError

ALGORITHM: Final = "minisign-ed25519-blake2b"
"""The name of this kind of signature in a manifest."""
KEY_VARIABLE: Final = "MEDLIVE_SIGNING_KEY"
FILE_VARIABLE: Final = "MEDLIVE_SIGNING_KEY_FILE"
PASSWORD_VARIABLE: Final = "MEDLIVE_SIGNING_PASSWORD"
SECRET_NAME: Final = "medlive.key"
PUBLIC_NAME: Final = "medlive.pub"

OPS_LIMIT: Final = 2**25
MEMORY_LIMIT: Final = 2**30
"""The cost of a key encrypted by minisign, about 3 s and 1 GiB; a key that needs more is refused."""

_UNTRUSTED: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "
_PLAIN_KEY: Final = b"Ed"
_PREHASHED: Final = b"ED"
_NO_KDF: Final = b"\0\0"
_SCRYPT: Final = b"Sc"
_BLAKE2: Final = b"B2"
_MAX_TEXT: Final = 16 * 1024
"""The most characters of a key or signature; minisign's own are below 10,000."""
_PRIME: Final = 2**255 - 19
_ORDER_8: Final = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""Points for which anybody can forge a signature; libsodium refuses them, OpenSSL does not."""


class BadSignature(CheckFailed):
    """The signature is not valid."""


class BadKey(UsageError):
    """The signing key cannot be used."""


class _FormatError(Exception):
    """A text is not in minisign's format; the message says why and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of minisign."""

    key_id: bytes
    """8 bytes."""
    raw: bytes
    """32 bytes, Ed25519."""

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Parse a public key's file, or its base64 line alone. Raises BadKey."""
        try:
            data = _decode(_key_line(text), 42)
            if data[:2] != _PLAIN_KEY:
                raise _FormatError("the algorithm is not Ed25519")
            y = int.from_bytes(data[10:], "little") & (2**255 - 1)
            if y >= _PRIME or y in _SMALL_ORDER:
                raise _FormatError("its value proves nothing")
        except _FormatError as exc:
            hint = "give the two lines of the file that minisign writes, or the second line"
            raise BadKey(f"not a minisign public key: {exc}", hint=hint) from None
        return cls(data[2:10], data[10:])

    def id_text(self) -> str:
        """The key's id as minisign prints it, in upper case, always 16 hexadecimal digits."""
        return self.key_id[::-1].hex().upper()

    def line(self) -> str:
        """The key's base64 line, 56 characters."""
        return base64.b64encode(_PLAIN_KEY + self.key_id + self.raw).decode("ascii")

    def text(self) -> str:
        """The key's file."""
        return f"{_UNTRUSTED}minisign public key {self.id_text()}\n{self.line()}\n"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A decrypted secret key of minisign; its repr shows only the public key."""

    public: PublicKey
    seed: bytes = field(repr=False)
    """32 bytes."""

    @classmethod
    def parse(cls, text: str, password: str | None) -> "SecretKey":
        """Parse a secret key's file, or its base64 line alone.

        Args:
            text: The text.
            password: What it is encrypted with; ignored for a key that is not encrypted (`minisign -W`).

        Raises:
            BadKey: If it is not a key, is damaged, or needs another password.
        """
        try:
            data = _decode(_key_line(text), 158)
            if data[:2] != _PLAIN_KEY or data[4:6] != _BLAKE2:
                raise _FormatError("the algorithm is not Ed25519 with BLAKE2b")
            if data[2:4] not in (_NO_KDF, _SCRYPT):
                raise _FormatError("minisign does not support its encryption")
        except _FormatError as exc:
            raise BadKey(f"not a minisign secret key: {exc}") from None
        inner, encrypted = data[54:], data[2:4] == _SCRYPT
        if encrypted:
            if not password:
                raise BadKey("the signing key is encrypted", hint=f"set {PASSWORD_VARIABLE} to its password")
            limits = (int.from_bytes(data[at : at + 8], "little") for at in (38, 46))
            inner = _crypt(inner, password, data[6:38], *limits)
        key_id, seed, raw, checksum = inner[:8], inner[8:40], inner[40:72], inner[72:]
        # minisign leaves the checksum of an unencrypted key empty; other programs fill it in.
        intact = hmac.compare_digest(checksum, _checksum(inner[:72])) or (not encrypted and not any(checksum))
        if not intact and encrypted:
            raise BadKey(f"the password in {PASSWORD_VARIABLE} is not this key's, or the key is damaged")
        if not intact or Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != raw:
            raise BadKey("the signing key is damaged: its parts do not match")
        return cls(PublicKey(key_id, raw), seed)


@dataclass(frozen=True, slots=True)
class Signature:
    """A parsed signature, not yet checked."""

    untrusted_comment: str
    """The only part that is not signed."""
    key_id: bytes
    raw: bytes
    """64 bytes."""
    trusted_comment: str
    over_comment: bytes
    """64 bytes: the signature of `raw` and the trusted comment."""

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """Parse the text of a `.minisig` file. Raises BadSignature if it is not a prehashed signature."""
        try:
            rows = _rows(text, 4)
            untrusted, trusted = _after(_UNTRUSTED, rows[0]), _after(_TRUSTED, rows[2])
            signed, over_comment = _decode(rows[1], 74), _decode(rows[3], 64)
            if signed[:2] == _PLAIN_KEY:
                raise _FormatError("it is a legacy one, not prehashed; sign again with a newer minisign")
            if signed[:2] != _PREHASHED:
                raise _FormatError("the algorithm is not Ed25519 with BLAKE2b")
        except _FormatError as exc:
            raise BadSignature(f"not a minisign signature: {exc}") from None
        return cls(untrusted, signed[2:10], signed[10:], trusted, over_comment)

    def text(self) -> str:
        """The signature's file."""
        first = base64.b64encode(_PREHASHED + self.key_id + self.raw).decode("ascii")
        second = base64.b64encode(self.over_comment).decode("ascii")
        return f"{_UNTRUSTED}{self.untrusted_comment}\n{first}\n{_TRUSTED}{self.trusted_comment}\n{second}\n"


def generate(
    password: str | None = None, *, ops_limit: int = OPS_LIMIT, memory_limit: int = MEMORY_LIMIT
) -> tuple[str, str]:
    """Generate a key pair.

    Args:
        password: Encrypts the secret key; None leaves it plain, as `minisign -W` does.
        ops_limit: The cost of decrypting the key, in operations.
        memory_limit: The same in bytes.

    Returns:
        The texts of the secret key's file and the public key's.

    Raises:
        BadKey: If the password is empty.
    """
    if password == "":
        raise BadKey(
            "the password is empty",
            hint="give a password, or leave the option out for a key that is not encrypted",
        )
    private = Ed25519PrivateKey.generate()
    seed, raw = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    # minisign does not print leading zeros, so the first digit is never 0.
    key_id = secrets.token_bytes(7) + bytes([16 + secrets.randbelow(240)])
    inner = key_id + seed + raw
    if password is None:
        head = _PLAIN_KEY + _NO_KDF + _BLAKE2 + bytes(32 + 8 + 8)
        inner, kind = inner + bytes(32), "unencrypted"
    else:
        salt = secrets.token_bytes(32)
        limits = ops_limit.to_bytes(8, "little") + memory_limit.to_bytes(8, "little")
        head = _PLAIN_KEY + _SCRYPT + _BLAKE2 + salt + limits
        inner = _crypt(inner + _checksum(inner), password, salt, ops_limit, memory_limit)
        kind = "encrypted"
    line = base64.b64encode(head + inner).decode("ascii")
    return f"{_UNTRUSTED}minisign {kind} secret key\n{line}\n", PublicKey(key_id, raw).text()


def sign(data: bytes, key: SecretKey, trusted_comment: str, untrusted_comment: str) -> str:
    """Sign data; the same arguments give the same signature.

    Args:
        data: What is signed.
        key: The key.
        trusted_comment: A signed comment of at most 1,000 characters of printable ASCII and tabs.
        untrusted_comment: An unsigned one, likewise.

    Returns:
        The text of the signature's file.

    Raises:
        UsageError: If a comment is not of this form.
    """
    for comment in (trusted_comment, untrusted_comment):
        if len(comment) > 1000 or any(c != "\t" and not " " <= c <= "~" for c in comment):
            raise UsageError("a signature's comment must be one line of at most 1,000 printable ASCII characters")
    private = Ed25519PrivateKey.from_private_bytes(key.seed)
    raw = private.sign(hashlib.blake2b(data).digest())
    over_comment = private.sign(raw + trusted_comment.encode("utf-8"))
    return Signature(untrusted_comment, key.public.key_id, raw, trusted_comment, over_comment).text()


def check_signature(
    data: bytes, signature_text: str, key: PublicKey, *, untrusted_comment: str | None = None
) -> str:
    """Check a signature and return its trusted comment.

    Args:
        data: What is signed.
        signature_text: The text of the signature's file.
        key: The key that must have signed.
        untrusted_comment: The untrusted comment that the signature must have, which is not signed; None accepts
            any.

    Raises:
        BadSignature: If the signature is not valid.
    """
    found = Signature.parse(signature_text)
    if found.key_id != key.key_id:
        made_by = PublicKey(found.key_id, b"").id_text()
        raise BadSignature(f"expected a signature of key {key.id_text()}, found one of key {made_by}")
    try:
        public = Ed25519PublicKey.from_public_bytes(key.raw)
        public.verify(found.raw, hashlib.blake2b(data).digest())
    except (InvalidSignature, ValueError):
        raise BadSignature(f"the data is not what key {key.id_text()} signed") from None
    try:
        public.verify(found.over_comment, found.raw + found.trusted_comment.encode("utf-8"))
    except InvalidSignature:
        raise BadSignature(f"the trusted comment is not what key {key.id_text()} signed") from None
    if untrusted_comment not in (None, found.untrusted_comment):
        raise BadSignature("the untrusted comment is not the expected one")
    return found.trusted_comment


def load_signing_key(environment: Mapping[str, str], file: Path | None = None) -> SecretKey | None:
    """Load the key that releases are signed with. No message contains the key.

    Args:
        environment: MEDLIVE_SIGNING_KEY (the text of the key's file, or its base64 line) or
            MEDLIVE_SIGNING_KEY_FILE (its path), and MEDLIVE_SIGNING_PASSWORD.
        file: The key's file, which comes before the variables.

    Returns:
        The key, or None if none is configured.

    Raises:
        BadKey: If the key cannot be used, others may read its file, or both variables are set.
    """
    password = environment.get(PASSWORD_VARIABLE)
    if file is not None:
        return SecretKey.parse(_read_secret(file), password)
    text, path = environment.get(KEY_VARIABLE, "").strip(), environment.get(FILE_VARIABLE, "")
    if text and path:
        raise BadKey(f"{KEY_VARIABLE} and {FILE_VARIABLE} are both set", hint="unset one of them")
    if text:
        return SecretKey.parse(text, password)
    return SecretKey.parse(_read_secret(Path(path)), password) if path else None


def write_keys(folder: Path, secret_text: str, public_text: str) -> tuple[Path, Path]:
    """Write a key pair, the secret key readable by its owner only; existing files are never overwritten.

    Returns:
        The paths of the secret and the public key.

    Raises:
        BadKey: If a file exists or cannot be written; no file is left behind.
    """
    files = ((folder / SECRET_NAME, secret_text, 0o600), (folder / PUBLIC_NAME, public_text, 0o644))
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text, mode in files:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            written.append(path)
            with os.fdopen(handle, "wb") as out:
                os.fchmod(handle, mode)
                out.write(text.encode("ascii"))
                out.flush()
                os.fsync(handle)
    except OSError as exc:
        for path in written:
            with suppress(OSError):
                path.unlink()
        if isinstance(exc, FileExistsError) and Path(exc.filename).parent == folder:
            hint = "move it away by hand, or give another --out"
            raise BadKey(f"{exc.filename} exists, and a key is never overwritten", hint=hint) from None
        raise BadKey(f"the keys cannot be written to {folder}: {exc.strerror or exc}") from None
    return files[0][0], files[1][0]


def _read_secret(path: Path) -> str:
    """Read a secret key's file. Raises BadKey if others than its owner may read it."""
    try:
        # Not blocking, since a named pipe without a writer would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as source:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise BadKey(f"{path} is not a regular file")
            if mode & 0o077:
                raise BadKey(
                    f"the signing key {path} can be read by others than its owner (mode {stat.S_IMODE(mode):04o})",
                    hint=f"run chmod 600 {path}; if others may have read it, generate and publish a new key",
                )
            data = source.read(_MAX_TEXT + 1)
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or "invalid path"
        raise BadKey(f"the signing key {str(path)!r} cannot be read: {reason}") from None
    return data.decode("ascii", "replace")


def _key_line(text: str) -> str:
    """Return the base64 line of a key's file, or the text itself if it is one line."""
    if len(text) <= _MAX_TEXT and "\n" not in text.removesuffix("\n"):
        return text.removesuffix("\n")
    rows = _rows(text if text.endswith("\n") else text + "\n", 2)
    _after(_UNTRUSTED, rows[0])
    return rows[1]


def _rows(text: str, number: int) -> list[str]:
    """Return the lines of a text that must have `number` of them, each with its line end."""
    if len(text) > _MAX_TEXT:
        raise _FormatError(f"it is longer than {_MAX_TEXT} characters")
    if not text:
        raise _FormatError("it is empty")
    if "\r" in text:
        raise _FormatError("it has line ends of Windows or an old Mac; copy it as bytes")
    rows = text.split("\n")
    if rows[-1]:
        raise _FormatError("its last line has no line end")
    if len(rows) != number + 1:
        raise _FormatError(f"expected {number} lines, found {len(rows) - 1}")
    return rows[:-1]


def _after(prefix: str, row: str) -> str:
    if not row.startswith(prefix):
        raise _FormatError(f"a line does not begin with {prefix.strip()!r}")
    comment = row.removeprefix(prefix)
    if any(c != "\t" and (c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff") for c in comment):
        raise _FormatError("a comment has a control character or is not valid UTF-8")
    return comment


def _decode(text: str, size: int) -> bytes:
    """Decode canonical base64 of `size` bytes."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise _FormatError("a line is not valid base64") from None
    if len(data) != size:
        raise _FormatError(f"expected {size} bytes in base64, found {len(data)}")
    if base64.b64encode(data).decode("ascii") != text:
        raise _FormatError("a line's base64 has unused bits set")
    return data


def _checksum(inner: bytes) -> bytes:
    return hashlib.blake2b(_PLAIN_KEY + inner, digest_size=32).digest()


def _crypt(inner: bytes, password: str, salt: bytes, ops_limit: int, memory_limit: int) -> bytes:
    """Encrypt or decrypt the inner part of a secret key, 104 bytes. Raises BadKey."""
    if ops_limit > OPS_LIMIT or memory_limit > MEMORY_LIMIT:
        raise BadKey("decrypting the signing key needs more work or memory than minisign's own keys")
    cost, blocks, lanes = _scrypt_cost(ops_limit, memory_limit)
    try:
        stream = hashlib.scrypt(
            password.encode("utf-8"), salt=salt, n=cost, r=blocks, p=lanes, maxmem=2**31 - 1, dklen=len(inner)
        )
    except UnicodeEncodeError:
        raise BadKey("the password is not valid UTF-8") from None
    except (MemoryError, ValueError):
        need = 128 * cost * blocks // 2**20
        raise BadKey(f"decrypting the signing key needs {need} MiB of memory") from None
    return bytes(a ^ b for a, b in zip(inner, stream, strict=True))


def _scrypt_cost(ops_limit: int, memory_limit: int) -> tuple[int, int, int]:
    """Return scrypt's N, r and p for libsodium's limits (`pickparams` in pwhash_scryptsalsa208sha256.c)."""
    ops_limit, blocks = max(ops_limit, 32768), 8
    by_ops = ops_limit < memory_limit // 32
    most = ops_limit // (blocks * 4) if by_ops else memory_limit // (blocks * 128)
    log = 1
    while log < 63 and 1 << log <= most // 2:
        log += 1
    lanes = 1 if by_ops else min(ops_limit // 4 // (1 << log), 0x3FFFFFFF) // blocks
    return 1 << log, blocks, lanes
