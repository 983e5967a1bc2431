"""Slices and frames: each says what the typed cases say, and reads no more than it needs."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medlive import errors, load_snapshot
from medlive.errors import BadInput, CheckFailed, MissingExtra, UsageError
from medlive.integrity.folder import SIGNATURE_COMMENT, lines
from medlive.integrity.signing import SecretKey, generate, sign
from medlive.snapshot import contents
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.load import Snapshot
from medlive.snapshot.locate import find_snapshot
from medlive.snapshot.manifest import Signing
from medlive.snapshot.model import SnapshotCase
from tests.unit.snapshot.conftest import META, added, make_case

THEMES = ("Response Depth", "Context-Seeking", "Emergency Referrals")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    cases = [make_case(i, theme=THEMES[i % 3]) for i in range(24)]
    root = tmp_path_factory.mktemp("slices")
    return load_snapshot(write_snapshot(cases, META, root, added(cases)).path)


Slice = tuple[dict[str, Any], Callable[[SnapshotCase], bool]]
SLICES: list[Slice] = [
    ({"language": "zh"}, lambda c: c.language == "zh"),
    ({"source": ["icliniq", "sdn"]}, lambda c: c.source == "icliniq"),
    ({"theme": THEMES[1:]}, lambda c: c.theme != THEMES[0]),
    ({"posted_from": "2025-04-03"}, lambda c: c.posted_at >= date(2025, 4, 3)),
    ({"posted_before": "2025-09-03"}, lambda c: c.posted_at < date(2025, 9, 3)),
    ({"first_release_after": "2026.W46"}, lambda c: True),
    ({"first_release_after": "2026.W47"}, lambda c: False),
    ({"first_release": "2026.W47"}, lambda c: True),
    ({"specialty": []}, lambda c: False),
]


@pytest.mark.parametrize("one", SLICES, ids=lambda one: next(iter(one[0])))
def test_every_reading_of_a_filter_is_the_same(loaded: Snapshot, one: Slice) -> None:
    _check(loaded, [one], None)


@pytest.mark.thorough
@settings(max_examples=20)
@given(
    st.lists(st.sampled_from(SLICES), max_size=3),
    st.one_of(st.none(), st.integers(0, 23)),
)
def test_every_reading_of_filters_together_is_the_same(
    loaded: Snapshot, slices: list[Slice], above: int | None
) -> None:
    _check(loaded, slices, above)


def _check(loaded: Snapshot, slices: list[Slice], above: int | None) -> None:
    part = loaded
    for filters, _ in slices:
        part = part.filter(**filters)
    if above is not None:
        part = part.where(lambda c: int(c.case_id[1:]) > above)
    expected = [
        make_case(i, theme=THEMES[i % 3])
        for i in range(24)
        if above is None or i > above
    ]
    expected = [c for c in expected if all(fits(c) for _, fits in slices)]
    ids = [c.case_id for c in expected]
    assert list(part) == expected == list(part.cases)
    assert len(part) == len(expected)
    criteria = [c.criterion_id for case in expected for c in case.criteria]
    for table, key, wanted in (
        ("cases", "case_id", ids),
        ("criteria", "criterion_id", criteria),
    ):
        arrow = part.to_arrow(table)  # type: ignore[arg-type]
        assert arrow[key].to_pylist() == wanted
        assert part.to_pandas(table)[key].tolist() == wanted  # type: ignore[arg-type]
    for case_id in ("c000", "c007", "c023", "c999", ""):
        if case_id in ids:
            assert part.case(case_id) == expected[ids.index(case_id)]
        else:
            with pytest.raises(KeyError):
                part.case(case_id)


def test_frames_have_types_and_the_canary(
    loaded: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = loaded.filter(language="zh")
    for table in ("cases", "criteria"):
        frame = part.to_pandas(table)
        assert set(frame["canary"]) == {loaded.manifest.canary}
    cases = part.to_pandas()
    assert str(cases["posted_at"].dtype).startswith("datetime64")
    assert cases["posted_at"].iloc[0].date() == part.cases[0].posted_at
    monkeypatch.setattr(errors, "find_spec", lambda library: None)
    for ask, name in (
        (part.to_pandas, "pandas"),
        (part.to_arrow, "pyarrow"),
    ):
        with pytest.raises(MissingExtra) as caught:
            ask()
        assert caught.value.hint == f"pip install {name}"


def test_the_cases_of_a_part_are_read_once(loaded: Snapshot) -> None:
    read: list[str] = []

    def keep(case: SnapshotCase) -> bool:
        read.append(case.case_id)
        return True

    part = loaded.where(keep)
    assert len(part.cases) == len(read)


def test_what_is_asked_wrongly_is_said(loaded: Snapshot) -> None:
    # An empty text, as of a shell variable that is not set, must not ask for all cases.
    for wrong in ("2025-13-01", ""):
        with pytest.raises(UsageError, match="YYYY-MM-DD"):
            loaded.filter(posted_from=wrong)
        with pytest.raises(UsageError, match="YYYY-MM-DD"):
            loaded.filter(posted_before=wrong)
    for wrong in ("2026-W40", ""):
        with pytest.raises(UsageError, match=f"'{wrong}' is not a version"):
            loaded.filter(first_release_after=wrong)
    with pytest.raises(UsageError):
        loaded.to_pandas("rubric")  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        list(loaded.where(lambda c: 1 // 0 > 0))
    with pytest.raises(ValueError, match="of the caller"):
        list(loaded.where(_raise))


def _raise(case: SnapshotCase) -> bool:
    raise ValueError("of the caller")


def test_opening_reads_no_row_and_iterating_reads_no_more_than_it_gives(
    loaded: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    cases = (loaded.path / "data/cases.jsonl").stat().st_ino

    def counted(handle: Any) -> Any:
        name = (
            "cases.jsonl"
            if os.fstat(handle.fileno()).st_ino == cases
            else "another file"
        )
        for line in lines(handle):
            read.append(name)
            yield line

    monkeypatch.setattr(contents, "lines", counted)
    part = (
        load_snapshot(loaded.path, verify=False)
        .filter(language="en")
        .where(lambda c: True)
    )
    assert read == []
    assert [c.case_id for c in itertools.islice(part, 2)] == ["c000", "c002"]
    assert read.count("cases.jsonl") == 3


def test_rows_out_of_order_or_changed_later_are_never_read_as_if_they_were_right(
    copied: Callable[[int], Path],
) -> None:
    path = copied(5)
    snapshot = load_snapshot(path)
    criteria = path / "data/criteria.jsonl"
    rows = criteria.read_bytes().splitlines(keepends=True)
    criteria.write_bytes(b"".join(rows[::-1]))
    with pytest.raises(CheckFailed):
        snapshot.case("c001")
    with pytest.raises(BadInput, match=r"criteria\.jsonl:2"):
        list(load_snapshot(path, verify=False))
    (path / "data/cases.parquet").write_bytes(b"PAR1")
    with pytest.raises(CheckFailed):
        snapshot.to_pandas()
    for read in ("to_arrow", "to_pandas"):
        with pytest.raises(BadInput, match=r"criteria\.jsonl:2"):
            getattr(load_snapshot(path, verify=False), read)("criteria")
        # Its cases are as they were, and are read without the criteria.
        assert len(getattr(load_snapshot(path, verify=False), read)()) == 5
    cases = path / "data/cases.jsonl"
    cases.write_bytes(b"".join(cases.read_bytes().splitlines(keepends=True)[::-1]))
    with pytest.raises(BadInput, match=r"cases\.jsonl:2"):
        load_snapshot(path, verify=False).to_pandas()
    criteria.unlink()
    os.mkfifo(criteria)
    with pytest.raises(BadInput, match="regular file"):
        list(load_snapshot(path, verify=False))
    (path / "manifest.json").write_text("{}")
    with pytest.raises(BadInput):
        load_snapshot(path, verify=False)


def test_a_version_is_looked_up_here_and_at_home(
    copied: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(3)
    home, here = tmp_path / "home", path.parent
    newer, older = home / "snapshots/medlive-2026.W48", here / "medlive-2026.W46"
    for copy in (newer, older):
        copy.mkdir(parents=True)
        (copy / "manifest.json").write_bytes((path / "manifest.json").read_bytes())
    (here / "medlive-2026.W99").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("MEDLIVE_HOME", str(home))
    for named in ("2026.W48", "medlive-2026.W48", "latest"):
        assert find_snapshot(named) == newer
    assert find_snapshot(path) == path == find_snapshot(str(path))
    assert find_snapshot("2026.W46").absolute() == older
    assert len(load_snapshot("2026.W47")) == 3
    with pytest.raises(BadInput, match=r"2026\.W46, 2026\.W47, 2026\.W48"):
        find_snapshot("2026.W45")
    with pytest.raises(BadInput):
        find_snapshot("2026.W48", {})  # Without the process's own MEDLIVE_HOME
    for wrong in ("", "2026.W77", "x" * 5000, "nul\0", "medlive-", tmp_path / "latest"):
        with pytest.raises(BadInput, match="nor a version"):
            find_snapshot(wrong)
    (newer / "manifest.json").unlink()
    monkeypatch.chdir(home)
    with pytest.raises(BadInput):
        find_snapshot("latest")


def test_a_public_key_is_what_must_have_signed(
    loaded: Snapshot, tmp_path: Path
) -> None:
    secret, public = generate()
    key = SecretKey.parse(secret)
    signing = Signing(key_id=key.public.id_text(), public_key=key.public.line())
    cases = [make_case(0)]
    signed = write_snapshot(
        cases,
        META.model_copy(update={"signing": signing}),
        tmp_path,
        added(cases),
        lambda data, comment: sign(data, key, comment, SIGNATURE_COMMENT),
    ).path
    file = tmp_path / "medlive.pub"
    file.write_text(public)
    for given_as in (public, key.public.line(), key.public, file, str(file)):
        assert len(load_snapshot(signed, public_key=given_as)) == 1
    _, other = generate()
    with pytest.raises(CheckFailed):
        load_snapshot(signed, public_key=other)
    with pytest.raises(CheckFailed):
        load_snapshot(loaded.path, public_key=public)
    with pytest.raises(BadInput):
        load_snapshot(signed, public_key=tmp_path / "absent")
    with pytest.raises(UsageError):
        load_snapshot(signed, verify=False, public_key=public)


@pytest.mark.thorough
def test_loading_needs_nothing_that_the_base_install_lacks(loaded: Snapshot) -> None:
    program = (
        "import sys; from medlive import load_snapshot; s = load_snapshot(sys.argv[1], verify=False)\n"
        "assert len(s.filter(language='zh').cases) == 12 and s.case('c003')\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules} & {'pyarrow', 'pandas', 'polars',"
        " 'sqlalchemy', 'psycopg', 'httpx2', 'openai', 'faiss', 'platformdirs'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, loaded.path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""
