"""A dataset repository of the Hugging Face hub: its root is the snapshot, a commit and a tag for each version.

On the hub, tags do not change. Files go by its plain LFS upload, which needs nothing but HTTP; the hub knows what was
uploaded before a kill by its SHA-256, so that it is not sent again.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medlive.errors import CheckFailed, ServiceUnavailable, UsageError, require
from medlive.guard.trust import tls_context
from medlive.integrity.folder import REQUIRED, SIGNATURE, SUMS
from medlive.integrity.log import some
from medlive.snapshot.model import week_end

from .publish import (
    PreparedRelease,
    Published,
    check_errata_kept,
)

_MAIN = "main"
_CONNECT_S = 15.0
_SILENCE_S = 300.0
"""Seconds without an answer after which a request has failed."""
_HINT = (
    "check the name and the network, and give a token that may write there as HF_TOKEN, or log in with `hf auth login`;"
    " then publish again: what was uploaded is not sent twice"
)


class HubRepository:
    """A dataset repository that versions are published to."""

    def __init__(self, at: str, *, endpoint_url: str | None = None) -> None:
        """Find the token, in HF_TOKEN or where `hf auth login` keeps it.

        `at` is `organisation/name`, `endpoint_url` the address of another hub. Raises UsageError for another name,
        MissingExtra without the hub's client, and ServiceUnavailable without a token.
        """
        if at.count("/") != 1:
            raise UsageError(
                f"{at!r} is not a repository's name", hint="write organisation/name"
            )
        self._at: dict[str, Any] = {"repo_id": at, "repo_type": "dataset"}
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        what = "publishing to the Hugging Face hub"
        require("huggingface_hub", what, "'medlive[publish]'")
        import httpx2
        from huggingface_hub import HfApi, constants, get_token, set_client_factory

        # The hub's other way of uploading is a program of its own beside HTTP; the plain way is enough.
        # Its environment variable is read once, when the package is first imported, which may have been before.
        constants.HF_HUB_DISABLE_XET = True
        token = get_token()
        if token is None:
            raise ServiceUnavailable(
                "there is no token for the Hugging Face hub", hint=_HINT
            )
        # Its own client has no timeout.
        limits = httpx2.Timeout(_SILENCE_S, connect=_CONNECT_S)
        tls = tls_context()
        set_client_factory(
            lambda: httpx2.Client(timeout=limits, follow_redirects=True, verify=tls)
        )
        self._api = HfApi(endpoint=endpoint_url, token=token, library_name="medlive")
        self.where = f"{self._api.endpoint}/datasets/{at}"

    def publish(self, prepared: PreparedRelease) -> Published:
        """Commit a snapshot, tag it with its version, and commit the errata beside it.

        An existing tag with these very files is left as it is.

        Raises:
            CheckFailed: If the tag exists with other files, or a newer one exists; nothing is sent.
            ServiceUnavailable: If the hub refuses or cannot be reached; the hint says what to do.
        """
        version = prepared.version
        done = Published(version, prepared.digest, self.where, prepared.signed)
        with self._clear_errors():
            existing = self._tags()
            tags = existing or frozenset()
            done.sent = list(prepared.files)
            if existing is not None:
                check_errata_kept(prepared, self.where, self._read)
                done.sent = self._missing(
                    version if version in tags else _MAIN, prepared
                )
            done.already = sorted(prepared.files.keys() - set(done.sent))
            done.latest = max({version, *tags})
            if version not in tags:
                prepared.check_unpublished()
                if done.latest != version:
                    raise CheckFailed(
                        f"{self.where} has {done.latest}, and its head is the newest version",
                        hint="publish that version elsewhere",
                    )
            elif done.sent:
                raise self._other_bytes(f"the tag {version}", done.sent)
            if existing is None:
                self._api.create_repo(**self._at, exist_ok=True)
            if version not in tags:
                self._release(prepared)
            self._commit_errata(prepared)
        return done

    def _tags(self) -> frozenset[str] | None:
        """Return the tagged versions; None if there is no repository."""
        from huggingface_hub.errors import RepositoryNotFoundError

        try:
            refs = self._api.list_repo_refs(**self._at)
        except RepositoryNotFoundError as exc:
            # A wrong token gets the same class of error, and another status.
            if exc.response.status_code == 404:
                return None
            raise
        names = [ref.name for ref in refs.tags]
        return frozenset(name for name in names if week_end(name) is not None)

    def _missing(self, revision: str, prepared: PreparedRelease) -> list[str]:
        """Return the snapshot's files that a revision lacks or has with other bytes."""
        from huggingface_hub import RepoFile

        tree = self._api.list_repo_tree(**self._at, revision=revision, recursive=True)
        files = {file.path: file for file in tree if isinstance(file, RepoFile)}
        missing = []
        for name, entry in prepared.files.items():
            file = files.get(name)
            is_same = False
            if file is not None and file.lfs is not None:
                is_same = file.lfs.sha256 == entry.sha256
            elif file is not None:
                data = (prepared.path / name).read_bytes()
                blob = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
                blob.update(data)
                is_same = file.blob_id == blob.hexdigest()
            if not is_same:
                missing.append(name)
        return missing

    def _release(self, prepared: PreparedRelease) -> None:
        """Make the commit and the tag."""
        version = prepared.version
        commit = self._api.upload_folder(
            **self._at,
            folder_path=prepared.path,
            allow_patterns=list(prepared.files),
            delete_patterns=[*REQUIRED, SUMS, SIGNATURE],
            commit_message=f"medlive {version}",
            revision=_MAIN,
            parent_commit=self._head(),
        )
        if wrong := self._missing(commit.oid, prepared):
            raise self._other_bytes("the commit", wrong)
        self._api.create_tag(
            **self._at, tag=version, revision=commit.oid, exist_ok=True
        )
        if wrong := self._missing(version, prepared):
            raise self._other_bytes(f"the tag {version} of another publisher", wrong)

    def _head(self) -> str:
        """Return main's head; of two publishers that commit to it, the second is refused."""
        branches = self._api.list_repo_refs(**self._at).branches
        return next(ref.target_commit for ref in branches if ref.name == _MAIN)

    def _other_bytes(self, what: str, wrong: list[str]) -> CheckFailed:
        return CheckFailed(
            f"{what} of {self.where} holds other bytes: {some(wrong, 8)}; nothing was tagged",
            hint="a published version never changes: freeze and publish a new one",
        )

    def _commit_errata(self, prepared: PreparedRelease) -> None:
        """Commit the errata that main lacks."""
        from huggingface_hub import CommitOperationAdd

        head = self._head()
        files = {}
        for name, data in sorted(prepared.errata.items()):
            if self._read(name) != data:
                files[name] = data
        if files:
            self._api.create_commit(
                **self._at,
                operations=[CommitOperationAdd(*file) for file in files.items()],
                commit_message="Errata",
                parent_commit=head,
            )

    def _read(self, name: str) -> bytes | None:
        """Return a file of main; None if it does not exist."""
        from huggingface_hub.errors import RemoteEntryNotFoundError

        with tempfile.TemporaryDirectory() as folder:
            try:
                path = self._api.hf_hub_download(
                    **self._at, filename=name, local_dir=folder
                )
            except RemoteEntryNotFoundError:
                return None
            return Path(path).read_bytes()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn what the client raises into our errors.

        They hold no message of the client or the hub, in which the token may be.
        """
        import httpx2

        try:
            yield
        except (OSError, RuntimeError, ValueError, httpx2.TransportError) as exc:
            # An upload that failed is a RuntimeError; its cause says how.
            failure = exc.__cause__ if isinstance(exc, RuntimeError) else exc
            response = getattr(failure, "response", None)
            why = f"cannot be used: {type(failure or exc).__name__}"
            if response is not None:
                why = f"answers with HTTP {response.status_code}"
            raise ServiceUnavailable(f"{self.where} {why}", hint=_HINT) from exc
