"""Signatures in minisign's format, so that a snapshot can be checked with minisign or medlive.

Only the prehashed kind ("ED": Ed25519 over the BLAKE2b-512 of the data) is supported. A text is accepted only in
the one spelling that minisign writes, so that no byte of a signature's file can change unnoticed.

Format: https://jedisct1.github.io/minisign/; the cost of encrypted keys: libsodium's
`crypto_pwhash_scryptsalsa208sha256` and its `pickparams`.
"""

import base64
import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from medlive.errors import BadInput, CheckFailed, MedliveError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_VARIABLE = "MEDLIVE_SIGNING_KEY"
FILE_VARIABLE = "MEDLIVE_SIGNING_KEY_FILE"

_PREFIXES = ("untrusted comment: ", "trusted comment: ")
# Marks of algorithms in minisign's data
_ED25519 = b"Ed"
_PREHASHED = b"ED"
_NO_KDF = b"\0\0"
_BLAKE2 = b"B2"
_HINT = "give a file as minisign writes it, which exists, or the base64 line of a key"
_MAX_TEXT = 16 * 1024
"""The most characters of a key or signature; minisign's own are below 10,000."""
_PRIME = 2**255 - 19
# The y of a point of order 8
_ORDER_8 = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})
"""The y of points for which anybody can forge a signature; libsodium refuses them, OpenSSL does not."""


class BadSignature(CheckFailed):
    """The signature is not valid."""


class BadKey(UsageError):
    """The signing key cannot be used."""


@dataclass(frozen=True)
class PublicKey:
    """A public key of minisign."""

    key_id: bytes  # 8 bytes
    raw: bytes  # 32 bytes, Ed25519

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Parse a public key's file, or its base64 line alone. Raises BadKey."""
        data = _parse_key(text, "public key", 42)
        y = int.from_bytes(data[10:], "little") % 2**255
        if data[:2] != _ED25519 or y >= _PRIME or y in _SMALL_ORDER:
            raise BadKey(
                "not a minisign public key: it is of another algorithm, or its value proves nothing"
            )
        return cls(data[2:10], data[10:])

    def id_text(self) -> str:
        """The key's id as minisign prints it, in upper case, always 16 hexadecimal digits."""
        return self.key_id[::-1].hex().upper()

    def line(self) -> str:
        """The key's base64 line, 56 characters."""
        return base64.b64encode(_ED25519 + self.key_id + self.raw).decode("ascii")

    def text(self) -> str:
        """The key's file."""
        return f"{_PREFIXES[0]}minisign public key {self.id_text()}\n{self.line()}\n"


@dataclass(frozen=True)
class SecretKey:
    """An unencrypted secret key of minisign (`minisign -W`); its repr shows only the public key."""

    public: PublicKey
    seed: bytes = field(repr=False)  # 32 bytes

    @classmethod
    def parse(cls, text: str) -> "SecretKey":
        """Parse a secret key's file, or its base64 line alone. Raises BadKey if it is no key, encrypted or damaged."""
        data = _parse_key(text, "secret key", 158)
        if data[:6] != _ED25519 + _NO_KDF + _BLAKE2:
            raise BadKey(
                "not a minisign secret key without a password",
                hint="minisign -C -W takes the password away",
            )
        inner = data[54:]
        key_id, seed, raw = inner[:8], inner[8:40], inner[40:72]
        # minisign leaves the checksum of an unencrypted key empty; other programs fill it in.
        expected = hashlib.blake2b(_ED25519 + inner[:72], digest_size=32).digest()
        intact = inner[72:] in (expected, bytes(32))
        if not intact or _private_key(seed).public_key().public_bytes_raw() != raw:
            raise BadKey("the signing key is damaged: its parts do not match")
        return cls(PublicKey(key_id, raw), seed)


def _private_key(seed: bytes) -> "Ed25519PrivateKey":
    # 6 MB, which idle services do without
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519.Ed25519PrivateKey.from_private_bytes(seed)


def generate() -> tuple[str, str]:
    """Generate a key pair and return the texts of the secret key's file and the public key's."""
    private = _private_key(secrets.token_bytes(32))
    # minisign does not print leading zeros, so the first digit is never 0.
    key_id = secrets.token_bytes(7) + bytes([16 + secrets.randbelow(240)])
    public = PublicKey(key_id, private.public_key().public_bytes_raw())
    head = _ED25519 + _NO_KDF + _BLAKE2 + bytes(48)
    inner = public.key_id + private.private_bytes_raw() + public.raw + bytes(32)
    return _render(("minisign unencrypted secret key", head + inner)), public.text()


def sign(
    data: bytes,
    key: SecretKey,
    trusted_comment: str,
    untrusted_comment: str,
) -> str:
    """Sign data and return the text of the signature's file; the same arguments give the same signature.

    The trusted comment is signed, the untrusted one not. Each is one line of printable ASCII.
    """
    private = _private_key(key.seed)
    raw = private.sign(hashlib.blake2b(data).digest())
    over_comment = private.sign(raw + trusted_comment.encode("ascii"))
    return _render(
        (untrusted_comment, _PREHASHED + key.public.key_id + raw),
        (trusted_comment, over_comment),
    )


def check_signature(
    data: bytes,
    signature_text: str,
    key: PublicKey,
    *,
    untrusted_comment: str | None = None,
) -> str:
    """Check a signature and return its trusted comment.

    `untrusted_comment` is the comment outside the signature that it must have; None accepts any.

    Raises:
        BadSignature: If the signature is not valid.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    (untrusted, first), (trusted, over_comment) = _parse(
        signature_text, BadSignature, "signature", 74, 64
    )
    kind = first[:2]
    key_id = first[2:10]
    raw = first[10:]
    if kind != _PREHASHED:
        raise BadSignature(
            "not a prehashed signature but a legacy or unknown one: sign again with minisign"
        )
    if key_id != key.key_id:
        made_by = PublicKey(key_id, b"").id_text()
        raise BadSignature(
            f"expected a signature of key {key.id_text()}, found one of key {made_by}"
        )
    public = Ed25519PublicKey.from_public_bytes(key.raw)
    for what, signature, message in (
        ("the data is", raw, hashlib.blake2b(data).digest()),
        ("the trusted comment is", over_comment, raw + trusted.encode("utf-8")),
    ):
        try:
            public.verify(signature, message)
        except (InvalidSignature, ValueError):
            raise BadSignature(f"{what} not what key {key.id_text()} signed") from None
    if untrusted_comment not in (None, untrusted):
        raise BadSignature("the untrusted comment is not the expected one")
    return trusted


def public_key_of(key: PublicKey | str | Path | None) -> PublicKey | None:
    """Return the public key that a user gave.

    `key` is a parsed key, a path, or a text: the path of an existing file, or a key itself. None gives None.

    Raises:
        BadInput: If the file cannot be read.
        BadKey: If it is not a key.
    """
    if key is None or isinstance(key, PublicKey):
        return key
    try:
        text = str(key)
        if isinstance(key, Path) or Path(key).is_file():
            text = Path(key).read_text("utf-8", "replace")
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or exc
        raise BadInput(
            f"the public key {str(key)[:200]!r} cannot be read: {reason}",
            hint="give the publisher's key, or the file that holds it",
        ) from exc
    return PublicKey.parse(text)


def load_signing_key(
    environment: Mapping[str, str], file: Path | None = None
) -> SecretKey | None:
    """Load the key that releases are signed with. No message contains the key.

    Args:
        environment: MEDLIVE_SIGNING_KEY (the text of the key's file, or its base64 line) or
            MEDLIVE_SIGNING_KEY_FILE (its path).
        file: The key's file, which comes before the variables.

    Returns:
        The key, or None if none is configured.

    Raises:
        BadKey: If the key cannot be used, others may read its file, or both variables are set.
    """
    text = environment.get(KEY_VARIABLE, "").strip()
    path = environment.get(FILE_VARIABLE, "")
    if file is None and text and path:
        raise BadKey(
            f"{KEY_VARIABLE} and {FILE_VARIABLE} are both set", hint="unset one of them"
        )
    if file is not None or path:
        file = file or Path(path)
        try:
            mode = file.stat().st_mode
            if not stat.S_ISREG(mode):
                raise BadKey(f"{file} is not a regular file")
            if mode & 0o077:
                raise BadKey(
                    f"the signing key {file} can be read by others than its owner (mode {stat.S_IMODE(mode):04o})",
                    hint=f"run chmod 600 {file}; if others may have read it, generate and publish a new key",
                )
            text = file.read_text("ascii", "replace")
        except (OSError, ValueError) as exc:
            reason = getattr(exc, "strerror", None) or "invalid path"
            raise BadKey(
                f"the signing key {str(file)!r} cannot be read: {reason}",
                hint="its owner must be who runs medlive",
            ) from None
    return SecretKey.parse(text) if text else None


def write_keys(
    folder: Path,
    secret_text: str,
    public_text: str,
) -> tuple[Path, Path]:
    """Write a key pair and return its paths; the secret key is readable by its owner only.

    Raises:
        BadKey: If a file exists (it is never overwritten) or cannot be written.
    """
    secret = folder / "medlive.key"
    public = folder / "medlive.pub"
    for path in (secret, public):
        if os.path.lexists(path):
            hint = "move it away by hand, or give another --out"
            raise BadKey(f"{path} exists, and a key is never overwritten", hint=hint)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text, mode in (
            (secret, secret_text, 0o600),
            (public, public_text, 0o644),
        ):
            opener = partial(os.open, mode=mode)
            with open(path, "x", encoding="ascii", opener=opener) as out:
                out.write(text)
    except OSError as exc:
        raise BadKey(
            f"the keys cannot be written to {folder}: {exc.strerror or exc}"
        ) from None
    return secret, public


def _render(*pairs: tuple[str, bytes]) -> str:
    """Write pairs of a comment and data as minisign does."""
    text = ""
    for prefix, (comment, data) in zip(_PREFIXES, pairs, strict=False):
        text += f"{prefix}{comment}\n{base64.b64encode(data).decode('ascii')}\n"
    return text


def _parse(
    text: str,
    error: type[MedliveError],
    what: str,
    *sizes: int,
) -> list[tuple[str, bytes]]:
    """Read pairs of a comment and data of these sizes; raises the error for any other spelling."""
    rows = text.split("\n") if len(text) <= _MAX_TEXT else []
    lines = zip(
        _PREFIXES,
        rows[:-1:2],
        rows[1::2],
        strict=False,
    )
    pairs = []
    with suppress(ValueError):  # A line that is not base64
        for prefix, comment, row in lines:
            pairs.append((comment.removeprefix(prefix), base64.b64decode(row)))
    if _render(*pairs) != text or [len(data) for _, data in pairs] != [*sizes]:
        raise error(
            f"not a minisign {what}: its lines are not spelled as minisign spells them",
            hint=_HINT,
        )
    if not all(_is_printable(comment) for comment, _ in pairs):
        raise error(
            f"not a minisign {what}: a comment has a control character or is not valid UTF-8"
        )
    return pairs


def _parse_key(
    text: str,
    what: str,
    size: int,
) -> bytes:
    """Read the data of a key's file, or of its base64 line alone. Raises BadKey."""
    text = text.removesuffix("\n") + "\n"
    if "\n" not in text[:-1]:
        text = f"{_PREFIXES[0]}\n{text}"
    ((_, data),) = _parse(text, BadKey, what, size)
    return data


def _is_printable(comment: str) -> bool:
    return comment.replace("\t", " ").isprintable()
