"""Bodies to a chat endpoint and back: as the official client sends and judges them, over one aiohttp session.

The official client knows what a request to an endpoint looks like (address, headers, key) and what an answer that
is no success means. It works both out anew for each call, which takes three times the CPU of the call itself. So
it makes one request here, every body goes out with that request's address and headers, and it is given every
answer that is no success; a sound one is read without it. `benchmarks/grading.py` measures both ways.
"""

from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from aiohttp.typedefs import LooseHeaders
from openai import OpenAI
from yarl import URL

PATH: Final = "/chat/completions"
_PER_MESSAGE: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "cookie"}
)
"""Headers of one message or one connection: the session writes its own."""

_OF_THE_BODY: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})


class TooLongError(Exception):
    """The answer is longer than was allowed; the rest of it was not read."""


class _Stage(httpx2.BaseTransport):
    """Where the official client sends: nowhere. Its request is kept, and it gets the answer that lies ready."""

    def __init__(self) -> None:
        self.request: httpx2.Request | None = None
        self.answer: httpx2.Response | None = None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.request = request
        return self.answer or httpx2.Response(200)


class Transport:
    """Posts chat bodies to one endpoint. One event loop at a time."""

    def __init__(self, base_url: str, api_key: str) -> None:
        """`base_url` ends before `/chat/completions`; how many calls are under way is up to the callers."""
        self._stage = _Stage()
        self._client = OpenAI(
            api_key=api_key, base_url=base_url, max_retries=0, http_client=httpx2.Client(transport=self._stage)
        )
        self._proxy = _proxy(base_url)
        self._secure = urlsplit(base_url).scheme.lower() == "https"
        self._session: aiohttp.ClientSession | None = None
        self._url = URL()

    async def post(self, content: bytes, most: int) -> bytes:
        """The body of the answer to a body, when it is a success.

        Raises openai.APIStatusError for another status, TooLongError past `most` bytes, aiohttp.ClientError and
        OSError when the connection fails. Time is the caller's to limit.
        """
        session = self._session or self._open()
        async with session.post(self._url, data=content, proxy=self._proxy) as response:
            if 200 <= response.status < 300:
                return await _read(response, most)
            try:
                body = await _read(response, most)
            except TooLongError:
                body = b""
            self._judge(response, body)
            raise aiohttp.ClientPayloadError(f"status {response.status}")

    async def aclose(self) -> None:
        """Close the connections."""
        self._client.close()
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """The session, with the address and headers of a request that the official client has made."""
        self._ask(None)
        request = self._stage.request
        assert request is not None
        self._url = URL(str(request.url), encoded=True)
        headers: LooseHeaders = [
            (name, value) for name, value in request.headers.multi_items() if name.lower() not in _PER_MESSAGE
        ]
        connector = aiohttp.TCPConnector(
            limit=0, ssl=httpx2.create_ssl_context() if self._secure else True, ttl_dns_cache=60
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self._session

    def _judge(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        """Have the official client raise what a status means."""
        # The session has unpacked the body.
        headers = [(name, value) for name, value in response.raw_headers if name.lower() not in _OF_THE_BODY]
        self._ask(httpx2.Response(response.status, headers=headers, content=body))

    def _ask(self, answer: httpx2.Response | None) -> None:
        self._stage.answer = answer
        self._client.post(
            PATH, content=b"{}", cast_to=httpx2.Response, options={"headers": {"Content-Type": "application/json"}}
        )


def _proxy(base_url: str) -> str | None:
    """The proxy that the environment names for an address."""
    split = urlsplit(base_url)
    if proxy_bypass(split.hostname or ""):
        return None
    proxies = getproxies()
    return proxies.get(split.scheme) or proxies.get("all")


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await response.content.readany():
        size += len(part)
        if size > most:
            raise TooLongError(f"the answer is longer than {most} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
