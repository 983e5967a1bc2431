"""Whose certificates are believed: the one place where TLS is set up for every connection that medlive makes.

A certificate must come from an authority that is believed, be in date and name the host. Believed are the system's
authorities (or those of SSL_CERT_FILE and SSL_CERT_DIR, as OpenSSL reads them) and the file of `[tls] authority`.
Nothing here or in the settings turns the check off.
"""

import atexit
import ipaddress
import os
import re
import ssl
import tempfile
from functools import cache
from pathlib import Path

from medlive.errors import ConfigError

SYSTEM_FILE = "SSL_CERT_FILE"
"""OpenSSL's variable: a file with authorities that are believed in place of the system's."""
SYSTEM_FOLDER = "SSL_CERT_DIR"
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""The names by which OpenSSL finds an authority in a folder."""

_own_authority: Path | None = None


def use_authority(path: Path | None) -> None:
    """Believe the authorities of a PEM file, besides the system's, from now on; None for the system's alone.

    Raises ConfigError if the file cannot be read or holds no certificate.
    """
    global _own_authority
    if path is not None:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), path, "tls.authority")
    _own_authority = path


def has_own_authority() -> bool:
    """Whether a file of authorities is configured."""
    return _own_authority is not None


def tls_context() -> ssl.SSLContext:
    """Return the context for a client's connections, which checks the certificate and the host's name.

    Raises ConfigError if a file of authorities cannot be read.
    """
    return _context(
        _own_authority, os.environ.get(SYSTEM_FILE), os.environ.get(SYSTEM_FOLDER)
    )


def authorities_file() -> Path:
    """Return a file with every authority of `tls_context`, for libraries that take a file; removed at exit.

    Raises ConfigError if a file of authorities cannot be read.
    """
    return _file(
        _own_authority, os.environ.get(SYSTEM_FILE), os.environ.get(SYSTEM_FOLDER)
    )


def read_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an IP address without its zone, one of IPv4 that is mapped into IPv6 as IPv4. Raises ValueError."""
    address = ipaddress.ip_address(text.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is of this machine alone."""
    try:
        return host == "localhost" or read_address(host).is_loopback
    except ValueError:
        return False


@cache  # The system's authorities take a fifth of a second to load.
def _context(
    own: Path | None, system_file: str | None, _system_folder: str | None
) -> ssl.SSLContext:
    if system_file:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), Path(system_file), SYSTEM_FILE)
    context = ssl.create_default_context()
    if own is not None:
        _load(context, own, "tls.authority")
    return context


@cache
def _file(
    own: Path | None,
    system_file: str | None,
    system_folder: str | None,
) -> Path:
    # A context of its own: one in use lists also those that a server has sent.
    context = _context.__wrapped__(own, system_file, system_folder)
    # One folder or several. OpenSSL reads them only when it looks for an authority, and lists none before.
    folders = system_folder or ssl.get_default_verify_paths().capath or ""
    for folder in filter(os.path.isdir, folders.split(os.pathsep)):
        for path in sorted(Path(folder).iterdir()):
            # A link to an authority that was removed is nothing to OpenSSL either.
            if _HASHED.fullmatch(path.name) and path.exists():
                _load(context, path, SYSTEM_FOLDER)
    descriptor, name = tempfile.mkstemp(prefix="medlive-authorities-", suffix=".pem")
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        for certificate in context.get_ca_certs(binary_form=True):
            handle.write(ssl.DER_cert_to_PEM_cert(certificate))
    path = Path(name)
    atexit.register(path.unlink, missing_ok=True)
    return path


def _load(context: ssl.SSLContext, path: Path, setting: str) -> None:
    """Add a file of authorities to a context. Raises ConfigError, which names the setting."""
    try:
        context.load_verify_locations(cafile=path)
    except OSError as exc:  # also what OpenSSL says of a file that is not PEM
        raise ConfigError(
            f"{setting}: {path} cannot be used as a file of certificates: {exc.strerror or exc}",
            hint="name a readable PEM file with the certificate of the authority",
        ) from exc
