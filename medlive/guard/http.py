"""HTTP clients that check addresses as they connect, with TLS by `guard.trust`: `guarded_client`, `reply_client`.

The check is a part of connecting, so that a name that changes its address in between (DNS rebinding) leads nowhere
else. Redirects are left to callers, who know which hosts they may ask, and environments' proxies are not used.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import httpcore2
import httpx2

from medlive.errors import ServiceUnavailable

from .trust import read_address, tls_context

Addresses = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a host and port that may be asked. Raises OSError, or its own error for a refused address."""

KEEP_ALIVE_S = 5.0
_POOLS = 16
"""Pools of a client that asks many at once: of 256 connections each has 16."""
RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""


_CLIENT = partial(httpx2.AsyncClient, follow_redirects=False, trust_env=False)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that lead to the IPv4 address in their last 32 bits (RFC 6052)."""


class AddressRefused(ServiceUnavailable):
    """A name leads to an address that must not be asked."""


def resolve_name(host: str, port: int) -> list[str]:
    """Return the addresses of a host's name; blocking. Raises OSError, or UnicodeError."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def may_connect(address: str, *, allow_loopback: bool = False) -> bool:
    """Whether an IP address is public, or loopback where that is allowed. Raises ValueError if it is not one."""
    ip = read_address(address)
    if ip.is_loopback:
        return allow_loopback
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.sixtofour
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is None and ip not in _GLOBAL_UNICAST:
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast


async def any_address(host: str, port: int) -> list[str]:
    """Return all addresses of a host that the configuration names, private ones too. Raises as `resolve_name`."""
    return await asyncio.to_thread(resolve_name, host, port)


def public_addresses(
    host: str, port: int, *, allow_loopback: bool = False
) -> list[str]:
    """Return a host's addresses, all of which must be public, or loopback where allowed; blocking.

    Raises:
        AddressRefused: If one is not.
        OSError: If the name cannot be resolved; UnicodeError if it is not a name.
    """
    addresses = resolve_name(host, port)
    for address in addresses:
        if not may_connect(address, allow_loopback=allow_loopback):
            raise AddressRefused(
                f"{host} resolves to {address}, which is not a public address"
            )
    return addresses


def guarded_client(
    addresses: Addresses,
    *,
    headers: Mapping[str, str],
    connections: int = 10,
    timeout: httpx2.Timeout | None = None,
) -> httpx2.AsyncClient:
    """Return a client that follows no redirect; its caller bounds the time of an answer as a whole.

    Args:
        addresses: Which addresses may be asked.
        headers: Those of every request.
        connections: Most of them at a time.
        timeout: Limits of each step; None for none.
    """
    return _CLIENT(
        transport=_transport(addresses, connections), headers=headers, timeout=timeout
    )


def reply_client(reply_bytes: int, *, proxy: str | None = None) -> httpx2.AsyncClient:
    """Return a client whose replies are short: each has been read when it is returned.

    It asks any address, follows no redirect, and leaves it to its caller how many requests are under way and how
    long each may take.

    Args:
        reply_bytes: The longest body, unpacked; ReadError for a longer one.
        proxy: The address of a proxy, which then makes the connections.
    """
    pools = [_transport(any_address, None, proxy) for _ in range(_POOLS)]
    return _CLIENT(transport=_WholeReplies(pools, reply_bytes), timeout=None)


def _transport(
    addresses: Addresses, connections: int | None, proxy: str | None = None
) -> httpx2.AsyncHTTPTransport:
    tls = tls_context()
    transport = httpx2.AsyncHTTPTransport(
        verify=tls,
        trust_env=False,
        limits=httpx2.Limits(
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=KEEP_ALIVE_S,
        ),
        proxy=proxy
        and httpx2.Proxy(proxy, ssl_context=tls if proxy[:6] == "https:" else None),
    )
    transport._pool._network_backend = _Backend(addresses)
    return transport


class _WholeReplies(httpx2.AsyncBaseTransport):
    """Asks pools in turn: httpcore2 looks at every connection of a pool, twice for each request."""

    def __init__(
        self, pools: Sequence[httpx2.AsyncHTTPTransport], reply_bytes: int
    ) -> None:
        self._pools, self._turns = pools, cycle(pools)
        self._reply_bytes = reply_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return a response whose body is there. Raises ReadError, and what httpx2 raises."""
        response = await next(self._turns).handle_async_request(request)
        body = bytearray()
        try:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > self._reply_bytes:
                    raise httpx2.ReadError(
                        f"the answer is longer than {self._reply_bytes} bytes"
                    )
        finally:
            await response.aclose()
        headers = response.headers.copy()
        headers.pop("Content-Encoding", None)
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(body)
        )

    async def aclose(self) -> None:
        """Close every pool."""
        for pool in self._pools:
            await pool.aclose()


class _Backend(httpcore2.AnyIOBackend):
    """Connects only to the addresses that `addresses` returns for a host."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers."""
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        try:
            addresses = await self._addresses(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"no connection to {host}: {error}") from error
        for address in addresses:
            try:
                return await super().connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure
