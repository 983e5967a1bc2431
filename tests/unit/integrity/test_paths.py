"""A stranger's name leads to a regular file below its folder, or nowhere."""

import os
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medlive.integrity.paths import (
    UnsafePath,
    create_below,
    open_below,
    open_plain,
    path_below,
    split_name,
    walk,
)

PARTS = st.sampled_from(
    ["a", "..", ".", "", "/", "\\", "C:", "etc", "\0", "\n", "link", "%2e"]
)
NAMES = st.one_of(st.text(max_size=30), st.lists(PARTS, max_size=6).map("/".join))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_text("inside")
    (root / "link").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "zero").symlink_to("/dev/zero")
    os.mkfifo(root / "pipe")
    os.link(outside / "secret", root / "hard")
    return root


@given(NAMES)
@example("/etc/passwd")
@example("//etc/passwd")
@example("a//b")
@example("a/../../b")
@example("C:/Windows")
@example("c:\\x")
@example("\\\\server\\share")
@example("a\0b")
@example("a\x1b[2J")
@example("")
def test_a_name_stays_below_its_folder_or_is_refused(name: str) -> None:
    try:
        parts = split_name(name)
    except UnsafePath:
        return
    root = Path("/nowhere/root")
    assert os.path.normpath(root.joinpath(*parts)) == f"{root}/{name}"


@pytest.mark.parametrize(
    "name",
    ["link", "folder/secret", "zero", "pipe", "sub", "folder", "/etc/passwd", "../x"],
)
def test_nothing_but_a_regular_file_of_the_folder_is_read(
    folder: Path, name: str
) -> None:
    with pytest.raises(UnsafePath):
        open_below(folder, name).close()


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(UnsafePath):
            open_below(tmp_path, "s").close()


@pytest.mark.parametrize(
    "name",
    [
        "link",
        "folder/new",
        "folder/secret",
        "zero",
        "pipe",
        "sub",
        "hard",
        "/tmp/x",
        "../x",
    ],
)
def test_nothing_outside_the_folder_is_written(folder: Path, name: str) -> None:
    with pytest.raises(UnsafePath):
        create_below(folder, name).close()
    assert (folder.parent / "outside" / "secret").read_text() == "secret"
    assert sorted(path.name for path in (folder.parent / "outside").iterdir()) == [
        "secret"
    ]


def test_files_are_made_for_the_owner_alone_and_read_back(tmp_path: Path) -> None:
    with create_below(tmp_path, "a/b/c") as handle:
        handle.write(b"one")
    with create_below(tmp_path, "a/b/c", append=True) as handle:
        handle.write(b"two")
    with open_below(tmp_path, "a/b/c") as handle:
        assert handle.read() == b"onetwo"
    assert [
        oct(path.stat().st_mode & 0o777)
        for path in (tmp_path / "a", tmp_path / "a/b/c")
    ] == [
        "0o700",
        "0o600",
    ]
    with create_below(tmp_path, "a/b/c") as handle:
        handle.write(b"new")
    assert (tmp_path / "a/b/c").read_bytes() == b"new"


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_below(tmp_path, "a/b")


def test_a_path_leads_over_no_link(folder: Path) -> None:
    assert path_below(folder, "sub/new") == folder / "sub" / "new"
    for name in ("link", "folder/secret"):
        with pytest.raises(UnsafePath):
            path_below(folder, name)


def test_known_paths_are_opened_unless_they_are_links_or_pipes(folder: Path) -> None:
    with open_plain(folder / "sub" / "file") as handle:
        assert handle.read() == b"inside"
    for name in ("link", "pipe", "zero", "sub"):
        with pytest.raises(OSError, match="regular"):
            open_plain(folder / name).close()


def test_walking_follows_no_link(folder: Path) -> None:
    entries = dict(walk(folder))
    assert sorted(entries) == [
        "folder",
        "hard",
        "link",
        "pipe",
        "sub",
        "sub/file",
        "zero",
    ]
    files = [name for name, mode in entries.items() if stat.S_ISREG(mode)]
    assert files == ["hard", "sub/file"]
