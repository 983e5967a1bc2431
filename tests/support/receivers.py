"""Servers that take what operators are told: a webhook's address and a mail server, on loopback."""

import email
import email.policy
import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any


@contextmanager
def serve_webhook(status: int = 204) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a webhook that answers with a status, and what it was sent."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(
                json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            )
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with _serve(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}/secret-token", received


@contextmanager
def serve_beats() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The address of a dead man's switch, and path and body of each beat."""
    beats: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            beats.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    with _serve(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}/beat", beats


@contextmanager
def serve_mail() -> Iterator[tuple[int, list[EmailMessage]]]:
    """The port of a mail server, and the messages that it took."""
    received: list[EmailMessage] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 test")
            for line in self.rfile:
                verb = line[:4].upper()
                if verb == b"DATA":
                    self._say("354 go on")
                    lines = b"".join(iter(self.rfile.readline, b".\r\n"))
                    received.append(
                        email.message_from_bytes(lines, policy=email.policy.default)
                    )
                self._say("221 bye" if verb == b"QUIT" else "250 ok")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    with _serve(socketserver.TCPServer(("127.0.0.1", 0), Handler)) as port:
        yield port, received


@contextmanager
def _serve(server: socketserver.TCPServer) -> Iterator[int]:
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
