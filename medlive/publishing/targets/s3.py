"""A bucket of an S3-compatible store: conditional writes, SHA-256 checked by the server.

A file is sent whole: the largest of a snapshot of LiveMedBench's size has 7 MB.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import BadInput, CheckFailed, MissingExtra, ServiceUnavailable, UsageError
from medlive.publishing.target import MAX_READ, Item, RemoteState, Sent, Taken

if TYPE_CHECKING:
    from botocore.client import BaseClient

_ATTEMPTS: Final = 5
_BLOCK: Final = 1024 * 1024
_METADATA: Final = "sha256"

_KEYS: Final = "give keys as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile as AWS_PROFILE"
_REFUSED: Final = frozenset(
    {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "401"}
    | {"InvalidToken", "RequestTimeTooSkewed", "AuthorizationHeaderMalformed"}
)
_RACE: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where in S3: `s3://bucket/prefix`."""

    name: str
    prefix: str
    """"" or a path that ends with `/`."""

    @classmethod
    def parse(cls, text: str) -> "Bucket":
        """The bucket and prefix of an address. Raises UsageError."""
        scheme, _, rest = text.partition("://")
        name, _, prefix = rest.partition("/")
        parts = [part for part in prefix.split("/") if part]
        if scheme != "s3" or not name or any(part in (".", "..") for part in parts):
            raise UsageError(f"{text!r} is no address of a bucket", hint="write s3://bucket/prefix")
        return cls(name, "".join(f"{part}/" for part in parts))


class S3Target:
    """A prefix of a bucket."""

    def __init__(self, at: str, *, endpoint_url: str | None = None, attempts: int = _ATTEMPTS) -> None:
        """`at`: `s3://bucket/prefix`; `attempts`: how often a request is made at most.

        Keys come from the environment, a profile or the machine's role, as boto3 finds them. Raises UsageError for
        an address that is none, and MissingExtra without boto3.
        """
        self._bucket = Bucket.parse(at)
        self._endpoint = endpoint_url
        self._client = _client(endpoint_url, attempts)

    @property
    def where(self) -> str:
        """`s3://bucket/prefix`."""
        return f"s3://{self._bucket.name}/{self._bucket.prefix}".rstrip("/")

    @contextmanager
    def session(self, *, write: bool) -> Iterator[None]:
        """Find out that the bucket is there; writes are conditional, so that no lock is needed."""
        with self._clear():
            self._client.head_bucket(Bucket=self._bucket.name)
        yield

    def names(self, folder: str) -> frozenset[str]:
        """The names below a folder."""
        pages = self._pages("list_objects_v2", Prefix=self._bucket.prefix + folder)
        keys = [entry["Key"] for found in pages for entry in found.get("Contents", [])]
        return frozenset(key.removeprefix(self._bucket.prefix) for key in keys)

    def folders(self) -> frozenset[str]:
        """The folders right below the prefix."""
        pages = self._pages("list_objects_v2", Prefix=self._bucket.prefix, Delimiter="/")
        found = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", [])]
        return frozenset(name.removeprefix(self._bucket.prefix).rstrip("/") for name in found)

    def compare(self, item: Item) -> RemoteState:
        """Compare by the server's own SHA-256 where it has one of the bytes, else by reading them back."""
        with self._clear():
            try:
                head = self._client.head_object(**self._key(item.name), ChecksumMode="ENABLED")
            except self._client.exceptions.ClientError as exc:
                if _code(exc) in ("404", "NoSuchKey", "NotFound"):
                    return RemoteState.ABSENT
                raise
            if head["ContentLength"] != item.size:
                return RemoteState.OTHER
            stated, dash, _ = head.get("ChecksumSHA256", "").partition("-")
            composite = bool(dash) or head.get("ChecksumType") == "COMPOSITE"
            if stated and not composite:
                return RemoteState.SAME if stated == _b64(bytes.fromhex(item.sha256)) else RemoteState.OTHER
            # Sent in parts by another program, or a store that keeps no checksum.
            digest = hashlib.sha256()
            for block in self._client.get_object(**self._key(item.name))["Body"].iter_chunks(_BLOCK):
                digest.update(block)
            return RemoteState.SAME if digest.hexdigest() == item.sha256 else RemoteState.OTHER

    def add(self, item: Item, sent: Sent) -> None:
        """Send the item unless an object is there already."""
        with self._clear():
            try:
                proven = self._put(item, IfNoneMatch="*")
            except self._client.exceptions.ClientError as exc:
                if _code(exc) not in _RACE:
                    raise
                proven = False  # another publisher was first, or the answer to our own first request was lost
        sent(item.size)
        if proven:
            return
        standing = self.compare(item)
        if standing is RemoteState.OTHER:
            raise Taken(f"{item.name} lies in {self.where} already, with other bytes")
        if standing is RemoteState.ABSENT:
            raise ServiceUnavailable(
                f"{self.where} takes {item.name} and does not keep it", hint="publish again later"
            )

    def replace(self, item: Item) -> None:
        """Send the item whatever lies there."""
        with self._clear():
            self._put(item)

    def read(self, name: str) -> bytes | None:
        """A small object's bytes."""
        with self._clear():
            try:
                found = self._client.get_object(**self._key(name))
            except self._client.exceptions.ClientError as exc:
                if _code(exc) in ("404", "NoSuchKey"):
                    return None
                raise
            data: bytes = found["Body"].read(MAX_READ + 1)
        if len(data) > MAX_READ:
            raise BadInput(f"{name} in {self.where} holds more than {MAX_READ} bytes")
        return data

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket.name, "Key": self._bucket.prefix + name}

    def _put(self, item: Item, **condition: str) -> bool:
        """Whether the store says that it has these bytes."""
        checksum = _b64(bytes.fromhex(item.sha256))
        with item.open() as data:
            done = self._client.put_object(
                **self._key(item.name), Body=data.read(), ChecksumSHA256=checksum, **_headers(item), **condition
            )
        return bool(done.get("ChecksumSHA256") == checksum)

    def _pages(self, operation: str, **arguments: str) -> list[Mapping[str, Any]]:
        with self._clear():
            pages = self._client.get_paginator(operation).paginate(Bucket=self._bucket.name, **arguments)
            return list(pages)

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """Turn what the client raises into errors that say what to do; no message holds a key."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            HTTPClientError,
            NoCredentialsError,
            PartialCredentialsError,
            ProfileNotFound,
        )
        from botocore.exceptions import ConnectionError as Unreachable

        try:
            yield
        except (NoCredentialsError, PartialCredentialsError, ProfileNotFound) as exc:
            raise ServiceUnavailable(f"there are no credentials for {self.where}", hint=_KEYS) from exc
        except (Unreachable, HTTPClientError) as exc:
            where = self._endpoint or "the store"
            raise ServiceUnavailable(
                f"{where} cannot be reached for {self.where}: {type(exc).__name__}",
                hint="look at --endpoint-url and the network; publish again: what is there is not sent twice",
            ) from exc
        except ClientError as exc:
            raise self._said(exc) from exc
        except OSError as exc:
            raise CheckFailed(f"{exc.filename or 'a file'} cannot be read: {exc.strerror or exc}") from exc
        except BotoCoreError as exc:
            raise ServiceUnavailable(f"{self.where} cannot be used: {exc}") from exc

    def _said(self, exc: Any) -> ServiceUnavailable:
        code, operation = _code(exc), exc.operation_name
        status = exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code == "NoSuchBucket" or (code == "404" and operation == "HeadBucket"):
            return ServiceUnavailable(
                f"there is no bucket {self._bucket.name}",
                hint="make it first, or look at --at, --endpoint-url and AWS_REGION",
            )
        if code in _REFUSED:
            return ServiceUnavailable(
                f"{self.where} refuses {operation}: {code}",
                hint=f"{_KEYS}; docs/publishing.md lists what the key must be allowed to do",
            )
        if code == "NotImplemented":
            return ServiceUnavailable(
                f"the store of {self.where} cannot do {operation} as it is needed",
                hint="conditional writes keep two publishers apart: use a store that has them",
            )
        again = "; publish again later: what is there is not sent twice" if status >= 500 or status == 429 else ""
        return ServiceUnavailable(f"{self.where} answers {operation} with {code}", hint=f"HTTP {status}{again}")


def _client(endpoint_url: str | None, attempts: int) -> "BaseClient":
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as exc:
        raise MissingExtra("publishing to S3 needs boto3", hint="pip install 'medlive[publish]'") from exc
    config = Config(
        retries={"mode": "standard", "total_max_attempts": attempts},
        connect_timeout=10,
        read_timeout=120,
        user_agent_extra="medlive",
    )
    try:
        # A session of its own: the shared one would keep the keys that it found first.
        return boto3.session.Session().client("s3", endpoint_url=endpoint_url, config=config)
    except (BotoCoreError, ValueError) as exc:
        raise ServiceUnavailable(f"the client for S3 cannot be made: {exc}", hint=_KEYS) from exc


def _headers(item: Item) -> dict[str, Any]:
    return {
        "ContentType": item.content_type,
        "CacheControl": item.cache_control,
        "Metadata": {_METADATA: item.sha256},
    }


def _code(exc: Any) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))


def _b64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")
