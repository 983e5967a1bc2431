"""Servers behind TLS on loopback, and an authority that signs their certificates."""

import datetime as dt
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = dt.datetime.now(dt.UTC)


class Authority:
    """Signs certificates; `file` is its own, as PEM."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = (
            folder,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        )
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._n = 0
        self.file = folder / f"{name}.pem"
        builder = self._builder(self._name, self._key, days=30)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(
            False, False, False, False, False, True, True, False, False
        )
        certificate = builder.add_extension(usage, critical=True).sign(
            self._key, hashes.SHA256()
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, host: str, *, days: int = 30) -> ssl.SSLContext:
        """A server's context with a certificate for a host, which ends in so many days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        builder = self._builder(subject, key, days).add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self._n += 1
        file = self._folder / f"server-{self._n}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=_NOW - dt.timedelta(days=60),
            not_valid_after=_NOW + dt.timedelta(days=days),
        )


@dataclass
class Received:
    """A server's port, and what it was sent behind TLS."""

    port: int
    lines: list[bytes] = field(default_factory=list)


Answer = Callable[[socket.socket, Received], None]


@contextmanager
def serve_https(context: ssl.SSLContext) -> Iterator[Received]:
    """A server that answers every request with an empty JSON object."""

    def answer(connection: socket.socket, received: Received) -> None:
        with context.wrap_socket(connection, server_side=True) as tls:
            _read_request(tls, received)
            tls.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
            )
            tls.sendall(b"Connection: close\r\n\r\n{}")

    with _serve(answer) as received:
        yield received


@contextmanager
def serve_smtp(context: ssl.SSLContext | None) -> Iterator[Received]:
    """A mail server that takes everything, after STARTTLS with a context, in the clear without one."""

    def answer(connection: socket.socket, received: Received) -> None:
        connection.sendall(b"220 test\r\n")
        if context is None:
            _talk(connection, received, b"250 AUTH PLAIN\r\n")
            return
        unprotected = Received(0)
        _talk(connection, unprotected, b"250 STARTTLS\r\n", last=b"STARTTLS")
        with context.wrap_socket(connection, server_side=True) as tls:
            _talk(tls, received, b"250 AUTH PLAIN\r\n")

    with _serve(answer) as received:
        yield received


@contextmanager
def serve_postgresql(context: ssl.SSLContext) -> Iterator[Received]:
    """A server that agrees to TLS as PostgreSQL does, asks for the password in the clear, and hangs up."""

    def answer(connection: socket.socket, received: Received) -> None:
        connection.recv(8)  # SSLRequest
        connection.sendall(b"S")
        with context.wrap_socket(connection, server_side=True) as tls:
            if first := tls.recv(
                4096
            ):  # libpq looks at the host's name after the handshake
                received.lines.append(first)
            tls.sendall(b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big"))
            if password := tls.recv(4096):
                received.lines.append(password)

    with _serve(answer) as received:
        yield received


def _read_request(connection: socket.socket, received: Received) -> None:
    with connection.makefile("rb") as stream:
        length = 0
        for line in iter(stream.readline, b"\r\n"):
            if not line:
                return
            received.lines.append(line)
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        if length:
            received.lines.append(stream.read(length))


def _talk(
    connection: socket.socket,
    received: Received,
    offer: bytes,
    *,
    last: bytes = b"QUIT",
) -> None:
    """Speak SMTP until the client says `last`; `offer` is what EHLO is answered with."""
    answers = {
        b"EHLO": b"250-test\r\n" + offer,
        b"AUTH": b"235 ok\r\n",
        b"DATA": b"354 go on\r\n",
    }
    answers |= {b"STAR": b"220 go on\r\n", b"QUIT": b"221 bye\r\n"}
    with connection.makefile(
        "rb", buffering=0
    ) as stream:  # what follows STARTTLS is not the plain stream's
        for line in iter(stream.readline, b""):
            received.lines.append(line)
            connection.sendall(answers.get(line[:4].upper(), b"250 ok\r\n"))
            if line.strip().upper() == last:
                return
            if line[:4].upper() == b"DATA":
                received.lines += iter(stream.readline, b".\r\n")
                connection.sendall(b"250 ok\r\n")


@contextmanager
def _serve(answer: Answer) -> Iterator[Received]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        received = Received(listening.getsockname()[1])
        closing = False

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                connection.settimeout(10)
                # A client that does not believe the certificate hangs up.
                with connection, suppress(OSError):
                    if closing:
                        return
                    answer(connection, received)

        thread = Thread(target=accept)
        thread.start()
        try:
            yield received
        finally:
            closing = True
            socket.create_connection(("127.0.0.1", received.port)).close()
            thread.join()
