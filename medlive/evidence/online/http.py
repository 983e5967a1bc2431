"""Requests to literature services over HTTP."""

import asyncio
from collections.abc import Mapping

import httpx2

from medlive import __version__
from medlive.evidence.online.service import Answer
from medlive.guard.bounds import LITERATURE_BYTES
from medlive.guard.http import any_address, guarded_client

TIMEOUT_S = 30.0
"""Most seconds to connect, and between two parts of an answer."""
ANSWER_S = 120.0
"""Most seconds for a whole answer, however slowly it comes."""


class HttpClient:
    """Posts forms; redirects are not followed."""

    def __init__(self, contact: str) -> None:
        """`contact` is the operator's address, which the services ask for."""
        headers = {"User-Agent": f"medlive/{__version__} (+{contact})"}
        self._client = guarded_client(
            any_address, headers=headers, timeout=httpx2.Timeout(TIMEOUT_S)
        )

    async def post(self, address: str, form: Mapping[str, str]) -> Answer:
        """Return the answer, cut behind the longest that is read. Raises OSError if none came."""
        body = bytearray()
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                self._client.stream("POST", address, data=dict(form)) as response,
            ):
                async for block in response.aiter_bytes():
                    body += block
                    if len(body) > LITERATURE_BYTES:
                        break
                return Answer(response.status_code, dict(response.headers), bytes(body))
        except httpx2.HTTPError as exc:
            raise OSError(str(exc) or type(exc).__name__) from exc

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
