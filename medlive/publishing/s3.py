"""A bucket of an S3-compatible store: conditional writes, SHA-256 checked by the server.

A file is sent whole: the largest of a snapshot of LiveMedBench's size has 7 MB.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from medlive.errors import CheckFailed, ServiceUnavailable, UsageError, require
from medlive.guard.trust import authorities_file, has_own_authority

from .target import Item

_ATTEMPTS = 5
_CHECK = (
    "check --at, --endpoint-url, AWS_REGION, the network, and the keys (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
    " a profile as AWS_PROFILE); docs/publishing.md lists what the key must be allowed to do, and the store"
    " (conditional writes); publish again later: files that came are not sent twice"
)
# Error codes of the store: another writer was first; there is no such object
_RACE = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


def parse_address(text: str) -> tuple[str, str]:
    """Return the bucket and the prefix ("" or a path that ends with `/`) of `s3://bucket/prefix`.

    Raises UsageError for any other text.
    """
    scheme, _, rest = text.partition("://")
    name, _, prefix = rest.partition("/")
    parts = [part for part in prefix.split("/") if part]
    if scheme != "s3" or not name or any(part in (".", "..") for part in parts):
        raise UsageError(
            f"{text!r} is not the address of a bucket", hint="write s3://bucket/prefix"
        )
    return name, "".join(f"{part}/" for part in parts)


class S3Target:
    """A prefix of a bucket, as a target: see `FolderTarget`, which has the same methods."""

    def __init__(self, at: str, *, endpoint_url: str | None = None) -> None:
        """Make the client; keys come from the environment, a profile or the machine's role, as boto3 finds them.

        `at` is `s3://bucket/prefix`, `endpoint_url` another store than AWS. Raises UsageError for another address,
        and MissingExtra without boto3.
        """
        self._bucket, self._prefix = parse_address(at)
        self.where = f"s3://{self._bucket}/{self._prefix}".rstrip("/")
        self._endpoint = endpoint_url
        require("boto3", "publishing to S3", "'medlive[publish]'")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        authorities = None  # its own list, or AWS_CA_BUNDLE
        if has_own_authority() and not os.environ.get("AWS_CA_BUNDLE"):
            authorities = str(authorities_file())
        retries = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
        config = Config(
            retries=retries,
            connect_timeout=10,
            read_timeout=120,
            user_agent_extra="medlive",
        )
        try:
            # A session of its own: the shared one would keep the keys that it found first.
            self._client = boto3.session.Session().client(
                "s3", endpoint_url=endpoint_url, config=config, verify=authorities
            )
        except (BotoCoreError, ValueError) as exc:
            raise ServiceUnavailable(
                f"the client for S3 cannot be made: {exc}", hint=_CHECK
            ) from exc

    @contextmanager
    def session(self) -> Iterator[None]:
        """Writes are conditional, so that no lock is needed."""
        yield

    def names(self, folder: str) -> frozenset[str]:
        """Return the names below a folder."""
        names = self._list("Contents", "Key", folder)
        return frozenset(names)

    def folders(self) -> frozenset[str]:
        """Return the folders right below the prefix."""
        names = self._list("CommonPrefixes", "Prefix", "", Delimiter="/")
        return frozenset(name.rstrip("/") for name in names)

    def has(self, item: Item) -> bool | None:
        """Compare by the server's own SHA-256 where it has one of the bytes, else by reading them back."""
        head: Any = None
        with self._errors(_MISSING):
            place = self._key(item.name)
            head = self._client.head_object(**place, ChecksumMode="ENABLED")
        if head is None:
            return None
        if head["ContentLength"] != item.size:
            return False
        stated = head.get("ChecksumSHA256", "")
        # A checksum of parts, by another program, is not one of the bytes; some stores keep none.
        if not stated or "-" in stated:
            data = self.read(item.name) or b""
            return hashlib.sha256(data).hexdigest() == item.sha256
        return bool(stated == item.base64)

    def add(self, item: Item) -> None:
        """Send the item unless an object exists."""
        proven = False
        # Another publisher may be first, or the answer to our own first request may be lost.
        with self._errors(_RACE):
            proven = self._put(item, IfNoneMatch="*")
        is_same = proven or self.has(item)
        if is_same is None:
            text = f"{self.where} does not keep {item.name}"
            raise ServiceUnavailable(text, hint="publish again later")
        if not is_same:
            raise CheckFailed(f"{item.name} exists in {self.where} with other bytes")

    def replace(self, item: Item) -> None:
        """Send the item over what exists."""
        with self._errors():
            self._put(item)

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes."""
        data: Any = None
        with self._errors(_MISSING):
            data = self._client.get_object(**self._key(name))["Body"].read()
        return None if data is None else bytes(data)

    def _key(self, name: str) -> dict[str, str]:
        """The arguments that name an object."""
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    def _put(self, item: Item, **condition: str) -> bool:
        """Send the item; return whether the store confirms these bytes."""
        done = self._client.put_object(
            **self._key(item.name),
            Body=item.read(),
            ChecksumSHA256=item.base64,
            ContentType=item.content_type,
            CacheControl=item.cache_control,
            Metadata={"sha256": item.sha256},
            **condition,
        )
        return bool(done.get("ChecksumSHA256") == item.base64)

    def _list(
        self, kind: str, field: str, folder: str, **arguments: str
    ) -> Iterator[str]:
        """Yield the names in a listing of a folder; `kind` is the list in each page, `field` an entry's name."""
        with self._errors():
            paginator = self._client.get_paginator("list_objects_v2")
            place = {"Bucket": self._bucket, "Prefix": self._prefix + folder}
            for page in paginator.paginate(**place, **arguments):
                for entry in page.get(kind, []):
                    yield entry[field].removeprefix(self._prefix)

    @contextmanager
    def _errors(self, expected: frozenset[str] = frozenset()) -> Iterator[None]:
        """Turn what the client raises into errors with a hint, but ignore `expected` codes; no message holds a key."""
        from botocore import exceptions as boto

        try:
            yield
        except boto.ClientError as exc:
            if (code := str(exc.response.get("Error", {}).get("Code", ""))) in expected:
                return
            text = f"{self.where} answers {exc.operation_name} with {code}"
            raise ServiceUnavailable(text, hint=_CHECK) from exc
        except boto.BotoCoreError as exc:
            # The message of a lost connection may hold more than its kind.
            why = type(exc).__name__
            where = self._endpoint or "the store"
            text = f"{where} cannot be reached for {self.where}: {why}"
            raise ServiceUnavailable(text, hint=_CHECK) from exc
