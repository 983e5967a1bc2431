"""Forum pages a second from bytes to thread on one core, against a target and against parsel in the same run.

Run: `python benchmarks/parsing.py [--pages N] [--rounds N]`. The page has 20 posts in the markup of
`tests/pages/sdn`, with quotations, smilies and attachments, about 36 KB. The peer reads less of it: author, time
and text of every post. CPU seconds of this process count, and both take turns in every round, so that a busy
machine slows both. Exit status 1 where the best round is slower than the target.
"""

import argparse
import hashlib
import hmac
import re
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import parsel

from medlive.sources.sites.dxy import Dxy
from medlive.sources.sites.icliniq import Icliniq
from medlive.sources.sites.medlive import Medlive
from medlive.sources.sites.sdn import Sdn
from medlive.sources.source import Page, Site

TARGET = 600
"""Pages a second on one core."""
POSTS = 20
SAMPLES = Path(__file__).resolve().parents[1] / "tests" / "pages"
THREAD_URL = (
    "https://forums.studentdoctor.net/threads/furosemide-stopped-working.77001/"
)
LIST_URL = "https://forums.studentdoctor.net/forums/internal-medicine.41/"
OTHERS: dict[str, tuple[Site, str, str]] = {
    "icliniq": (
        Icliniq(),
        "detail_2020.html",
        "https://www.icliniq.com/qa/heel-pain/my-heel-hurts-every-morning",
    ),
    "dxy": (Dxy(), "question_state.html", "https://dxy.com/question/33001"),
    "medlive": (
        Medlive(),
        "case_gbk.html",
        "https://www.medlive.cn/case/show-140001_53.html",
    ),
}
KEY = b"a key for this benchmark's hashes"
_numbers = count()


def thread_page() -> bytes:
    """One whole thread of 20 posts: the sample page's posts by turns, numbered on."""
    source = (SAMPLES / "sdn" / "thread_page1.html").read_text("utf-8")
    source = re.sub(r'<nav><div class="pageNav">.*?</nav>', "", source)
    head, *posts = re.split(r'(?=<article class="message message--post)', source)
    last, tail = posts[-1].split('</div>\n<form class="message message--quickReply', 1)
    posts[-1] = last
    made = []
    for number in range(1, POSTS + 1):
        post = posts[(number - 1) % len(posts)]
        post = re.sub(r"(?<=post-)\d+", str(6000 + number), post)
        made.append(re.sub(r"#\d\n", f"#{number}\n", post))
    return f'{head}{"".join(made)}</div>\n<form class="message message--quickReply{tail}'.encode()


def list_page() -> bytes:
    """A board of 20 threads: the sample row again and again."""
    source = (SAMPLES / "sdn" / "list.html").read_text("utf-8")
    start = source.index(
        '<div class="structItem structItem--thread js-threadListItem-77001"'
    )
    end = source.index("</div>\n<nav", start)
    row = source[start:end]
    rows = "".join(row.replace("77001", str(77001 + number)) for number in range(20))
    return (source[:start] + rows + source[end:]).encode()


def anonymise(handle: str) -> str:
    """A keyed hash, as a harvest keeps it."""
    return hmac.new(KEY, handle.encode(), hashlib.sha256).hexdigest()[:24]


def by_parsel(body: bytes) -> list[tuple[str | None, str | None, str]]:
    """Author, time and text of every post, without what they quote."""
    selector = parsel.Selector(body=body, encoding="utf-8")
    return [
        (
            anonymise(post.attrib["data-author"]),
            post.css(".message-attribution-main time::attr(datetime)").get(),
            "".join(
                post.xpath(
                    './/*[contains(@class, "message-userContent")]//*[@class="bbWrapper"]'
                    '//text()[not(ancestor::*[contains(@class, "bbCodeBlock--quote")])]'
                ).getall()
            ).strip(),
        )
        for post in selector.css("article.message--post")
    ]


def rate(work: Callable[[Page], object], page: Page, rounds: int) -> float:
    """Pages a CPU second; every turn has a body of its own, so that nothing read before is used."""
    bodies = [page.body + b"<!--%d-->" % next(_numbers) for _ in range(rounds)]
    pages = [Page(page.url, body, page.form) for body in bodies]
    started = time.process_time()
    for one in pages:
        work(one)
    return rounds / max(time.process_time() - started, 1e-9)


def _whole(site: Site, page: Page) -> object:
    """The thread of a page."""
    return site.parse_thread([page], anonymise)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pages", type=int, default=100, help="pages in one round (default 100)"
    )
    parser.add_argument(
        "--rounds", type=int, default=10, help="rounds of each (default 10)"
    )
    given = parser.parse_args()
    sdn = Sdn()
    page = Page(THREAD_URL, thread_page())
    thread = sdn.parse_thread([page], anonymise)
    theirs = by_parsel(page.body)
    equal = [
        "".join(m.text.split()) == "".join(text.split())
        for m, (_, _, text) in zip(thread.messages, theirs, strict=True)
    ]
    print(
        f"page: {len(page.body)} bytes, {len(theirs)} posts; {sum(equal)} texts equal the peer's"
    )
    assert len(thread.messages) == len(theirs) == POSTS

    ours, peers = [], []
    for _ in range(given.rounds):
        ours.append(rate(lambda p: sdn.parse_thread([p], anonymise), page, given.pages))
        peers.append(rate(lambda p: by_parsel(p.body), page, given.pages))
    best = max(ours)
    for name, rates in (("medlive", ours), ("parsel", peers)):
        print(
            f"{name}: {max(rates):.0f} pages/s in the best round, {statistics.median(rates):.0f} in the median one"
        )
    print(f"ratio: {best / max(peers):.2f} (above 1: medlive is faster)")
    print(f"target: {TARGET} pages/s, {best / TARGET:.2f} of it reached")

    board = Page(LIST_URL, list_page())
    rows = len(sdn.parse_listing(board).entries)
    print(
        f"sdn list of {rows} rows: {rate(sdn.parse_listing, board, given.pages):.0f} pages/s"
    )
    for name, (site, file, url) in OTHERS.items():
        other = Page(url, (SAMPLES / name / file).read_bytes())
        speed = rate(partial(_whole, site), other, given.pages)
        print(f"{name} {file}, {len(other.body)} bytes: {speed:.0f} pages/s")
    return 0 if best >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
