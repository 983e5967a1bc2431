"""Connect to public addresses only: every name is resolved here, and every address checked."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpcore2
import httpx2

from medlive.sources.fetching.policy import HostRefused

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that lead to the IPv4 address in their last 32 bits (RFC 6052)."""
_CONNECTIONS = 64
"""Most connections of one run, over all hosts; each host's are bounded by its concurrency."""


def may_connect(address: str, *, allow_loopback: bool) -> bool:
    """Whether an IP address is public, or loopback where that is allowed."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_loopback:
        return allow_loopback
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else ip.sixtofour
        if inner is None and ip not in _GLOBAL_UNICAST:
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Sends requests over connections that were made to a checked address.

    The check is part of making the connection, so that a name that changes its answer in between (DNS
    rebinding) cannot lead into a private network. A refused address is HostRefused.
    """

    def __init__(self, *, allow_loopback: bool) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_trust(),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_CONNECTIONS,
            keepalive_expiry=5.0,
            network_backend=_GuardedBackend(allow_loopback),
        )


@cache
def _trust() -> ssl.SSLContext:
    """The trusted certificates, which take a fifth of a second to load."""
    return httpx2.create_ssl_context(trust_env=False)


class _GuardedBackend(httpcore2.AnyIOBackend):
    def __init__(self, allow_loopback: bool) -> None:
        self._allow_loopback = allow_loopback

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to a host, all of whose addresses must be allowed. Raises HostRefused."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"no connection to {host}: {error}") from error
        addresses = [str(entry[4][0]) for entry in found]
        for address in addresses:
            if not may_connect(address, allow_loopback=self._allow_loopback):
                raise HostRefused(host, f"{host} resolves to {address}, which is not a public address")
        return await super().connect_tcp(addresses[0], port, timeout, local_address, socket_options)
