"""Every real XenForo and QAPage page in `../shared/realdata/pages`: what stands there and what is read of it.

Run: `python benchmarks/xenforo_pages.py [--data FOLDER]`. The posts and rows that a page should give are counted
by lxml on the raw markup, without any part of medlive; the text is compared word by word with the hand-checked
main text beside each page. Exit status 1 where a count differs or a page of another skin is not refused.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lxml.html

from medlive.sources.reading import discussions, parse
from medlive.sources.sites.sdn import Sdn, read_page
from medlive.sources.source import LayoutError, Page

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "realdata" / "pages"


@dataclass(frozen=True, slots=True)
class Line:
    """One page of the table."""

    name: str
    kind: str
    """"thread", "list", "other skin" (XenForo without standard posts) or "qapage"."""
    expected: int
    found: int | None
    """None where the page was refused with a layout error."""
    recall: float | None = None
    """The share of the hand-checked words that were read, authors, dates and quotations counted as read."""
    precision: float | None = None
    """The share of the words read that are hand-checked ones."""

    @property
    def right(self) -> bool:
        """Whether as many were found as stand there, or the page was refused as it must be."""
        return self.found == (None if self.kind == "other skin" else self.expected)


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def counted(body: bytes) -> tuple[int, int]:
    """The standard posts and the thread rows of a page, by XPath over lxml's tree."""
    tree = lxml.html.document_fromstring(
        body.decode("utf-8", "replace").encode(),
        parser=lxml.html.HTMLParser(encoding="utf-8"),
    )

    def has(name: str) -> str:
        return f'contains(concat(" ", normalize-space(@class), " "), " {name} ")'

    old = len(tree.xpath(f"//ol[{has('messageList')}]/li[{has('message')}]"))
    posts = tree.xpath(
        f'//article[{has("message--post")}][not(ancestor::*[contains(@id, "solutionHighlight")])]'
    )
    rows = tree.xpath(f"//*[{has('structItem--thread')}]")
    return len(posts) + old, len(rows)


def xenforo(name: str, page: Page, truth: dict[str, Any]) -> Line:
    posts, rows = counted(page.body)
    if not posts and rows and "/forums/" in page.url:
        listing = Sdn().parse_listing(page)
        return Line(name, "list", rows, len(listing.entries))
    try:
        shown = read_page(page)
    except LayoutError:
        return Line(name, "thread" if posts else "other skin", posts, None)
    posts_shown = [post for _, post in shown.posts.values()]
    body = words("\n".join(post.text for post in posts_shown))
    # The hand-checked text often holds each post's author, its date and what it quotes, which are left out of
    # messages on purpose.
    around = [
        f"{post.handle} {post.posted_at:%b %d, %Y %B %-d}"
        for post in posts_shown
        if post.posted_at
    ]
    around += [
        quote.text(separator=" ") for quote in parse(page).css(".bbCodeBlock--quote")
    ]
    main = words(truth["main_content"])
    recall = (main & (body + words("\n".join(around)))).total() / main.total()
    precision = (main & body).total() / max(1, body.total())
    return Line(
        name,
        "thread" if posts else "other skin",
        posts,
        len(shown.posts),
        recall,
        precision,
    )


def qapage(name: str, page: Page, truth: dict[str, Any]) -> Line:
    """A page's one stated question: its text against the hand-checked one, which holds the answers too."""
    stated = len(re.findall(rb'"@type"\s*:\s*"Question"', page.body)) or len(
        re.findall(rb'itemtype="https?://schema.org/Question"', page.body)
    )
    found = [
        d for d in discussions(parse(page)) if d.kind == "Question" and d.opening.text
    ]
    text = words("\n".join(p.text for d in found for p in (d.opening, *d.replies)))
    main = words(truth["main_content"])
    overlap = (text & main).total()
    return Line(
        name,
        "qapage",
        stated,
        len(found),
        overlap / main.total(),
        overlap / max(1, text.total()),
    )


def table(data: Path = REAL_DATA) -> list[Line]:
    """Every page of both folders in the order of their names."""
    lines = []
    for folder, judge in (("xenforo", xenforo), ("qapage", qapage)):
        for path in sorted((data / folder).glob("*.html")):
            stated = json.loads(
                path.with_name(path.stem + ".gt.json").read_text("utf-8")
            )
            truth = stated["ground_truth"]
            truth = ast.literal_eval(truth) if isinstance(truth, str) else truth
            lines.append(
                judge(
                    path.stem,
                    Page(stated["url"], path.read_bytes()),
                    truth,
                )
            )
    return lines


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=REAL_DATA, help="folder with xenforo/ and qapage/"
    )
    data = parser.parse_args().data
    if not (data / "xenforo").is_dir():
        print(
            f"skipped: {data} holds no xenforo/ folder; the real pages are not part of this project"
        )
        return 0
    lines = table(data)
    print(
        f"{'page':40} {'kind':10} {'expected':>8} {'found':>13} {'recall':>7} {'precision':>9}"
    )
    for line in lines:
        found = "layout error" if line.found is None else str(line.found)
        mark = "" if line.right else "  WRONG"
        print(
            f"{line.name:40} {line.kind:10} {line.expected:8} {found:>13} {shown(line.recall):>7} "
            f"{shown(line.precision):>9}{mark}"
        )
    for kind in ("thread", "list", "other skin", "qapage"):
        of_kind = [line for line in lines if line.kind == kind]
        print(
            f"{kind}: {sum(line.right for line in of_kind)} of {len(of_kind)} as they should be"
        )
    for what in ("recall", "precision"):
        values = [
            getattr(line, what)
            for line in lines
            if line.kind == "thread" and line.found
        ]
        print(f"threads: mean {what} {sum(values) / len(values):.3f}")
    return 0 if all(line.right for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
