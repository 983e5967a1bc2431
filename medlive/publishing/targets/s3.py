"""A bucket of an S3-compatible store as a shelf: conditional writes, SHA-256 checked by the server, resumed parts.

boto3's own file transfer begins a killed upload anew, so large files go by parts here: the parts that an earlier
try left behind are asked for, compared by digest and not sent again.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from medlive.errors import BadInput, CheckFailed, MissingExtra, ServiceUnavailable, UsageError
from medlive.publishing.target import MOST_READ, Item, Sent, Standing, Taken, changed

if TYPE_CHECKING:
    from botocore.client import BaseClient

_MIB: Final = 1024 * 1024
PART: Final = 16 * _MIB
"""Bytes a part, while a file has no more than `_MOST_PARTS` of them. The store's least is 5 MiB."""
_MOST_PARTS: Final = 10_000
_WORKERS: Final = 4
_ATTEMPTS: Final = 5
_BLOCK: Final = _MIB
_MOST_TRIES: Final = 3
"""How often a file is tried whose upload another publisher ended or began meanwhile."""
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


class S3Shelf:
    """A prefix of a bucket."""

    def __init__(
        self, at: str, *, endpoint_url: str | None = None, part: int = PART, attempts: int = _ATTEMPTS
    ) -> None:
        """`at`: `s3://bucket/prefix`; `part`: bytes a part; `attempts`: how often a request is made at most.

        Keys come from the environment, a profile or the machine's role, as boto3 finds them. Raises UsageError for
        an address that is none, and MissingExtra without boto3.
        """
        self._bucket = Bucket.parse(at)
        self._endpoint = endpoint_url
        self._part = part
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

    def compare(self, item: Item) -> Standing:
        """Compare by the server's own SHA-256 where it has one of the bytes, else by reading them back."""
        with self._clear():
            try:
                head = self._client.head_object(**self._key(item.name), ChecksumMode="ENABLED")
            except self._client.exceptions.ClientError as exc:
                if _code(exc) in ("404", "NoSuchKey", "NotFound"):
                    return Standing.ABSENT
                raise
            if head["ContentLength"] != item.size:
                return Standing.OTHER
            stated, dash, _ = head.get("ChecksumSHA256", "").partition("-")
            composite = bool(dash) or head.get("ChecksumType") == "COMPOSITE"
            if stated and not composite:
                return Standing.SAME if stated == _b64(bytes.fromhex(item.sha256)) else Standing.OTHER
            if stated and stated == _Parts.of(item, self._part_size(item.size)).composite:
                return Standing.SAME
            # Another part size, or a store that keeps no checksum.
            digest = hashlib.sha256()
            for block in self._client.get_object(**self._key(item.name))["Body"].iter_chunks(_BLOCK):
                digest.update(block)
            return Standing.SAME if digest.hexdigest() == item.sha256 else Standing.OTHER

    def add(self, item: Item, sent: Sent) -> None:
        """Send the item unless something lies there; a large one by parts, without those that are there."""
        for _ in range(_MOST_TRIES):
            with self._clear():
                try:
                    if item.size > self._part_size(item.size):
                        proven = self._add_parts(item, sent)
                    else:
                        proven = self._put(item, IfNoneMatch="*")
                        sent(item.size)
                    if proven:
                        return
                except self._client.exceptions.ClientError as exc:
                    if _code(exc) not in _RACE | {"NoSuchUpload"}:
                        raise
                    # Another publisher was there first, with a whole object or with the end of our upload; or the
                    # answer to our own first request was lost and this is the second.
            standing = self.compare(item)
            if standing is Standing.SAME:
                return
            if standing is Standing.OTHER:
                raise Taken(f"{item.name} lies in {self.where} already, with other bytes")
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
            data: bytes = found["Body"].read(MOST_READ + 1)
        if len(data) > MOST_READ:
            raise BadInput(f"{name} in {self.where} holds more than {MOST_READ} bytes")
        return data

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket.name, "Key": self._bucket.prefix + name}

    def _part_size(self, size: int) -> int:
        """The same for the same size, so that a part keeps its number from one try to the next."""
        least = -(-size // _MOST_PARTS)
        return self._part if least <= self._part else -(-least // _MIB) * _MIB

    def _put(self, item: Item, **condition: str) -> bool:
        """Whether the store says that it has these bytes."""
        checksum = _b64(bytes.fromhex(item.sha256))
        with item.open() as data:
            done = self._client.put_object(
                **self._key(item.name),
                Body=data.read(),
                ChecksumSHA256=checksum,
                **_headers(item),
                **condition,
            )
        return bool(done.get("ChecksumSHA256") == checksum)

    def _add_parts(self, item: Item, sent: Sent) -> bool:
        parts = _Parts.of(item, self._part_size(item.size))
        upload, there = self._begun(item, parts)
        if upload is None:
            created = self._client.create_multipart_upload(
                **self._key(item.name), ChecksumAlgorithm="SHA256", ChecksumType="COMPOSITE", **_headers(item)
            )
            upload = created["UploadId"]
        sent(sum(parts.length(number) for number in there))
        wanting = [number for number in parts.numbers if number not in there]

        def send(number: int) -> tuple[int, str]:
            body = parts.read(item, number)
            done = self._client.upload_part(
                **self._key(item.name),
                UploadId=upload,
                PartNumber=number,
                Body=body,
                ChecksumSHA256=_b64(parts.sha256[number - 1]),
            )
            return number, done["ETag"]

        with ThreadPoolExecutor(_WORKERS) as pool:
            waiting = [pool.submit(send, number) for number in wanting]
            try:
                for job in waiting:
                    number, etag = job.result()
                    there[number] = etag
                    sent(parts.length(number))
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        done = self._client.complete_multipart_upload(
            **self._key(item.name),
            UploadId=upload,
            MultipartUpload={
                "Parts": [
                    {"PartNumber": n, "ETag": there[n], "ChecksumSHA256": _b64(parts.sha256[n - 1])}
                    for n in parts.numbers
                ]
            },
            IfNoneMatch="*",
        )
        return bool(done.get("ChecksumSHA256", "").partition("-")[0] == parts.composite)

    def _begun(self, item: Item, parts: "_Parts") -> tuple[str | None, dict[int, str]]:
        """The upload of this item that has got furthest, and its good parts: number → ETag."""
        key = self._key(item.name)["Key"]
        best: tuple[str | None, dict[int, str]] = (None, {})
        for page in self._pages("list_multipart_uploads", Prefix=key):
            for upload in page.get("Uploads", []):
                if upload["Key"] != key or upload.get("ChecksumAlgorithm", "SHA256") != "SHA256":
                    continue
                listed = self._pages("list_parts", Key=key, UploadId=upload["UploadId"])
                good = {
                    part["PartNumber"]: part["ETag"]
                    for found in listed
                    for part in found.get("Parts", [])
                    if parts.holds(part)
                }
                if best[0] is None or len(good) > len(best[1]):
                    best = (upload["UploadId"], good)
        return best

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


@dataclass(frozen=True, slots=True)
class _Parts:
    """A file cut into parts, each with its digests; the whole was read and is what was verified."""

    size: int
    part: int
    sha256: tuple[bytes, ...]
    md5: tuple[str, ...]
    """As stores without checksums of parts give them for ETags."""

    @classmethod
    def of(cls, item: Item, part: int) -> "_Parts":
        """Raises CheckFailed when the file is not any more what the item says, and OSError."""
        whole, ours, etags = hashlib.sha256(), [], []
        with item.open() as data:
            while block := data.read(part):
                whole.update(block)
                ours.append(hashlib.sha256(block).digest())
                etags.append(hashlib.md5(block, usedforsecurity=False).hexdigest())
        if whole.hexdigest() != item.sha256:
            raise changed(item)
        return cls(item.size, part, tuple(ours), tuple(etags))

    @property
    def numbers(self) -> range:
        """From 1."""
        return range(1, len(self.sha256) + 1)

    @property
    def composite(self) -> str:
        """The checksum that the store gives the whole: over the parts' digests."""
        return _b64(hashlib.sha256(b"".join(self.sha256)).digest())

    def length(self, number: int) -> int:
        """Bytes of a part."""
        return min(self.part, self.size - (number - 1) * self.part)

    def read(self, item: Item, number: int) -> bytes:
        """A part's bytes."""
        with item.open() as data:
            data.seek((number - 1) * self.part)
            return data.read(self.part)

    def holds(self, part: Mapping[str, Any]) -> bool:
        """Whether a part that the store lists is ours, by its SHA-256, or by MD5 where it names none."""
        number = part["PartNumber"]
        if number not in self.numbers or part["Size"] != self.length(number):
            return False
        if (stated := part.get("ChecksumSHA256")) is not None:
            return bool(stated == _b64(self.sha256[number - 1]))
        return bool(part["ETag"].strip('"') == self.md5[number - 1])


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
