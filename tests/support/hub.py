"""The part of the Hugging Face hub that publishing and loading a dataset and downloading a model need.

The answers have the fields that huggingface_hub 2.4 reads. A commit is a map of paths to blobs; large ones lie in
the LFS store by their SHA-256.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_not_a_real_token"
LARGE = (".parquet", ".jsonl")
"""What a new dataset's .gitattributes keeps in LFS; the hub would also take any file above 10 MB."""

Fits = Callable[[str, str], bool]


@dataclass
class Hub:
    """What the server holds, what came, and what it is told to refuse."""

    repositories: set[str] = field(default_factory=set)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    lfs: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    failures: list[tuple[Fits, int]] = field(default_factory=list)
    """(which method and path, status): answered once instead, then taken away."""
    before: Callable[[str, str], object] = lambda method, path: None
    url: str = ""

    def fail(self, status: int, method: str, part: str, times: int = 1) -> None:
        """Refuse the next requests of that method whose path has that part."""
        self.failures += [(lambda m, p: m == method and part in p, status)] * times

    def seen(self, method: str, part: str) -> int:
        """How many such requests came."""
        return sum(m == method and part in p for m, p in self.requests)

    def commit(self, branch: str, files: dict[str, bytes], title: str) -> str:
        """Make a commit the branch's head."""
        parent = self.branches.get(branch)
        text = json.dumps(
            [
                parent,
                title,
                {n: hashlib.sha256(d).hexdigest() for n, d in sorted(files.items())},
            ]
        )
        oid = hashlib.sha1(text.encode()).hexdigest()
        self.commits[oid], self.parents[oid], self.titles[oid] = files, parent, title
        self.branches[branch] = oid
        return oid

    def resolve(self, revision: str) -> str | None:
        """The commit that a branch, a tag or an oid names."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        return oid if oid in self.commits else None


class Refused(Exception):
    """An error of the hub: status, code."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: in two, the second waits for the first to be acknowledged
    disable_nagle_algorithm = True
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the hub records what came."""

    def _answer(self) -> None:
        hub, split = self.hub, urlsplit(self.path)
        path, body = unquote(split.path), self._body()
        hub.requests.append((self.command, path))
        try:
            for number, (fits, status) in enumerate(hub.failures):
                if fits(self.command, path):
                    del hub.failures[number]
                    raise Refused(
                        status, "", f"refused once; {self.headers.get('Authorization')}"
                    )
            hub.before(self.command, path)
            # As on the hub, the store of large files takes signed addresses and no token.
            if (
                not path.startswith("/store/")
                and self.headers.get("Authorization") != f"Bearer {TOKEN}"
            ):
                raise Refused(401, "", "Invalid credentials in Authorization header")
            self._route(path, parse_qs(split.query), body)
        except Refused as refused:
            headers = {"X-Error-Code": refused.code} if refused.code else {}
            self._send(
                refused.status, {"error": refused.message or refused.code}, headers
            )

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(
        self, status: int, value: Any, headers: dict[str, str] | None = None
    ) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in (
            {"Content-Length": str(len(data))} | (headers or {})
        ).items():
            self.send_header(name, text)
        # Whoever asked may have waited long enough.
        with suppress(ConnectionError):
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    def _route(self, path: str, query: dict[str, list[str]], body: bytes) -> None:
        parts = path.strip("/").split("/")
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            front = json.loads(body)["content"].split("---")
            self._send(200 if len(front) > 2 else 400, {"errors": [], "warnings": []})
        elif parts[0] == "store":
            self._store(parts[1], body)
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._known("/".join(parts[1:3]).removesuffix(".git"))
            self._batch(json.loads(body))
        elif parts[:2] in (["api", "datasets"], ["api", "models"]):
            self._known("/".join(parts[2:4]))
            self._api(parts[4], "/".join(parts[5:]), query, body)
        elif parts[2] == "resolve":
            self._known("/".join(parts[:2]))
            self._file(parts[3], "/".join(parts[4:]))
        elif parts[0] == "datasets" and parts[3] == "resolve":
            self._known("/".join(parts[1:3]))
            self._file(parts[4], "/".join(parts[5:]))
        else:
            raise Refused(
                501, "", f"the test's hub does not know {self.command} {path}"
            )

    def _known(self, repository: str) -> None:
        if repository not in self.hub.repositories:
            raise Refused(404, "RepoNotFound")

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.repositories:
            raise Refused(409, "", "You already created this dataset repo")
        self.hub.repositories.add(name)
        self.hub.commit(
            "main", {".gitattributes": b"*.parquet filter=lfs\n"}, "initial commit"
        )
        self._send(200, {"url": f"{self.hub.url}/datasets/{name}"})

    def _api(
        self, what: str, rest: str, query: dict[str, list[str]], body: bytes
    ) -> None:
        hub = self.hub
        if what == "refs":

            def refs(kind: str, found: dict[str, str]) -> list[dict[str, str]]:
                return [
                    {"name": n, "ref": f"refs/{kind}/{n}", "targetCommit": c}
                    for n, c in found.items()
                ]

            self._send(
                200,
                {
                    "branches": refs("heads", hub.branches),
                    "tags": refs("tags", hub.tags),
                    "converts": [],
                },
            )
        elif what == "revision":
            self._send(
                200,
                {
                    "id": "x/y",
                    "sha": self._commit(rest),
                    "siblings": [],
                    "tags": [],
                    "private": False,
                },
            )
        elif what == "tree":
            revision, _, folder = rest.partition("/")
            files = sorted(hub.commits[self._commit(revision)].items())
            self._send(
                200,
                [
                    self._entry(n, d)
                    for n, d in files
                    if n.startswith(f"{folder}/" if folder else "")
                ],
            )
        elif what == "paths-info":
            files = sorted(hub.commits[self._commit(rest)].items())
            asked = parse_qs(body.decode())["paths"]
            self._send(200, [self._entry(n, d) for n, d in files if n in asked])
        elif what == "preupload":
            self._preupload(rest, json.loads(body))
        elif what == "commit":
            self._make_commit(rest, body)
        elif what == "tag":
            tag = json.loads(body)["tag"]
            if tag in hub.tags:
                raise Refused(409, "", "the tag is there")
            hub.tags[tag] = self._commit(rest)
            self._send(200, {})
        else:
            raise Refused(501, "", f"the test's hub does not know {what}")

    def _commit(self, revision: str) -> str:
        oid = self.hub.resolve(revision)
        if oid is None:
            raise Refused(404, "RevisionNotFound")
        return oid

    def _entry(self, name: str, data: bytes) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "type": "file",
            "path": name,
            "size": len(data),
            "oid": _git(data),
        }
        if name.endswith(LARGE):
            oid = hashlib.sha256(data).hexdigest()
            entry |= {
                "oid": _git(oid.encode()),
                "lfs": {"oid": oid, "size": len(data), "pointerSize": 134},
            }
        return entry

    def _preupload(self, revision: str, asked: dict[str, Any]) -> None:
        there = self.hub.commits[self._commit(revision)]
        files = []
        for file in asked["files"]:
            name = file["path"]
            mode = "lfs" if name.endswith(LARGE) else "regular"
            data = there.get(name)
            digest = (
                hashlib.sha256(data).hexdigest()
                if mode == "lfs" and data is not None
                else data and _git(data)
            )
            files.append(
                {"path": name, "uploadMode": mode, "shouldIgnore": False, "oid": digest}
            )
        self._send(200, {"files": files})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = []
        for wanted in asked["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.hub.lfs:
                entry["actions"] = {
                    "upload": {"href": f"{self.hub.url}/store/{wanted['oid']}"}
                }
            objects.append(entry)
        self._send(200, {"transfer": "basic", "objects": objects})

    def _store(self, oid: str, body: bytes) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refused(400, "", "other bytes")
        self.hub.lfs[oid] = body
        self._send(200, {})

    def _make_commit(self, branch: str, body: bytes) -> None:
        hub = self.hub
        lines = [json.loads(line) for line in body.splitlines()]
        head = lines[0]["value"]
        files = dict(hub.commits[self._commit(branch)])
        if head.get("parentCommit") not in (None, hub.branches[branch]):
            raise Refused(
                412, "", "A commit has happened since. Please refresh and try again."
            )
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = hub.lfs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
            else:
                raise Refused(501, "", f"the test's hub does not know {line['key']}")
        oid = hub.commit(branch, files, head["summary"])
        url = f"{hub.url}/datasets/{min(hub.repositories)}/commit/{oid}"
        self._send(200, {"commitUrl": url, "commitOid": oid})

    def _file(self, revision: str, name: str) -> None:
        oid = self._commit(revision)
        data = self.hub.commits[oid].get(name)
        if data is None:
            raise Refused(404, "EntryNotFound")
        headers = {
            "X-Repo-Commit": oid,
            "ETag": f'"{_git(data)}"',
            "Accept-Ranges": "bytes",
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if asked is None:
            self._send(200, data, headers)
            return
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        self._send(
            206,
            data[first : last + 1],
            {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"},
        )


def _git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A running hub without repositories."""
    hub = Hub()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub})
    )
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
