"""Errata: one spelling, nothing but errata is read as errata, and a signature is that of these bytes or none."""

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, CheckFailed
from medlive.integrity.signing import PublicKey, SecretKey, generate, sign
from medlive.snapshot.errata import (
    Errata,
    Erratum,
    WithdrawalKind,
    load_errata,
    parse_errata,
    trusted_comment,
    write_errata_file,
)

WEEKS = [f"2026.W{week:02d}" for week in range(40, 50)]
START = datetime(2026, 11, 21, 8, 0, 1, tzinfo=UTC)


def entry(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "issued_at": "2026-11-21T08:00:01Z",
        "kind": "erratum",
        "case_id": "ml-0123456789ab",
        "criterion_id": None,
        "reason": "The dose is of another drug.",
        "revision": None,
        "snapshots": ["2026.W46", "2026.W47"],
        "fixed_in": None,
        **changes,
    }


def document(*entries: dict[str, Any], **changes: Any) -> bytes:
    whole = {
        "format": "medlive-errata",
        "format_version": 1,
        "entries": list(entries),
        **changes,
    }
    return json.dumps(whole).encode()


@st.composite
def erratum(draw: st.DrawFn, number: int) -> Erratum:
    case_id = f"ml-{draw(st.integers(0, 16**12 - 1)):012x}"
    held = sorted(draw(st.sets(st.sampled_from(WEEKS[:-1]), min_size=1)))
    part = draw(st.none() | st.integers(1, 19))
    return Erratum(
        id=number,
        issued_at=START + timedelta(seconds=draw(st.integers(0, 10**7))),
        kind=draw(st.sampled_from(WithdrawalKind)),
        case_id=case_id,
        criterion_id=None if part is None else f"{case_id}-c{part}",
        reason=draw(
            st.text(
                st.characters(codec="utf-8", exclude_categories=["Cc"]),
                min_size=1,
                max_size=40,
            )
        ),
        revision=None if part is None else draw(st.integers(1, 9)),
        snapshots=tuple(held),
        fixed_in=draw(
            st.none() | st.sampled_from([week for week in WEEKS if week > held[-1]])
        ),
    )


@st.composite
def some_errata(draw: st.DrawFn) -> Errata:
    numbers = sorted(draw(st.sets(st.integers(1, 50), max_size=4)))
    return Errata(entries=tuple(draw(erratum(number)) for number in numbers))


@settings(max_examples=10)
@given(some_errata(), st.sampled_from(WEEKS))
def test_errata_come_back_as_they_went_and_tell_whom_they_affect(
    errata: Errata, version: str
) -> None:
    text = errata.text()
    assert parse_errata(text.encode()) == errata
    assert parse_errata(text.encode()).text() == text
    plain = json.loads(text)
    assert set(plain) == {"format", "format_version", "entries"}
    assert [e["id"] for e in plain["entries"] if version in e["snapshots"]] == [
        e.id for e in errata.affecting(version)
    ]
    # Ids, kind, reason, versions and the moment: nothing else is published.
    assert all(set(e) == set(entry()) for e in plain["entries"])
    assert all(e["issued_at"].endswith("Z") for e in plain["entries"])


FAULTS = {
    "another format": document(format="medlive-snapshot"),
    "a later format": document(format_version=2),
    "an unknown key": document(note="x"),
    "a private key": document(entry(withdrawn_by="Dr. Who")),
    "no list": document(entries={}),
    "a case id that is none": document(entry(case_id="a/b")),
    "an unknown kind": document(entry(kind="whim")),
    "no reason": document(entry(reason="")),
    "a long reason": document(entry(reason="x" * 501)),
    "a control character": document(entry(reason="a\x1b[2Jb")),
    "no snapshot": document(entry(snapshots=[])),
    "a snapshot that is none": document(entry(snapshots=["../W47"])),
    "snapshots out of order": document(entry(snapshots=["2026.W47", "2026.W46"])),
    "fixed before": document(entry(fixed_in="2026.W47")),
    "a criterion without a revision": document(
        entry(criterion_id="ml-0123456789ab-c1")
    ),
    "a case with a revision": document(entry(revision=1)),
    "another case's criterion": document(
        entry(criterion_id="ml-ffffffffffff-c1", revision=1)
    ),
    "no zone": document(entry(issued_at="2026-11-21T08:00:01")),
    "twice the same": document(entry(), entry()),
    "out of order": document(entry(2), entry(1)),
    "no head": b"{}",
    "no entries": b'{"format": "medlive-errata", "format_version": 1}',
    "nothing": b"",
    "a list": b"[]",
    "not a number": b'{"format_version": NaN}',
    "no UTF-8": b'{"format": "\xff"}',
    "deep": b'{"entries": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("data", FAULTS.values(), ids=FAULTS.keys())
def test_what_holds_no_errata_is_a_clear_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "errata.json"
    path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        load_errata(path)
    assert len(caught.value.message) < 600


@given(st.integers(0, 400), st.integers(0, 255), st.integers(0, 40))
@example(0, 0, 10_000)
def test_spoilt_bytes_are_errata_or_bad_input_and_nothing_else(
    at: int, byte: int, cut: int
) -> None:
    data = bytearray(
        document(entry(), entry(2, criterion_id="ml-0123456789ab-c2", revision=2))
    )
    data[at % len(data)] = byte
    with suppress(BadInput):
        parse_errata(bytes(data[: len(data) - cut]))


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        load_errata(tmp_path / "errata.json")
    with pytest.raises(BadInput, match="cannot be read"):
        load_errata(Path(""), is_named=True)


@pytest.fixture(scope="module")
def keys() -> tuple[SecretKey, PublicKey]:
    secret, public = generate()
    return SecretKey.parse(secret), PublicKey.parse(public)


def test_the_signature_is_of_these_bytes_by_this_key(
    tmp_path: Path, keys: tuple[SecretKey, PublicKey]
) -> None:
    secret, public = keys

    def signer(errata: Errata) -> Callable[[bytes], str]:
        return lambda data: sign(data, secret, trusted_comment(errata), "errata")

    first = parse_errata(document(entry()))
    path = write_errata_file(tmp_path / "snapshots", first, signer(first))
    beside = path.with_name("errata.json.minisig")
    assert load_errata(path, public_key=public) == first
    as_written = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    assert set(as_written) == {"errata.json", "errata.json.minisig"}
    assert (
        b"timestamp:1795248001\tfile:errata.json\tentries:1\n"
        in as_written["errata.json.minisig"]
    )
    # The same again is the same bytes; without a key they stay signed, since they are what was signed.
    write_errata_file(path.parent, first, signer(first))
    write_errata_file(path.parent, first, None)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == as_written

    other = PublicKey.parse(generate()[1])
    with pytest.raises(CheckFailed):
        load_errata(path, public_key=other)
    path.write_bytes(path.read_bytes().replace(b"dose", b"Dose"))
    with pytest.raises(CheckFailed):
        load_errata(path, public_key=public)
    # A signature of the same key over the same bytes that was made for another file.
    path.write_bytes(as_written["errata.json"])
    beside.write_text(
        sign(as_written["errata.json"], secret, "file:SHA256SUMS", "errata")
    )
    with pytest.raises(CheckFailed):
        load_errata(path, public_key=public)

    # Other bytes without a key take the old signature away; whoever asks for one is told.
    second = parse_errata(document(entry(), entry(2)))
    write_errata_file(path.parent, second, None)
    assert not beside.exists()
    assert load_errata(path) == second
    with pytest.raises(CheckFailed):
        load_errata(path, public_key=public)
