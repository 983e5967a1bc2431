"""Publishing to S3: boto3 as it is, over HTTP, against a server on this machine."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

from medlive.errors import (
    CheckFailed,
    MedliveError,
    MissingExtra,
    ServiceUnavailable,
    UsageError,
)
from medlive.integrity.folder import SUMS
from medlive.publishing import s3
from medlive.publishing.publish import PreparedRelease, Published, publish
from medlive.publishing.s3 import S3Target, parse_address
from medlive.publishing.target import IMMUTABLE
from tests.support.bucket import Gate, Request, bucket_server
from tests.support.publishing import a_snapshot, prepared

PART = 6000
"""Bytes a part here, so that small files go by parts."""
ROOT = "medlive-2026.W47"
NUMBERS = count(1)


@pytest.fixture(autouse=True, scope="module")
def _descriptions_read_once() -> Iterator[None]:
    """Every client reads what S3 and its regions are from the same megabytes of JSON."""
    read = JSONFileLoader.load_file

    @cache
    def load(path: str) -> Any:
        return read(JSONFileLoader(), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda self, path: load(path))
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Gate]]:
    with pytest.MonkeyPatch.context() as patch, bucket_server(patch) as running:
        yield running


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> PreparedRelease:
    return prepared(a_snapshot(tmp_path_factory.mktemp("frozen")))


@pytest.fixture
def gate(server: tuple[str, Gate], monkeypatch: pytest.MonkeyPatch) -> Gate:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    server[1].reset()
    return server[1]


@pytest.fixture(scope="module")
def client(server: tuple[str, Gate]) -> Any:
    """What a stranger looks at the server with."""
    import boto3

    keys = {
        "aws_access_key_id": "other",
        "aws_secret_access_key": "other",
        "region_name": "us-east-1",
    }
    return boto3.session.Session().client("s3", endpoint_url=server[0], **keys)


@pytest.fixture
def bucket(client: Any, gate: Gate) -> str:
    """The name of an empty bucket of the test's own."""
    name = f"bucket-{next(NUMBERS)}"
    client.create_bucket(Bucket=name)
    gate.requests.clear()
    return name


@pytest.fixture
def target(server: tuple[str, Gate], bucket: str) -> S3Target:
    return target_of(server, bucket)


def target_of(server: tuple[str, Gate], bucket: str, **changes: Any) -> S3Target:
    return S3Target(f"s3://{bucket}/data", **{"endpoint_url": server[0], **changes})


def send(target: S3Target, snapshot: PreparedRelease) -> Published:
    return publish(snapshot, target, "https://data.example/medlive")


def names_of(gate: Gate) -> list[str]:
    """What objects or parts were sent, in order, each by name and part."""
    return [
        f"{r.path.partition('/data/')[2]}#{r.part or ''}".rstrip("#")
        for r in gate.requests
        if r.method == "PUT"
    ]


def test_a_snapshot_lies_there_a_second_run_sends_nothing_and_other_bytes_are_refused(
    client: Any, target: S3Target, bucket: str, gate: Gate, snapshot: PreparedRelease
) -> None:
    done = send(target, snapshot)
    for name, entry in snapshot.files.items():
        found = client.get_object(Bucket=bucket, Key=f"data/{ROOT}/{name}")
        assert found["Body"].read() == (snapshot.path / name).read_bytes()
        assert found["CacheControl"] == IMMUTABLE
        assert found["Metadata"] == {"sha256": entry.sha256}
    page = client.head_object(Bucket=bucket, Key="data/index.html")
    assert (page["ContentType"], "immutable" in page["CacheControl"]) == (
        "text/html; charset=utf-8",
        False,
    )
    latest = json.loads(
        client.get_object(Bucket=bucket, Key="data/latest.json")["Body"].read()
    )
    assert latest["digest"] == done.digest == snapshot.digest
    assert (
        latest["files"]["data/cases.jsonl"]["url"]
        == f"https://data.example/medlive/{ROOT}/data/cases.jsonl"
    )
    sent = names_of(gate)
    immutable = [name for name in sent if name.startswith(ROOT)]
    assert immutable[-1] == f"{ROOT}/{SUMS}", (
        "what comes before is a half-published version"
    )
    feed = client.head_object(Bucket=bucket, Key="data/feed.xml")
    assert feed["ContentType"] == "application/atom+xml; charset=utf-8"

    gate.requests.clear()
    again = send(target, snapshot)
    assert (again.sent, gate.writes) == ([], [])
    assert len(again.already) == len(snapshot.files)
    name = "data/cases.jsonl"
    data = (snapshot.path / name).read_bytes()
    gate.checksums = False
    assert send(target, snapshot).sent == [], "a store without checksums is read back"
    gate.checksums = True
    client.put_object(
        Bucket=bucket,
        Key=f"data/{ROOT}/{name}",
        Body=data[:-2] + b"?\n",
        ChecksumAlgorithm="SHA256",
        Metadata={"sha256": snapshot.files[name].sha256},
    )
    gate.requests.clear()
    for gate.checksums in (True, False):
        with pytest.raises(
            CheckFailed,
            match=r"cases\.jsonl",
        ):
            send(target, snapshot)
    assert gate.writes == []


def test_two_publishers_cannot_overwrite_each_other(
    client: Any, target: S3Target, bucket: str, gate: Gate, snapshot: PreparedRelease
) -> None:
    items = {item.name: item for item in snapshot.items()}
    small, large = items[f"{ROOT}/CHANGES.md"], items[f"{ROOT}/livemedbench.json"]
    for item, key in ((small, "CHANGES.md"), (large, "livemedbench.json")):

        def intrude(request: Request, key: str = key) -> None:
            if request.path.endswith(key) and request.method == "PUT":
                gate.before = lambda request: None
                client.put_object(
                    Bucket=bucket,
                    Key=f"data/{ROOT}/{key}",
                    Body=b"x",
                    ChecksumAlgorithm="SHA256",
                )

        gate.before = intrude
        with pytest.raises(CheckFailed):
            target.add(item)
        assert (
            client.get_object(Bucket=bucket, Key=f"data/{ROOT}/{key}")["Body"].read()
            == b"x"
        )
        assert target.has(item) is False


def test_a_store_that_does_not_keep_a_file_is_not_said_to_have_another(
    target: S3Target, snapshot: PreparedRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_put", lambda *_, **__: False)
    with pytest.raises(ServiceUnavailable, match="does not keep"):
        target.add(snapshot.items()[0])


def test_throttling_and_failures_of_the_store_are_waited_out(
    target: S3Target, gate: Gate, snapshot: PreparedRelease
) -> None:
    gate.answers = [
        (lambda r: r.method == "PUT", 503, "SlowDown"),
        (lambda r: r.method == "GET" and "list-type" in r.query, 500, "InternalError"),
    ]
    item = snapshot.items()[0]
    target.add(item)
    assert target.names(f"{ROOT}/") == {item.name}
    assert gate.answers == []


def test_what_is_wrong_with_the_place_is_said(
    server: tuple[str, Gate],
    bucket: str,
    gate: Gate,
    snapshot: PreparedRelease,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "_ATTEMPTS", 1)
    usual = target_of(server, bucket)

    def told(target: S3Target = usual) -> MedliveError:
        with pytest.raises(ServiceUnavailable) as caught:
            publish(snapshot, target, None)
        assert caught.value.exit_status == 3
        assert caught.value.hint
        assert "not-a-secret" not in f"{caught.value.message}{caught.value.hint}"
        return caught.value

    assert "answers ListObjectsV2 with NoSuchBucket" in str(
        told(target_of(server, "no-such-bucket"))
    )
    gate.answers = [(lambda r: True, 403, "InvalidAccessKeyId")]
    assert "answers ListObjectsV2 with InvalidAccessKeyId" in str(told())
    gate.answers = [(lambda r: r.method == "PUT", 403, "AccessDenied")]
    assert "answers PutObject with AccessDenied" in str(told())
    gate.answers = [(lambda r: r.method == "PUT", 501, "NotImplemented")]
    assert "answers PutObject with NotImplemented" in str(told())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert "cannot be reached" in str(
        told(target_of(server, bucket, endpoint_url=f"http://127.0.0.1:{port}"))
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "NoCredentials" in str(told(target_of(server, bucket)))


def test_a_missing_client_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(MissingExtra) as caught:
        S3Target("s3://bucket")
    assert "medlive[publish]" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text", ["bucket", "s3://", "s3:///x", "s3://b/../c", "https://b/x"]
)
def test_an_address_that_names_no_bucket_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
