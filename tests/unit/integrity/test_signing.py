"""Signatures against two other programs that speak minisign's format, and against damage of every kind."""

import base64
import os
import resource
import shutil
import subprocess
from pathlib import Path

import minisign
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medlive.__main__ import run
from medlive.integrity import signing
from medlive.integrity.signing import (
    BadKey,
    BadSignature,
    PublicKey,
    SecretKey,
    check_signature,
    generate,
    load_signing_key,
    sign,
    write_keys,
)

DATA = b"0123  data/cases.jsonl\n"
COMMENT = "timestamp:1795219200\tfile:SHA256SUMS\tversion:2026.W47\tcanary:5c6b1f0e-7d3a-5c5e-9a41-6d65646c6976"
SECRET_TEXT, PUBLIC_TEXT = generate()
KEY = SecretKey.parse(SECRET_TEXT)
SIGNED = sign(DATA, KEY, COMMENT, "medlive 2026.W47")

needs_minisign = pytest.mark.skipif(
    shutil.which("minisign") is None,
    reason="the program minisign is not installed (apt-get install minisign)",
)


def _minisign(
    folder: Path, *arguments: str, typed: str = "", memory: int | None = None
) -> str:
    def limit() -> None:
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        ["minisign", *arguments],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _write(folder: Path) -> None:
    write_keys(folder, SECRET_TEXT, PUBLIC_TEXT)
    (folder / "SHA256SUMS").write_bytes(DATA)
    (folder / "SHA256SUMS.minisig").write_text(SIGNED)


@pytest.mark.thorough
@needs_minisign
def test_minisign_verifies_ours_and_signs_with_our_key(tmp_path: Path) -> None:
    _write(tmp_path)
    assert (
        _minisign(tmp_path, "-VHQ", "-p", "medlive.pub", "-m", "SHA256SUMS").strip("\n")
        == COMMENT
    )
    _minisign(tmp_path, "-VH", "-P", KEY.public.line(), "-m", "SHA256SUMS")
    _minisign(tmp_path, "-R", "-s", "medlive.key", "-p", "again.pub")
    assert PublicKey.parse((tmp_path / "again.pub").read_text()) == KEY.public
    _minisign(
        tmp_path,
        "-S",
        "-s",
        "medlive.key",
        "-m",
        "SHA256SUMS",
        "-t",
        COMMENT,
        "-c",
        "medlive 2026.W47",
    )
    assert (tmp_path / "SHA256SUMS.minisig").read_text() == SIGNED


@needs_minisign
@pytest.mark.parametrize(
    "encrypted", [False, pytest.param(True, marks=pytest.mark.thorough)]
)
def test_a_key_that_minisign_made_is_read_or_refused(
    tmp_path: Path, encrypted: bool
) -> None:
    # Where memory is short minisign asks for less of it, which keeps this test cheap.
    plain = [] if encrypted else ["-W"]
    keys = ["-p", "k.pub", "-s", "k.key"]
    _minisign(tmp_path, "-G", *keys, *plain, typed="word\nword\n", memory=60_000_000)
    text = (tmp_path / "k.key").read_text()
    if encrypted:
        with pytest.raises(BadKey) as refused:
            SecretKey.parse(text)
        assert "minisign -C -W" in (refused.value.hint or "")
        return
    public = PublicKey.parse((tmp_path / "k.pub").read_text())
    assert SecretKey.parse(text).public == public
    comment, line = (tmp_path / "k.pub").read_text().splitlines()
    assert public.line() == line
    assert public.id_text() == comment.split()[-1].zfill(16)
    (tmp_path / "m").write_bytes(DATA)
    _minisign(tmp_path, "-S", "-s", "k.key", "-m", "m", "-t", "by minisign")
    signature = (tmp_path / "m.minisig").read_text()
    assert check_signature(DATA, signature, public) == "by minisign"
    _minisign(tmp_path, "-S", "-l", "-s", "k.key", "-m", "m")
    with pytest.raises(BadSignature):
        check_signature(DATA, (tmp_path / "m.minisig").read_text(), public)


def test_an_independent_library_verifies_ours_and_ours_verifies_its() -> None:
    theirs = minisign.PublicKey.from_bytes(PUBLIC_TEXT.encode())
    theirs.verify(DATA, minisign.Signature.from_bytes(SIGNED.encode()))
    with pytest.raises(minisign.VerifyError):
        theirs.verify(DATA + b" ", minisign.Signature.from_bytes(SIGNED.encode()))
    made = minisign.KeyPair.generate()
    signature = made.secret_key.sign(DATA, trusted_comment="by py-minisign")
    public = PublicKey.parse(made.public_key.to_base64().decode())
    assert (
        check_signature(DATA, bytes(signature).decode() + "\n", public)
        == "by py-minisign"
    )
    legacy = made.secret_key.sign(DATA, prehash=False)
    with pytest.raises(BadSignature, match="legacy"):
        check_signature(DATA, bytes(legacy).decode() + "\n", public)


@pytest.mark.thorough
def test_every_flipped_bit_of_a_signature_is_refused() -> None:
    text = SIGNED.encode()
    free = range(len("untrusted comment: "), text.index(b"\n"))
    for at in range(len(text)):
        for bit in range(8):
            changed = text[:at] + bytes([text[at] ^ (1 << bit)]) + text[at + 1 :]
            for exact in (None, "medlive 2026.W47") if at in free else (None,):
                try:
                    check_signature(
                        DATA,
                        changed.decode("utf-8", "surrogateescape"),
                        KEY.public,
                        untrusted_comment=exact,
                    )
                except BadSignature:
                    continue
                # What the signature does not cover is refused by whoever knows what must stand there.
                assert at in free
                assert exact is None


@given(at=st.integers(0, len(DATA) - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_every_other_data_is_refused(at: int, bit: int, cut: bool) -> None:
    changed = (
        DATA[:at]
        if cut
        else DATA[:at] + bytes([DATA[at] ^ (1 << bit)]) + DATA[at + 1 :]
    )
    with pytest.raises(BadSignature):
        check_signature(changed, SIGNED, KEY.public)


def test_every_flipped_bit_of_a_key_is_refused_or_is_another_key() -> None:
    line = base64.b64decode(SECRET_TEXT.splitlines()[1])
    for at in range(len(line)):
        if 6 <= at < 54:
            continue  # Salt and limits, which an unencrypted key does not use.
        changed = base64.b64encode(
            line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
        ).decode()
        if (
            54 <= at < 62
        ):  # The key's id: nothing vouches for it but the public key that was given out.
            with pytest.raises(BadSignature):
                check_signature(
                    DATA, sign(DATA, SecretKey.parse(changed), "", ""), KEY.public
                )
        else:
            with pytest.raises(BadKey):
                SecretKey.parse(changed)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "\n\n\n\n",
        "\x00\x01\xff" * 30,
        "x" * 5_000_000,
        "untrusted comment: x\n" * 300_000,
        "\ud800\n" * 4,
        SIGNED.replace("\n", "\r\n"),
        SIGNED.replace("\n", "\r"),
        SIGNED + "\n",
        SIGNED + "x",
        SIGNED.rstrip("\n"),
        "\ufeff" + SIGNED,
        SIGNED.replace("trusted comment", "comment"),
        SECRET_TEXT + "\n",
        SIGNED.replace("\n", "=\n"),
        PUBLIC_TEXT + "\n",
        PUBLIC_TEXT.replace("\n", "\r\n"),
        SIGNED.replace("untrusted comment: ", "untrusted comment: \x1b[2J"),
        SIGNED.replace("RU", "RW", 1),
        SIGNED.replace("RU", "R𝟙", 1),
        SIGNED.replace("\n", "\n\n"),
    ],
    ids=range(22),
)
def test_hostile_texts_are_refused_with_the_typed_error(text: str) -> None:
    with pytest.raises(BadSignature):
        check_signature(DATA, text, KEY.public)
    for parse in (PublicKey.parse, SecretKey.parse):
        with pytest.raises(BadKey) as refused:
            parse(text)
        assert len(refused.value.message) < 300


@given(
    st.one_of(
        st.text(max_size=300),
        st.binary(max_size=300).map(lambda b: b.decode("latin-1")),
    )
)
def test_any_text_at_all_is_refused_with_the_typed_error(text: str) -> None:
    with pytest.raises(BadSignature):
        check_signature(DATA, text, KEY.public)
    with pytest.raises(BadKey):
        PublicKey.parse(text)
    with pytest.raises(BadKey):
        SecretKey.parse(text)


def test_other_spellings_of_the_same_bytes_are_refused() -> None:
    first, second, third, fourth, _ = SIGNED.split("\n")
    bits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    loose = second[:-2] + bits[bits.index(second[-2]) | 1] + second[-1]
    assert base64.b64decode(loose) == base64.b64decode(second)
    with pytest.raises(BadSignature, match="spelled"):
        check_signature(DATA, "\n".join([first, loose, third, fourth, ""]), KEY.public)


@pytest.mark.parametrize(
    "y", [0, 1, signing._PRIME - 1, signing._PRIME, signing._ORDER_8, 2**255 - 1]
)
def test_a_public_key_that_proves_nothing_is_refused(y: int) -> None:
    # With the neutral point as key, R neutral and S zero "signs" whatever it is put beside.
    raw = y.to_bytes(32, "little")
    line = base64.b64encode(b"Ed" + bytes(8) + raw).decode()
    with pytest.raises(BadKey):
        PublicKey.parse(line)


def test_no_secret_is_shown() -> None:
    shown = f"{KEY!r} {KEY} {KEY.public!r}"
    for form in (repr(KEY.seed)[2:-1], KEY.seed.hex(), SECRET_TEXT.splitlines()[1]):
        assert form not in shown
    damaged = SECRET_TEXT[:150] + "AAAA" + SECRET_TEXT[154:]
    for text in (damaged, damaged + "x"):
        with pytest.raises(BadKey) as refused:
            SecretKey.parse(text)
        told = f"{refused.value!r} {refused.value.message} {refused.value.hint} {refused.value.__cause__}"
        assert text.splitlines()[1][20:40] not in told


def test_keys_are_written_for_the_owner_alone_and_never_over_a_file(
    tmp_path: Path,
) -> None:
    old = os.umask(0)
    try:
        secret, public = write_keys(tmp_path / "new" / "keys", SECRET_TEXT, PUBLIC_TEXT)
    finally:
        os.umask(old)
    assert (secret.stat().st_mode & 0o777, public.stat().st_mode & 0o777) == (
        0o600,
        0o644,
    )
    assert (secret.read_text(), public.read_text()) == (SECRET_TEXT, PUBLIC_TEXT)
    with pytest.raises(BadKey):
        write_keys(secret.parent, *generate())
    secret.unlink()
    with pytest.raises(BadKey):
        write_keys(secret.parent, *generate())
    assert not secret.exists()
    public.unlink()
    secret.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadKey):
        write_keys(secret.parent, *generate())
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(BadKey):
        write_keys(public.parent / "medlive.key" / "below", *generate())


def test_the_key_is_found_by_file_text_line_and_path(tmp_path: Path) -> None:
    path, _ = write_keys(tmp_path, SECRET_TEXT, PUBLIC_TEXT)
    for environment in (
        {"MEDLIVE_SIGNING_KEY": SECRET_TEXT},
        {"MEDLIVE_SIGNING_KEY": SECRET_TEXT.splitlines()[1]},
        {"MEDLIVE_SIGNING_KEY_FILE": str(path)},
    ):
        assert load_signing_key(environment) == KEY
    assert load_signing_key({"MEDLIVE_SIGNING_KEY": "rubbish"}, path) == KEY
    assert load_signing_key({}) is None
    assert (
        load_signing_key({"MEDLIVE_SIGNING_KEY": "", "MEDLIVE_SIGNING_KEY_FILE": ""})
        is None
    )
    with pytest.raises(BadKey):
        load_signing_key(
            {"MEDLIVE_SIGNING_KEY": SECRET_TEXT, "MEDLIVE_SIGNING_KEY_FILE": str(path)}
        )


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o602])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path, _ = write_keys(tmp_path, SECRET_TEXT, PUBLIC_TEXT)
    path.chmod(mode)
    with pytest.raises(BadKey) as refused:
        load_signing_key({"MEDLIVE_SIGNING_KEY_FILE": str(path)})
    assert "chmod 600" in (refused.value.hint or "")


def test_a_key_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    huge = tmp_path / "huge"
    huge.touch(0o600)
    huge.write_bytes(b"\xff" * 100_000)
    for path in (
        tmp_path / "missing",
        tmp_path,
        tmp_path / "pipe",
        huge,
        Path("nul\0byte"),
    ):
        with pytest.raises(BadKey):
            load_signing_key({}, path)


def test_keygen_makes_a_pair_and_tells_what_to_do_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEDLIVE_HOME", str(tmp_path))
    assert run(["snapshot", "keygen"]) == 0
    told = capsys.readouterr()
    key = load_signing_key({}, tmp_path / "keys" / "medlive.key")
    assert key.public.line() in told.out
    for word in (
        "MEDLIVE_SIGNING_KEY_FILE",
        "MEDLIVE_SIGNING_KEY",
        "Publish medlive.pub",
    ):
        assert word in told.err
    secret = (tmp_path / "keys" / "medlive.key").read_text().splitlines()[1]
    assert secret not in told.out + told.err
    assert run(["snapshot", "keygen"]) == 2
