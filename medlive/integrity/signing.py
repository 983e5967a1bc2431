"""Signatures in minisign's format: whoever has minisign can check a snapshot without medlive, and the reverse.

Only the prehashed kind ("ED": Ed25519 over the BLAKE2b-512 of the data) is made and accepted; the legacy kind is
refused. What is read has one spelling: base64 with spare bits, Windows line ends or a missing last line end are
faults here, though other programs may overlook them, so that no byte of a signature's file can change unnoticed.

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
"""How a manifest names this kind of signature."""
KEY_VARIABLE: Final = "MEDLIVE_SIGNING_KEY"
FILE_VARIABLE: Final = "MEDLIVE_SIGNING_KEY_FILE"
PASSWORD_VARIABLE: Final = "MEDLIVE_SIGNING_PASSWORD"
SECRET_NAME: Final = "medlive.key"
PUBLIC_NAME: Final = "medlive.pub"

OPS_LIMIT: Final = 2**25
MEMORY_LIMIT: Final = 2**30
"""What minisign takes to encrypt a key, about 3 s and 1 GiB. A key that asks for more is refused."""

_UNTRUSTED: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "
_PLAIN_KEY: Final = b"Ed"
_PREHASHED: Final = b"ED"
_NO_KDF: Final = b"\0\0"
_SCRYPT: Final = b"Sc"
_BLAKE2: Final = b"B2"
_MOST_TEXT: Final = 16 * 1024
"""Characters of a key's or a signature's text; minisign's own are below 10,000."""
_PRIME: Final = 2**255 - 19
_ORDER_8: Final = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER: Final = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""Where points lie that a signature can be made for without any key; libsodium refuses them, OpenSSL does not."""


class BadSignature(CheckFailed):
    """The signature does not hold."""


class BadKey(UsageError):
    """The signing key cannot be used."""


class _Unreadable(Exception):
    """A text is not in minisign's format; the text of this exception says why and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of minisign: what a signature is checked with."""

    key_id: bytes
    """8 bytes."""
    raw: bytes
    """32 bytes, Ed25519."""

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """The key in a public key's file, or in its base64 line alone. Raises BadKey."""
        try:
            data = _decode(_key_line(text), 42)
            if data[:2] != _PLAIN_KEY:
                raise _Unreadable("it is of another algorithm than Ed25519")
            y = int.from_bytes(data[10:], "little") & (2**255 - 1)
            if y >= _PRIME or y in _SMALL_ORDER:
                raise _Unreadable("it is a value that proves nothing")
        except _Unreadable as exc:
            hint = "the public key is a file of two lines as minisign writes it, or its second line"
            raise BadKey(f"this is no public key of minisign: {exc}", hint=hint) from None
        return cls(data[2:10], data[10:])

    def id_text(self) -> str:
        """The key's id as minisign prints it, in upper case, but always with all of its 16 hexadecimal digits."""
        return self.key_id[::-1].hex().upper()

    def line(self) -> str:
        """The key's base64 line, 56 characters."""
        return base64.b64encode(_PLAIN_KEY + self.key_id + self.raw).decode("ascii")

    def text(self) -> str:
        """The key's file."""
        return f"{_UNTRUSTED}minisign public key {self.id_text()}\n{self.line()}\n"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A secret key of minisign, decrypted. Its repr shows the public key alone."""

    public: PublicKey
    seed: bytes = field(repr=False)
    """32 bytes."""

    @classmethod
    def parse(cls, text: str, password: str | None) -> "SecretKey":
        """The key in a secret key's file, or in its base64 line alone, with a password or without (`minisign -W`).

        Raises BadKey when it is none, is damaged, or needs another password. A password that is not needed is not
        looked at.
        """
        try:
            data = _decode(_key_line(text), 158)
            if data[:2] != _PLAIN_KEY or data[4:6] != _BLAKE2:
                raise _Unreadable("it is of another algorithm than Ed25519 with BLAKE2b")
            if data[2:4] not in (_NO_KDF, _SCRYPT):
                raise _Unreadable("it is encrypted in a way that minisign does not know")
        except _Unreadable as exc:
            raise BadKey(f"this is no secret key of minisign: {exc}") from None
        inner, encrypted = data[54:], data[2:4] == _SCRYPT
        if encrypted:
            if not password:
                raise BadKey("the signing key is encrypted", hint=f"put its password into {PASSWORD_VARIABLE}")
            limits = (int.from_bytes(data[at : at + 8], "little") for at in (38, 46))
            inner = _crypt(inner, password, data[6:38], *limits)
        key_id, seed, raw, checksum = inner[:8], inner[8:40], inner[40:72], inner[72:]
        # minisign leaves the checksum of an unencrypted key empty, other programs fill it in.
        whole = hmac.compare_digest(checksum, _checksum(inner[:72])) or (not encrypted and not any(checksum))
        if not whole and encrypted:
            raise BadKey(f"the password in {PASSWORD_VARIABLE} is not this key's, or the key is damaged")
        if not whole or Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != raw:
            raise BadKey("the signing key is damaged: its parts do not belong together")
        return cls(PublicKey(key_id, raw), seed)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature's file, read but not checked."""

    untrusted_comment: str
    """The only part that the signature does not cover."""
    key_id: bytes
    raw: bytes
    """64 bytes."""
    trusted_comment: str
    over_comment: bytes
    """64 bytes: over `raw` and the trusted comment."""

    @classmethod
    def parse(cls, text: str) -> "Signature":
        """The signature in a `.minisig` file's text. Raises BadSignature when it is none, or a legacy one."""
        try:
            rows = _rows(text, 4)
            untrusted, trusted = _after(_UNTRUSTED, rows[0]), _after(_TRUSTED, rows[2])
            signed, over_comment = _decode(rows[1], 74), _decode(rows[3], 64)
            if signed[:2] == _PLAIN_KEY:
                raise _Unreadable("it is a legacy one, not prehashed; sign again with a present minisign")
            if signed[:2] != _PREHASHED:
                raise _Unreadable("it is of another algorithm than Ed25519 with BLAKE2b")
        except _Unreadable as exc:
            raise BadSignature(f"this is no signature of minisign: {exc}") from None
        return cls(untrusted, signed[2:10], signed[10:], trusted, over_comment)

    def text(self) -> str:
        """The signature's file."""
        first = base64.b64encode(_PREHASHED + self.key_id + self.raw).decode("ascii")
        second = base64.b64encode(self.over_comment).decode("ascii")
        return f"{_UNTRUSTED}{self.untrusted_comment}\n{first}\n{_TRUSTED}{self.trusted_comment}\n{second}\n"


def generate(
    password: str | None = None, *, ops_limit: int = OPS_LIMIT, memory_limit: int = MEMORY_LIMIT
) -> tuple[str, str]:
    """A new key pair: the text of the secret key's file and that of the public key's.

    `password` encrypts the secret key; None leaves it plain, as `minisign -W` does, and "" is refused. The limits
    (operations, bytes) say what each reading of an encrypted key costs. Raises BadKey.
    """
    if password == "":
        raise BadKey("the password is empty", hint="give one, or none at all for a key that is not encrypted")
    private = Ed25519PrivateKey.generate()
    seed, raw = private.private_bytes_raw(), private.public_key().public_bytes_raw()
    # The first digit is never 0, which minisign would not print.
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
    """The text of a signature's file over `data`; the same values give the same text.

    The comments are one line of printable ASCII and tabs each, which every reader of the format takes, up to 1,000
    characters. Raises UsageError for others.
    """
    for comment in (trusted_comment, untrusted_comment):
        if len(comment) > 1000 or any(c != "\t" and not " " <= c <= "~" for c in comment):
            raise UsageError("a signature's comment is one line of at most 1,000 printable ASCII characters")
    private = Ed25519PrivateKey.from_private_bytes(key.seed)
    raw = private.sign(hashlib.blake2b(data).digest())
    over_comment = private.sign(raw + trusted_comment.encode("utf-8"))
    return Signature(untrusted_comment, key.public.key_id, raw, trusted_comment, over_comment).text()


def check_signature(
    data: bytes, signature_text: str, key: PublicKey, *, untrusted_comment: str | None = None
) -> str:
    """The trusted comment of a signature that `key` made over `data`. Raises BadSignature with the reason.

    The signature does not cover the untrusted comment; give the one that must be there, and the text has no byte
    left that could be another.
    """
    found = Signature.parse(signature_text)
    if found.key_id != key.key_id:
        made_by = PublicKey(found.key_id, b"").id_text()
        raise BadSignature(f"the signature is of key {made_by}, not of {key.id_text()}")
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
        raise BadSignature("the untrusted comment, which no signature covers, is not the one that belongs there")
    return found.trusted_comment


def load_signing_key(environment: Mapping[str, str], file: Path | None = None) -> SecretKey | None:
    """The key that releases are signed with, or None where none is named.

    `file` counts first, then MEDLIVE_SIGNING_KEY (the text of the key's file or its base64 line), then
    MEDLIVE_SIGNING_KEY_FILE (its path); MEDLIVE_SIGNING_PASSWORD decrypts it. Raises BadKey for a key that cannot
    be used, for a file that others may read, and where both variables are set. No message holds the key.
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
    """Write a key pair into `folder`, the secret key for its owner's eyes alone, and never over a file.

    Returns the paths of the secret and the public key. Raises BadKey when one of them is there or cannot be made;
    nothing is left then.
    """
    wanted = ((folder / SECRET_NAME, secret_text, 0o600), (folder / PUBLIC_NAME, public_text, 0o644))
    made: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text, mode in wanted:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            made.append(path)
            with os.fdopen(handle, "wb") as out:
                os.fchmod(handle, mode)
                out.write(text.encode("ascii"))
                out.flush()
                os.fsync(handle)
    except OSError as exc:
        for path in made:
            with suppress(OSError):
                path.unlink()
        if isinstance(exc, FileExistsError) and Path(exc.filename).parent == folder:
            hint = "a key that is lost is lost for ever: move it away by hand, or give another --out"
            raise BadKey(f"{exc.filename} is there, and a key is never overwritten", hint=hint) from None
        raise BadKey(f"the keys cannot be written to {folder}: {exc.strerror or exc}") from None
    return wanted[0][0], wanted[1][0]


def _read_secret(path: Path) -> str:
    """The text of a secret key's file that only its owner may read. Raises BadKey."""
    try:
        # Not blocking: a named pipe that nobody writes to would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as source:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise BadKey(f"{path} is no plain file")
            if mode & 0o077:
                raise BadKey(
                    f"others than its owner may read the signing key {path} (mode {stat.S_IMODE(mode):04o})",
                    hint=f"chmod 600 {path}; if others may have read it, make a new key and publish that one",
                )
            data = source.read(_MOST_TEXT + 1)
    except (OSError, ValueError) as exc:
        reason = (exc.strerror if isinstance(exc, OSError) else None) or "its name is no path"
        raise BadKey(f"the signing key {str(path)!r} cannot be read: {reason}") from None
    return data.decode("ascii", "replace")


def _key_line(text: str) -> str:
    """The base64 line of a key: of its file, or alone."""
    if len(text) <= _MOST_TEXT and "\n" not in text.removesuffix("\n"):
        return text.removesuffix("\n")
    rows = _rows(text if text.endswith("\n") else text + "\n", 2)
    _after(_UNTRUSTED, rows[0])
    return rows[1]


def _rows(text: str, number: int) -> list[str]:
    """The lines of a text that has exactly that many, each with its end."""
    if len(text) > _MOST_TEXT:
        raise _Unreadable(f"it is longer than {_MOST_TEXT} characters")
    if not text:
        raise _Unreadable("it is empty")
    if "\r" in text:
        raise _Unreadable("it has line ends of Windows or of an old Mac; a copy of the bytes has not")
    rows = text.split("\n")
    if rows[-1]:
        raise _Unreadable("its last line has no end")
    if len(rows) != number + 1:
        raise _Unreadable(f"it has {len(rows) - 1} lines, not {number}")
    return rows[:-1]


def _after(prefix: str, row: str) -> str:
    if not row.startswith(prefix):
        raise _Unreadable(f"a line does not begin with {prefix.strip()!r}")
    comment = row.removeprefix(prefix)
    if any(c != "\t" and (c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff") for c in comment):
        raise _Unreadable("a comment holds a control character or bytes that are no text")
    return comment


def _decode(text: str, size: int) -> bytes:
    """The bytes of a base64 text in its one spelling."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        raise _Unreadable("a line is no base64") from None
    if len(data) != size:
        raise _Unreadable(f"{size} bytes were expected in base64, {len(data)} came")
    if base64.b64encode(data).decode("ascii") != text:
        raise _Unreadable("a line's base64 has bits that mean nothing")
    return data


def _checksum(inner: bytes) -> bytes:
    return hashlib.blake2b(_PLAIN_KEY + inner, digest_size=32).digest()


def _crypt(inner: bytes, password: str, salt: bytes, ops_limit: int, memory_limit: int) -> bytes:
    """Encrypt or decrypt the inner part of a secret key, 104 bytes. Raises BadKey."""
    if ops_limit > OPS_LIMIT or memory_limit > MEMORY_LIMIT:
        raise BadKey("the signing key asks for more work or memory to be decrypted than minisign's own keys do")
    cost, blocks, lanes = _scrypt_cost(ops_limit, memory_limit)
    try:
        stream = hashlib.scrypt(
            password.encode("utf-8"), salt=salt, n=cost, r=blocks, p=lanes, maxmem=2**31 - 1, dklen=len(inner)
        )
    except UnicodeEncodeError:
        raise BadKey("the password is no text that UTF-8 can hold") from None
    except (MemoryError, ValueError):
        need = 128 * cost * blocks // 2**20
        raise BadKey(f"the password cannot be used here: that takes {need} MiB of memory") from None
    return bytes(a ^ b for a, b in zip(inner, stream, strict=True))


def _scrypt_cost(ops_limit: int, memory_limit: int) -> tuple[int, int, int]:
    """N, r and p of scrypt for libsodium's two limits (`pickparams` in its pwhash_scryptsalsa208sha256.c)."""
    ops_limit, blocks = max(ops_limit, 32768), 8
    by_ops = ops_limit < memory_limit // 32
    most = ops_limit // (blocks * 4) if by_ops else memory_limit // (blocks * 128)
    log = 1
    while log < 63 and 1 << log <= most // 2:
        log += 1
    lanes = 1 if by_ops else min(ops_limit // 4 // (1 << log), 0x3FFFFFFF) // blocks
    return 1 << log, blocks, lanes
