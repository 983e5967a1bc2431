"""The commit in `code_version`, against git itself."""

import subprocess
from pathlib import Path

import pytest

from medlive import __version__
from medlive.build import COMMIT, code_version, version_at


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q", "-b", "work/main")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    return root


def expected(checkout: Path) -> str:
    return f"{__version__}+g{git(checkout, 'rev-parse', 'HEAD')[:12]}"


def test_the_commit_is_that_of_the_checkout(checkout: Path) -> None:
    package = checkout / "medlive"
    assert version_at(package) == expected(checkout)
    git(checkout, "pack-refs", "--all")
    assert version_at(package) == expected(checkout)
    git(checkout, "symbolic-ref", "refs/heads/alias", "refs/heads/work/main")
    git(checkout, "symbolic-ref", "HEAD", "refs/heads/alias")
    assert version_at(package) == expected(checkout)
    git(checkout, "checkout", "-q", "--detach")
    assert version_at(package) == expected(checkout)


def test_a_worktree_has_its_own_commit(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "-q", "-b", "other", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "second")
    assert expected(other) != expected(checkout)
    assert version_at(other / "medlive") == expected(other)
    git(checkout, "pack-refs", "--all")
    assert version_at(other / "medlive") == expected(other)


def test_a_damaged_checkout_takes_no_commit_from_above(checkout: Path) -> None:
    inner = checkout / "inner"
    (inner / ".git").mkdir(parents=True)
    assert version_at(inner / "medlive") == __version__


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0123456789abcdef0123456789abcdef01234567\n", "+g0123456789ab"),
        ("unknown", ""),
        (None, ""),
    ],
)
def test_a_build_names_its_commit_in_a_file(
    tmp_path: Path, written: str | None, shown: str
) -> None:
    package = tmp_path / "medlive"
    package.mkdir()
    if written is not None:
        (package / COMMIT).write_text(written, "utf-8")
    assert version_at(package) == __version__ + shown


def test_this_build_says_where_it_comes_from() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("the tests do not run in a git checkout")
    assert code_version() == expected(root)
