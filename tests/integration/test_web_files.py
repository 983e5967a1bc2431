"""A file as it is sent: ranges and conditions, what goes on where it was cut off, and nothing beside it."""

import asyncio
import http.client
import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from medlive.integrity.folder import sha256
from tests.integration.test_web_downloads import FILE, NEW, Served, served

__all__ = ["served"]  # a fixture
ETAG, OTHER, SIZE = "ETAG", '"other"', "SIZE"


CONDITIONS: tuple[tuple[dict[str, str], int, tuple[int, int | None] | None], ...] = (
    ({}, 200, (0, None)),
    ({"Range": "bytes=10-19"}, 206, (10, 20)),
    ({"Range": "bytes=10-"}, 206, (10, None)),
    ({"Range": "bytes=-10"}, 206, (-10, None)),
    ({"Range": "bytes=5-5"}, 206, (5, 6)),
    ({"Range": "bytes=0-99999999"}, 206, (0, None)),
    ({"Range": "bytes=SIZE-"}, 416, None),
    ({"Range": "bytes=-0"}, 416, None),
    # RFC 9110 §14.2: what is not a valid range of a known unit is ignored; several may be.
    ({"Range": "bytes=9-5"}, 200, (0, None)),
    ({"Range": "bytes=-"}, 200, (0, None)),
    ({"Range": "lines=1-2"}, 200, (0, None)),
    ({"Range": "bytes=0-1,5-6"}, 200, (0, None)),
    ({"Range": "bytes=10-19", "If-Range": ETAG}, 206, (10, 20)),
    ({"Range": "bytes=10-19", "If-Range": OTHER}, 200, (0, None)),
    ({"Range": "bytes=10-19", "If-Range": f"W/{ETAG}"}, 200, (0, None)),
    ({"Range": "bytes=SIZE-", "If-Range": OTHER}, 200, (0, None)),
    ({"If-Match": ETAG}, 200, (0, None)),
    ({"If-Match": f"{OTHER}, {ETAG}"}, 200, (0, None)),
    ({"If-Match": "*"}, 200, (0, None)),
    ({"If-Match": OTHER}, 412, None),
    ({"If-Match": f"W/{ETAG}"}, 412, None),
    ({"If-Match": OTHER, "If-None-Match": ETAG}, 412, None),
    ({"If-None-Match": ETAG}, 304, None),
    ({"If-None-Match": f"W/{ETAG}"}, 304, None),
    ({"If-None-Match": "*"}, 304, None),
    ({"If-None-Match": OTHER}, 200, (0, None)),
    ({"If-None-Match": ETAG, "Range": "bytes=10-19"}, 304, None),
)


async def test_curl_goes_on_where_it_was_cut_off(
    served: Served, tmp_path: Path
) -> None:
    out, body = tmp_path / "cases.jsonl", served.body()
    out.write_bytes(body[:100])
    command = [
        "curl",
        "-sS",
        "--fail",
        "-C",
        "-",
        "-o",
        str(out),
        f"{served.url}{FILE}",
    ]
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr, out.read_bytes()) == (0, b"", body)


async def test_ranges_and_conditions_of_a_file_that_is_given_out_until_it_is_damaged(
    served: Served,
) -> None:
    for method in ("GET", "HEAD"):
        await try_conditions(served, method)
    path = served.line.last / "data/cases.jsonl"
    path.write_bytes(path.read_bytes()[:-2] + b" \n")
    answer = await served.http.get(FILE)
    assert (answer.status_code, "is damaged here" in answer.text) == (503, True)


async def try_conditions(served: Served, method: str) -> None:
    """Ask for a file under every condition."""
    body = served.body()
    etag = f'"{sha256(served.line.last / "data/cases.jsonl")}"'
    for headers, status, part in CONDITIONS:
        sent = {
            k: v.replace(ETAG, etag).replace(SIZE, str(len(body)))
            for k, v in headers.items()
        }
        answer = await served.http.request(method, FILE, headers=sent)
        if method == "HEAD" and status in (206, 416):  # it has no ranges
            status, part = 200, (0, len(body))
        assert answer.status_code == status, headers
        if part is not None:
            wanted = body[part[0] : part[1]]
            assert answer.content == (wanted if method == "GET" else b""), headers
            assert answer.headers["Content-Length"] == str(len(wanted)), headers
            assert (answer.headers["ETag"], answer.headers["Accept-Ranges"]) == (
                etag,
                "bytes",
            )
            assert "immutable" in answer.headers["Cache-Control"]
        if status == 206 and part is not None:
            first = len(body[: part[0]])
            assert (
                answer.headers["Content-Range"]
                == f"bytes {first}-{first + len(wanted) - 1}/{len(body)}"
            )
        if status == 416:
            assert answer.headers["Content-Range"] == f"bytes */{len(body)}"
        if status == 304:
            assert answer.headers["ETag"] == etag


def ask_raw(served: Served, path: str) -> tuple[int, bytes]:
    """A path sent as it is: the client that the other tests ask with would put it in order."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", served.http.base_url.port, timeout=10
    )
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


async def test_a_report_is_kept_to_its_folder(served: Served) -> None:
    report = served.settings.home / "reports" / NEW
    (report / "cases").mkdir(parents=True)
    (report / "index.html").write_text("the report")
    (report / "cases" / "a.html").write_text("a case")
    (served.settings.home / "handle.key").write_text("secret")
    (report / "link").symlink_to(served.settings.home / "handle.key")
    for path, body in (("", "the report"), ("cases/a.html", "a case")):
        answer = await served.http.get(f"/report/{NEW}/{path}")
        assert (answer.status_code, answer.text) == (200, body)
        assert "sandbox" in answer.headers["Content-Security-Policy"]
    (report / "folder").symlink_to(served.settings.home)
    os.mkfifo(report / "pipe")
    key = served.settings.home / "handle.key"
    names = [
        "link",
        "folder/handle.key",
        "pipe",
        "..%2F..%2Fhandle.key",
        "%2e%2e/%2e%2e/handle.key",
        "%00",
        "cases",
    ]
    names += [
        f"/{key}",
        quote(str(key), safe=""),
        str(key),
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "cases//a.html",
    ]
    for path in names:
        # Sent as it is: the client would put the path in order.
        status, content = await asyncio.to_thread(
            ask_raw, served, f"/report/{NEW}/{path}"
        )
        assert (status, b"secret" in content) == (404, False), path
    page = await served.http.get(f"/medlive-{NEW}/")
    assert f'href="/report/{NEW}/"' in page.text
