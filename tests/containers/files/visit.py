"""A visitor in a container of its own: what its browser would meet at the names of deploy/nginx.conf.

visit.py tls|files|rooms|sign-in … → one line of JSON
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import httpx2

PUBLIC = "https://medlive.example"
ROOMS = "https://rooms.medlive.example"
CERTIFICATE = "/certificate/fullchain.pem"


def tls(browser: httpx2.Client) -> dict[str, Any]:
    """The way from HTTP to HTTPS, and the headers of a page."""
    plain = browser.get("http://medlive.example/")
    page = browser.get(f"{PUBLIC}/")
    return {
        "plain": [plain.status_code, plain.headers.get("location")],
        "page": page.status_code,
        "protocol": page.http_version,
        "hsts": page.headers.get("strict-transport-security"),
        "policies": len(page.headers.get_list("content-security-policy")),
        "other_name": browser.get(
            f"{PUBLIC}/", headers={"Host": "elsewhere.example"}
        ).status_code,
    }


def files(browser: httpx2.Client, version: str) -> dict[str, Any]:
    """A file whole, in part, and known already."""
    place = f"{PUBLIC}/medlive-{version}/manifest.json"
    whole = browser.get(place)
    tag = whole.headers.get("etag", "")
    part = browser.get(place, headers={"Range": "bytes=5-14", "If-Range": tag})
    beyond = browser.get(place, headers={"Range": "bytes=99999999-"})
    known = browser.get(place, headers={"If-None-Match": tag})
    return {
        "whole": whole.status_code,
        "tag": tag,
        "part": [part.status_code, part.headers.get("content-range")],
        "is_part": part.content == whole.content[5:15],
        "beyond": beyond.status_code,
        "known": [known.status_code, len(known.content)],
    }


def rooms(browser: httpx2.Client) -> dict[str, Any]:
    """The rooms at their own name, at the downloads', and as a page's script asks for them."""
    page = browser.get(f"{ROOMS}/audit")
    script = browser.get(f"{ROOMS}/audit", headers={"HX-Request": "true"})
    form = browser.get(f"{ROOMS}/sign-in")
    return {
        "elsewhere": browser.get(f"{PUBLIC}/audit").status_code,
        "page": [page.status_code, page.headers.get("location")],
        "script": script.status_code,
        "form": form.status_code,
        "cookie": form.headers.get("set-cookie", ""),
    }


def sign_in(browser: httpx2.Client, name: str, times: str) -> dict[str, Any]:
    """Try to sign in with a wrong password, each time under another forged address; the last answer."""
    found = re.search(
        r'name="csrf" value="([^"]+)"', browser.get(f"{ROOMS}/sign-in").text
    )
    token = found[1] if found else ""
    statuses = []
    for number in range(int(times)):
        answer = browser.post(
            f"{ROOMS}/sign-in",
            data={"name": name, "password": "wrong by a word", "csrf": token},
            headers={
                "Origin": ROOMS,
                "X-Forwarded-For": f"203.0.113.{number}",
            },
        )
        statuses.append(answer.status_code)
    return {"statuses": statuses}


VISITS: dict[str, Callable[..., dict[str, Any]]] = {
    "tls": tls,
    "files": files,
    "rooms": rooms,
    "sign-in": sign_in,
}

if __name__ == "__main__":
    with httpx2.Client(verify=CERTIFICATE, timeout=30) as client:
        sys.stdout.write(json.dumps(VISITS[sys.argv[1]](client, *sys.argv[2:])))
