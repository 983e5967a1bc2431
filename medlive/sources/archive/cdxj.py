"""An index of archived pages as replay tools read it: one CDXJ line a page, found by its address's sort key."""

import base64
import hashlib
import json
import re
from contextlib import suppress
from posixpath import normpath
from urllib.parse import quote, unquote_to_bytes, urlsplit

from medlive.sources.archive.warc import ArchivedPage, Place

_WWW = re.compile(r"^www\d*\.")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "#%")


def sort_key(url: str) -> str:
    """An address in the order that replay tools sort by: `org,example)/path?query`.

    Host parts are reversed, `www` and a scheme's own port left out, everything in lower case, escapes made equal
    and the query's parts sorted. An address without a host is its own key.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return quote(url.lower(), safe=_SAFE, errors="replace")
    if not parts.hostname:
        return quote(url.lower(), safe=_SAFE, errors="replace")
    host = _WWW.sub("", _ascii(parts.hostname.rstrip(".")))
    key = host if ":" in host else ",".join(reversed(host.split(".")))
    if port is not None and port != _DEFAULT_PORTS.get(parts.scheme):
        key += f":{port}"
    path = normpath("/" + _escaped(parts.path).lstrip("/"))
    query = "&".join(sorted(_escaped(parts.query).lower().split("&"))) if parts.query else ""
    return f"{key}){path.lower()}{'?' + query if query else ''}"


def cdxj_line(filename: str, place: Place, page: ArchivedPage) -> str:
    """The line of a page in a file, in ASCII and without a line break; lines are sorted by their bytes."""
    digest = base64.b32encode(hashlib.sha1(page.body, usedforsecurity=False).digest()).decode("ascii")
    found = {
        "url": page.url,
        "mime": page.headers.get("content-type", "").partition(";")[0].strip() or "unk",
        "status": str(page.status),
        "digest": f"sha1:{digest}",
        "length": str(place.length),
        "offset": str(place.offset),
        "filename": filename,
    }
    moment = page.fetched_at.strftime("%Y%m%d%H%M%S")
    return f"{sort_key(page.url)} {moment} {json.dumps(found)}"


def _ascii(host: str) -> str:
    if not host.isascii():
        with suppress(UnicodeError):  # no name that a resolver would take is escaped as it is
            host = host.encode("idna").decode("ascii")
    return quote(host, safe=_SAFE, errors="replace")


def _escaped(text: str) -> str:
    """Every character that can stand for itself does, every other one is one escape."""
    return quote(unquote_to_bytes(text.encode("utf-8", "replace")), safe=_SAFE)
