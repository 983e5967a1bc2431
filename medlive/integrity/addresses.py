"""Which network addresses a program may be sent to by what it reads: public ones, and no machine of one's own."""

import ipaddress
from typing import Final

from medlive.guard.trust import read_address

_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that lead to the IPv4 address in their last 32 bits (RFC 6052)."""


def may_connect(address: str, *, allow_loopback: bool = False) -> bool:
    """Whether an IP address is public, or loopback where that is allowed. Raises ValueError if it is not one."""
    ip = read_address(address)
    if ip.is_loopback:
        return allow_loopback
    if isinstance(ip, ipaddress.IPv6Address):
        inner = (
            ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
            if ip in _NAT64
            else ip.sixtofour
        )
        if inner is None and ip not in _GLOBAL_UNICAST:
            return False
        ip = inner or ip
    return ip.is_global and not ip.is_multicast
