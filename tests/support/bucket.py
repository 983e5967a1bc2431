"""An S3-compatible server on this machine (moto's) behind a gate that checks, records, refuses and holds."""

import base64
import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

LEAST_PART = 256
"""Bytes that a part must have, but for the last; the real store wants 5 MiB."""

Environ = dict[str, Any]
App = Callable[[Environ, Any], Iterable[bytes]]


@dataclass(frozen=True)
class Request:
    """What came: method, path, and the part's number of an upload by parts."""

    method: str
    path: str
    part: int | None
    query: str


@dataclass
class Gate:
    """The server's front: everything that comes is recorded before it is answered."""

    app: App
    requests: list[Request] = field(default_factory=list)
    answers: list[tuple[Callable[[Request], bool], int, str]] = field(
        default_factory=list
    )
    """(which request, status, code): answered once instead of the server, then taken away."""
    hold: Callable[[Request], bool] = lambda request: False
    """Which request to hold until `go` is set; it is then refused."""
    held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    before: Callable[[Request], object] = lambda request: None
    """Called with each request before the server has it."""
    checksums: bool = True
    """False: a store that keeps no checksums."""

    def __call__(self, environ: Environ, start: Any) -> Iterable[bytes]:
        """Answer one request."""
        query = environ.get("QUERY_STRING", "")
        part = parse_qs(query).get("partNumber", [None])[0]
        request = Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"],
            int(part) if part else None,
            query,
        )
        self.requests.append(request)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        stated = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
        # The real store checks what is stated; moto does not.
        an_object = request.path.count("/") > 1
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if an_object and request.method == "PUT" and stated != digest:
            return refuse(start, 400, "BadDigest")
        if self.hold(request):
            self.held.set()
            self.go.wait(60)
            return refuse(start, 500, "InternalError")
        for number, (fits, status, code) in enumerate(self.answers):
            if fits(request):
                del self.answers[number]
                return refuse(start, status, code)
        self.before(request)

        def begin(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            if not self.checksums:
                headers = [
                    (k, v)
                    for k, v in headers
                    if not k.lower().startswith("x-amz-checksum")
                ]
            return start(status, headers, *rest)

        return self.app(environ, begin)

    @property
    def writes(self) -> list[Request]:
        """What would change something."""
        return [r for r in self.requests if r.method not in ("GET", "HEAD")]

    def reset(self) -> None:
        """Forget what came, and let everything pass."""
        self.requests.clear()
        self.answers.clear()
        self.hold = self.before = lambda request: False
        self.checksums = True
        self.held.clear()
        self.go.clear()


def refuse(start: Any, status: int, code: str) -> Iterable[bytes]:
    """An error as S3 words it."""
    start(f"{status} Refused", [("Content-Type", "application/xml")])
    return [
        f"<Error><Code>{code}</Code><Message>said by the gate</Message></Error>".encode()
    ]


@contextmanager
def bucket_server(patch: Any) -> Iterator[tuple[str, Gate]]:
    """The server's URL and its gate; `patch` is pytest's, and sets what moto reads when it is imported."""
    patch.setenv("S3_UPLOAD_PART_MIN_SIZE", str(LEAST_PART))
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            """Nothing: the gate records what came."""

    gate = Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", gate
    finally:
        gate.go.set()
        server.shutdown()
        server.server_close()
        thread.join()
