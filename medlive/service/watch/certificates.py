"""When the certificates end that a week depends on: of the models' endpoints, and of this instance's own pages."""

import asyncio
import ssl
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from medlive.config import Settings
from medlive.guard.trust import tls_context

_TIMEOUT_S: Final = 15.0


def certificate_hosts(settings: Settings) -> list[str]:
    """Host and port of each https address that is configured."""
    addresses = [role.base_url for _, role in settings.roles if role.engine == "openai"]
    hosts = set()
    for address in [*addresses, settings.web.base_url]:
        parts = urlsplit(address or "")
        if parts.scheme == "https" and parts.hostname:
            hosts.add(f"{parts.hostname}:{parts.port or 443}")
    return sorted(hosts)


async def look_at_certificates(settings: Settings) -> dict[str, Any]:
    """Host and port → `ends` and `problem`; both None where the host cannot be reached."""
    hosts = certificate_hosts(settings)
    seen = await asyncio.gather(*(_look_at(host) for host in hosts))
    return dict(zip(hosts, seen, strict=True))


async def _look_at(host: str) -> dict[str, str | None]:
    name, _, port = host.rpartition(":")
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, writer = await asyncio.open_connection(
                name, int(port), ssl=tls_context()
            )
    except ssl.SSLCertVerificationError as error:
        return {"ends": None, "problem": error.verify_message}
    except (OSError, TimeoutError):
        return {"ends": None, "problem": None}
    certificate = writer.get_extra_info("ssl_object").getpeercert()
    writer.close()
    ends = datetime.fromtimestamp(
        ssl.cert_time_to_seconds(certificate["notAfter"]), UTC
    )
    return {"ends": ends.isoformat(), "problem": None}
