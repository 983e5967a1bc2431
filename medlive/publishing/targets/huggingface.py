"""A dataset repository of the Hugging Face hub: its root is the snapshot, a commit and a tag for each version.

A tag is what does not change there. Files go by the hub's plain LFS upload, which needs nothing but HTTP; what was
uploaded before a kill is known to the hub by its SHA-256 and not sent again.
"""

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from medlive.errors import CheckFailed, MedliveError, MissingExtra, ServiceUnavailable, UsageError
from medlive.integrity.folder import REQUIRED, SIGNATURE, SUMS
from medlive.publishing.publish import Progress, Published, Ready, keep_errata
from medlive.publishing.target import IMMUTABLE, Item, page
from medlive.snapshot.model import week_end

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

T = TypeVar("T")

_KIND: Final = "dataset"
_MAIN: Final = "main"
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_TRIES: Final = 4
_BLOCK: Final = 1024 * 1024
_CONNECT_S: Final = 15.0
_LOGIN: Final = "give a token that may write as HF_TOKEN, or log in with `hf auth login`"


class _Passing(Exception):
    """The hub failed in a way that may be over at the next try."""


class HubRepository:
    """A dataset repository that versions are published to."""

    def __init__(
        self, at: str, *, endpoint_url: str | None = None, pause: float = 1.0, silence_s: float = 300.0
    ) -> None:
        """`at`: `organisation/name`; `pause`: seconds before a failed request is made again, doubled each time;
        `silence_s`: seconds without an answer after which a request has failed.

        The token comes from HF_TOKEN or from where `hf auth login` keeps it. Raises UsageError for a name that is
        none, MissingExtra without the client, and ServiceUnavailable without a token.
        """
        if not _REPOSITORY.fullmatch(at) or ".." in at or "--" in at:
            raise UsageError(f"{at!r} is no name of a repository", hint="write organisation/name")
        self._repository = at
        self._pause = pause
        self._api, self._token = _client(endpoint_url, silence_s)

    @property
    def where(self) -> str:
        """The address of the repository."""
        return f"{self._api.endpoint}/datasets/{self._repository}"

    def publish(
        self, ready: Ready, *, dry_run: bool = False, progress: Progress = lambda done, total: None
    ) -> Published:
        """Commit a snapshot, tag it with its version, and commit the errata that lie beside it.

        A tag that is there with these very files is left as it is; with others CheckFailed is raised and nothing
        is sent. A version older than the newest tag does not become the head of main. Raises ServiceUnavailable
        with what to do when the hub refuses or cannot be reached.
        """
        version = ready.manifest.version
        done = Published(version, ready.digest, self.where, ready.signed, dry_run)
        tags = self._tags()
        if tags is not None:
            keep_errata(ready, self.where, self._read)
        if tags is not None and version in tags:
            self._check_tag(ready, done)
        else:
            there = self._standing(_MAIN, _items(ready)) if tags is not None else {}
            lacking = sorted(name for name in ready.sums if not there.get(name, False))
            done.already = sorted(ready.sums.keys() - set(lacking))
            done.sent, done.bytes_sent = lacking, sum(ready.sums[name].size for name in lacking)
            if not dry_run:
                if tags is None:
                    self._ask(lambda: self._api.create_repo(self._repository, repo_type=_KIND, exist_ok=True))
                self._release(ready, done, aside=any(tag > version for tag in tags or ()))
                progress(done.bytes_sent, done.bytes_sent)
        if not dry_run:
            self._errata(ready, done)
            done.latest = max({version, *(tags or ())})
        return done

    def _tags(self) -> frozenset[str] | None:
        """The versions that are tagged; None when there is no repository."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def ask() -> frozenset[str] | None:
            try:
                refs = self._api.list_repo_refs(self._repository, repo_type=_KIND)
            except RepositoryNotFoundError as exc:
                # A wrong token gets the same class of error, and another status.
                if exc.response.status_code == 404:
                    return None
                raise
            return frozenset(ref.name for ref in refs.tags if week_end(ref.name) is not None)

        return self._ask(ask)

    def _check_tag(self, ready: Ready, done: Published) -> None:
        there = self._standing(ready.manifest.version, _items(ready))
        if wrong := sorted(name for name in ready.sums if not there.get(name, False)):
            raise CheckFailed(
                f"the tag {ready.manifest.version} of {self.where} holds other bytes: {', '.join(wrong[:8])}; "
                "nothing was sent",
                hint="a published version never changes: freeze and publish a new one",
            )
        done.sent, done.bytes_sent = [], 0
        done.already = sorted(ready.sums)

    def _standing(self, revision: str, wanted: Mapping[str, Item]) -> dict[str, bool]:
        """The files at a revision: name → whether it is the wanted file of that name, byte for byte."""
        from huggingface_hub import RepoFile

        found = self._ask(
            lambda: list(
                self._api.list_repo_tree(self._repository, repo_type=_KIND, revision=revision, recursive=True)
            )
        )
        return {
            file.path: file.path in wanted and _same(file, wanted[file.path])
            for file in found
            if isinstance(file, RepoFile)
        }

    def _release(self, ready: Ready, done: Published, *, aside: bool) -> None:
        """Make the commit and the tag; `aside`: not on main, which holds a newer version."""
        version = ready.manifest.version
        branch = f"publish-{version}" if aside else _MAIN
        if aside:
            self._ask(
                lambda: self._api.create_branch(self._repository, branch=branch, repo_type=_KIND, exist_ok=True)
            )
        commit = self._ask(lambda: self._commit(ready, branch))
        there = self._standing(commit, _items(ready))
        if wrong := sorted(name for name in ready.sums if not there.get(name, False)):
            raise ServiceUnavailable(
                f"{self.where} did not keep {', '.join(wrong[:8])} of the commit; no tag was made",
                hint="a .gitignore there, or another publisher, may be why: look at it, and publish again",
            )
        tagged = self._ask(lambda: self._tag(version, commit))
        if aside:
            self._ask(lambda: self._api.delete_branch(self._repository, branch=branch, repo_type=_KIND))
        if not tagged:
            self._check_tag(ready, done)

    def _commit(self, ready: Ready, branch: str) -> str:
        """The commit at the branch's head that holds the snapshot, made unless it is there."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        refs = self._api.list_repo_refs(self._repository, repo_type=_KIND)
        head = next((ref.target_commit for ref in refs.branches if ref.name == branch), None)
        there = self._standing(branch, _items(ready))
        ours = {*REQUIRED, SUMS, SIGNATURE}
        with ExitStack() as opened:
            operations: list[CommitOperationAdd | CommitOperationDelete] = [
                CommitOperationDelete(name) for name in sorted(there.keys() & ours - ready.sums.keys())
            ]
            for name, entry in sorted(ready.sums.items()):
                if there.get(name, False):
                    continue
                # An open file, and not a path: the hub's client sends those by plain HTTP.
                operation = CommitOperationAdd(name, opened.enter_context((ready.folder / name).open("rb")))
                if operation.upload_info.sha256.hex() != entry.sha256:
                    raise CheckFailed(f"{name} changed while it was being published; nothing was committed")
                operations.append(operation)
            if not operations:
                return str(head)
            return self._committed(operations, f"medlive {ready.manifest.version}", branch, head)

    def _committed(
        self,
        operations: "list[CommitOperationAdd | CommitOperationDelete]",
        message: str,
        branch: str,
        head: str | None,
    ) -> str:
        info = self._api.create_commit(
            self._repository,
            operations,
            commit_message=message,
            repo_type=_KIND,
            revision=branch,
            parent_commit=head,
        )
        return str(info.oid)

    def _tag(self, version: str, commit: str) -> bool:
        """Whether the tag was made; False when another publisher has made it."""
        from huggingface_hub.errors import HfHubHTTPError

        try:
            self._api.create_tag(self._repository, tag=version, revision=commit, repo_type=_KIND)
        except HfHubHTTPError as exc:
            if exc.response.status_code == 409:
                return False
            raise
        return True

    def _errata(self, ready: Ready, done: Published) -> None:
        from huggingface_hub import CommitOperationAdd

        if not ready.errata:
            return
        items = {name: page(name, data) for name, data in ready.errata.items()}

        def commit() -> list[str]:
            head = next(
                ref.target_commit
                for ref in self._api.list_repo_refs(self._repository, repo_type=_KIND).branches
                if ref.name == _MAIN
            )
            there = self._standing(_MAIN, items)
            names = sorted(name for name in items if not there.get(name, False))
            if names:
                additions = [CommitOperationAdd(name, ready.errata[name]) for name in names]
                self._committed([*additions], "Errata", _MAIN, head)
            return names

        done.updated = self._ask(commit)

    def _read(self, name: str) -> bytes | None:
        from huggingface_hub.errors import RemoteEntryNotFoundError

        def ask() -> bytes | None:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    path = self._api.hf_hub_download(
                        self._repository, name, repo_type=_KIND, revision=_MAIN, local_dir=folder
                    )
                except RemoteEntryNotFoundError:
                    return None
                return Path(path).read_bytes()

        return self._ask(ask)

    def _ask(self, request: Callable[[], T]) -> T:
        """The answer to a request, made again while the hub fails in passing."""
        for number in range(1, _TRIES):
            try:
                with self._clear():
                    return request()
            except _Passing:
                time.sleep(self._pause * 2 ** (number - 1))
        try:
            with self._clear():
                return request()
        except _Passing as exc:
            raise ServiceUnavailable(
                str(exc), hint="publish again later: what was uploaded is not sent twice"
            ) from exc

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """Turn what the client raises into our errors; no message holds the token."""
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

        try:
            yield
        except (MedliveError, _Passing):
            raise
        except HfHubHTTPError as exc:
            raise self._said(exc) from exc
        except (httpx2.TransportError, LocalEntryNotFoundError) as exc:
            raise _Passing(f"{self._api.endpoint} cannot be reached: {type(exc).__name__}") from exc
        except (HFValidationError, ValueError) as exc:
            raise ServiceUnavailable(f"{self.where} refuses: {self._masked(str(exc))[:300]}") from exc
        except RuntimeError as exc:
            # What the client says of an upload that failed; the cause says how.
            if isinstance(exc.__cause__, HfHubHTTPError):
                raise self._said(exc.__cause__) from exc
            raise _Passing(f"an upload to {self.where} failed: {type(exc.__cause__ or exc).__name__}") from exc
        except OSError as exc:
            raise CheckFailed(f"{exc.filename or 'a file'} cannot be read: {exc.strerror or exc}") from exc

    def _said(self, exc: Any) -> Exception:
        status = exc.response.status_code
        said = self._masked(getattr(exc, "server_message", None) or "")[:300]
        text = f"{self.where} answers with HTTP {status}" + (f": {said}" if said else "")
        if status in (401, 403):
            return ServiceUnavailable(f"{self.where} refuses the token (HTTP {status})", hint=_LOGIN)
        if status == 404:
            return ServiceUnavailable(
                f"{self.where} is not there for this token", hint="look at the name, and at what the token may do"
            )
        if status in (408, 409, 412, 429) or status >= 500:
            # 409 and 412: main moved on since it was looked at; the next try looks again.
            return _Passing(text)
        return ServiceUnavailable(text)

    def _masked(self, text: str) -> str:
        return text.replace(self._token, "***")


def _client(endpoint_url: str | None, silence_s: float) -> "tuple[HfApi, str]":
    # The hub's other way of uploading is a program of its own beside HTTP; the plain way is enough.
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    try:
        import httpx2
        from huggingface_hub import HfApi, get_token, set_client_factory
    except ImportError as exc:
        raise MissingExtra(
            "publishing to the Hugging Face hub needs huggingface-hub", hint="pip install 'medlive[publish]'"
        ) from exc
    token = get_token()
    if token is None:
        raise ServiceUnavailable("there is no token for the Hugging Face hub", hint=_LOGIN)
    # Its own client waits for ever.
    limits = httpx2.Timeout(silence_s, connect=min(silence_s, _CONNECT_S))
    set_client_factory(lambda: httpx2.Client(timeout=limits, follow_redirects=True))
    return HfApi(endpoint=endpoint_url, token=token, library_name="medlive"), token


def _items(ready: Ready) -> dict[str, Item]:
    """The snapshot's files by their names in the repository."""
    return {
        name: Item(name, ready.folder / name, entry.size, entry.sha256, IMMUTABLE)
        for name, entry in ready.sums.items()
    }


def _same(file: Any, item: Item) -> bool:
    """Whether a file on the hub has those bytes, by the SHA-256 or the git digest that the hub keeps."""
    if file.size != item.size:
        return False
    if file.lfs is not None:
        return bool(file.lfs.sha256 == item.sha256)
    digest = hashlib.sha1(b"blob %d\0" % item.size, usedforsecurity=False)
    with item.open() as data:
        while block := data.read(_BLOCK):
            digest.update(block)
    return bool(file.blob_id == digest.hexdigest())
