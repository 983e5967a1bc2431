"""Publishing to the Hugging Face hub: its client as it is, over HTTP, against a server on this machine."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from huggingface_hub import constants

from medlive.errors import CheckFailed, ServiceUnavailable, UsageError
from medlive.publishing import huggingface
from medlive.publishing.huggingface import HubRepository
from medlive.publishing.publish import PreparedRelease, Published
from medlive.snapshot.errata import Errata, Erratum, WithdrawalKind
from tests.support.hub import TOKEN, Hub, hub_server
from tests.support.publishing import a_snapshot, prepared

# The hub's client hands open files to httpx2 in a way that httpx2 takes and warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

AT = "some-group/medlive"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreparedRelease]:
    """Three versions."""
    root = tmp_path_factory.mktemp("frozen")
    return {
        v: prepared(a_snapshot(root, v, cases=n))
        for n, v in enumerate(("2026.W46", "2026.W47", "2026.W48"), 1)
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # Another test may have imported the package before; publishing switches it off all the same.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    with hub_server() as running:
        yield running


def send(hub: Hub, snapshot: PreparedRelease) -> Published:
    return HubRepository(AT, endpoint_url=hub.url).publish(snapshot)


def content(snapshot: PreparedRelease) -> dict[str, bytes]:
    return {name: (snapshot.path / name).read_bytes() for name in snapshot.files}


def tagged(hub: Hub, version: str) -> dict[str, bytes]:
    found = hub.commits[hub.tags[version]]
    return {
        name: data
        for name, data in found.items()
        if name not in (".gitattributes", "errata.json")
    }


def test_a_version_is_one_commit_and_one_tag_and_a_second_run_sends_nothing(
    hub: Hub, line: dict[str, PreparedRelease]
) -> None:
    snapshot = line["2026.W47"]
    done = send(hub, snapshot)
    assert done.sent == sorted(snapshot.files)
    assert tagged(hub, "2026.W47") == content(snapshot)
    assert [hub.titles[c] for c in hub.commits] == [
        "initial commit",
        "medlive 2026.W47",
    ]
    assert done.latest == "2026.W47"
    assert len(hub.lfs) == 4

    hub.requests.clear()
    again = send(hub, snapshot)
    assert (again.sent, again.already) == ([], sorted(snapshot.files))
    assert [r for r in hub.requests if r[0] not in ("GET", "HEAD")] == []


def test_a_version_older_than_the_newest_is_refused(
    hub: Hub, line: dict[str, PreparedRelease]
) -> None:
    for version in ("2026.W46", "2026.W48"):
        send(hub, line[version])
    before = hub.branches["main"]
    with pytest.raises(CheckFailed, match=r"has 2026\.W48"):
        send(hub, line["2026.W47"])
    assert (hub.branches, sorted(hub.tags)) == (
        {"main": before},
        ["2026.W46", "2026.W48"],
    )
    assert send(hub, line["2026.W46"]).latest == "2026.W48"


@pytest.mark.parametrize(
    ("method", "part", "status"),
    [("PUT", "/store/", 403), ("POST", "/commit/", 400), ("POST", "/tag/", 403)],
)
def test_a_run_that_failed_in_the_middle_goes_on_where_it_was(
    hub: Hub, line: dict[str, PreparedRelease], method: str, part: str, status: int
) -> None:
    snapshot = line["2026.W46"]
    hub.fail(status, method, part)
    with pytest.raises(ServiceUnavailable) as caught:
        send(hub, snapshot)
    assert TOKEN not in f"{caught.value}{caught.value.hint}"
    assert not hub.tags
    stored = set(hub.lfs)
    hub.requests.clear()
    send(hub, snapshot)
    assert tagged(hub, "2026.W46") == content(snapshot)
    assert not any(
        path.removeprefix("/store/") in stored
        for method, path in hub.requests
        if method == "PUT"
    )
    assert [t for t in hub.titles.values() if t.startswith("medlive")] == [
        "medlive 2026.W46"
    ]


def test_a_tag_with_other_bytes_is_refused(
    hub: Hub, line: dict[str, PreparedRelease]
) -> None:
    snapshot = line["2026.W47"]
    send(hub, snapshot)
    for name in ("data/cases.jsonl", "manifest.json"):
        held = hub.commits[hub.tags["2026.W47"]]
        data = held[name]
        held[name] = data[:-2] + b"?\n"
        hub.requests.clear()
        with pytest.raises(CheckFailed, match=name):
            send(hub, snapshot)
        assert {method for method, _ in hub.requests} <= {"GET", "HEAD"}
        held[name] = data


def test_two_publishers_make_one_release(
    hub: Hub, line: dict[str, PreparedRelease]
) -> None:
    send(hub, line["2026.W46"])
    snapshot, other = (
        line["2026.W47"],
        {**content(line["2026.W47"]), "LICENSE": b"other terms"},
    )

    def intrude(method: str, path: str) -> None:
        if (method, "/commit/main" in path) == ("POST", True):
            hub.before = lambda method, path: None
            hub.commit(
                "main",
                {**hub.commits[hub.branches["main"]], "NOTES.md": b"x"},
                "somebody else's",
            )
        if (method, "/tag/" in path) == ("POST", True):
            hub.tags["2026.W47"] = hub.commit("other", other, "medlive 2026.W47")

    hub.before = intrude
    with pytest.raises(ServiceUnavailable):
        send(hub, snapshot)
    assert "2026.W47" not in hub.tags
    send(hub, snapshot)
    assert hub.commits[hub.branches["main"]]["NOTES.md"] == b"x"
    del hub.tags["2026.W47"]
    hub.before = intrude
    with pytest.raises(CheckFailed, match="LICENSE"):
        send(hub, snapshot)


def test_what_a_version_has_no_more_goes_and_errata_are_kept(
    hub: Hub, line: dict[str, PreparedRelease]
) -> None:
    def errata(*ids: int) -> dict[str, bytes]:
        entries = [
            Erratum(
                id=n,
                issued_at=datetime(2026, 11, 20, tzinfo=UTC),
                kind=WithdrawalKind.ERRATUM,
                case_id="c000",
                criterion_id=None,
                reason="wrong",
                revision=None,
                snapshots=("2026.W46",),
                fixed_in=None,
            )
            for n in ids
        ]
        return {"errata.json": Errata(entries=tuple(entries)).text().encode()}

    def with_errata(version: str, *ids: int) -> PreparedRelease:
        return prepared(line[version].path, errata(*ids))

    send(hub, with_errata("2026.W46", 1))
    hub.commit(
        "main",
        {**hub.commits[hub.branches["main"]], "SHA256SUMS.minisig": b"of an older one"},
        "signed",
    )
    send(hub, with_errata("2026.W47", 1, 2))
    head = hub.commits[hub.branches["main"]]
    assert head["errata.json"] == errata(1, 2)["errata.json"]
    assert "SHA256SUMS.minisig" not in head
    with pytest.raises(CheckFailed):
        send(hub, with_errata("2026.W48", 1))
    assert "2026.W48" not in hub.tags


def test_what_is_wrong_with_the_place_is_said(
    hub: Hub, line: dict[str, PreparedRelease], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    with pytest.raises(ServiceUnavailable) as caught:
        send(hub, line["2026.W46"])
    assert caught.value.exit_status == 3
    assert "HF_TOKEN" in (caught.value.hint or "")
    assert "hf_another" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(huggingface, "_SILENCE_S", 0.1)
    answer = threading.Event()
    hub.before = lambda method, path: answer.wait(60)
    try:
        with pytest.raises(ServiceUnavailable):
            HubRepository(AT, endpoint_url=hub.url).publish(line["2026.W46"])
    finally:
        answer.set()
    for name in ("name", "a/b/c", "a/../b", "https://a/b"):
        with pytest.raises(UsageError):
            HubRepository(name, endpoint_url=hub.url)
