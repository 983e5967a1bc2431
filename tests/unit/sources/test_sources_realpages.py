"""The XenForo adapter and the schema.org reader on real saved pages that nobody on this project wrote."""

import ast
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from medlive.sources.reading import discussions, parse
from medlive.sources.registry import build_site
from medlive.sources.sites.sdn import read_page
from medlive.sources.source import IncompleteThread, LayoutError, Page

REAL = Path(__file__).parents[4] / "shared" / "realdata" / "pages"
pytestmark = pytest.mark.skipif(
    not REAL.is_dir(), reason="../shared/realdata is absent: no real pages to read"
)


def saved(folder: str) -> list[tuple[Page, dict[str, Any]]]:
    found = []
    for path in sorted((REAL / folder).glob("*.html")):
        stated = json.loads(path.with_name(path.stem + ".gt.json").read_text("utf-8"))
        truth = stated["ground_truth"]
        truth = ast.literal_eval(truth) if isinstance(truth, str) else truth
        found.append((Page(stated["url"], path.read_bytes()), truth))
    return found


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text.lower()))


def marked_posts(page: Page) -> int:
    """The posts that a page marks, counted on its bytes without any parser."""
    return len(
        set(re.findall(r'<article[^>]*message--post[^>]*id="js-post-(\d+)"', page.text))
    )


def test_the_table_of_every_real_page_holds() -> None:
    place = Path(__file__).parents[3] / "benchmarks" / "xenforo_pages.py"
    pytest.importorskip(
        "lxml", reason="lxml, which counts the posts independently, is not installed"
    )
    spec = importlib.util.spec_from_file_location("xenforo_pages", place)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["xenforo_pages"] = module
    spec.loader.exec_module(module)
    lines = module.table(REAL)
    assert [line.name for line in lines if not line.right] == []
    kinds = Counter(line.kind for line in lines)
    assert kinds == {"thread": 18, "list": 1, "other skin": 4, "qapage": 6}
    threads = [line for line in lines if line.kind == "thread"]
    assert min(line.recall for line in threads) > 0.98
    assert sum(line.recall for line in threads) / len(threads) > 0.995
    assert sum(line.precision for line in threads) / len(threads) > 0.97


def test_every_standard_xenforo_post_has_its_author_and_time() -> None:
    refused = 0
    for page, truth in saved("xenforo"):
        expected = marked_posts(page)
        if not expected:
            with pytest.raises(LayoutError):
                read_page(page)
            refused += 1
            continue
        posts = [post for _, post in read_page(page).posts.values()]
        assert len(posts) == expected, page.url
        assert all(post.posted_at is not None and post.handle for post in posts), (
            page.url
        )
        if truth["author"] and "/page-" not in page.url:
            assert posts[0].handle == truth["author"], page.url
            assert posts[0].posted_at is not None
            stated = truth["publish_date"]
            assert (
                abs(
                    (
                        posts[0].posted_at.date()
                        - posts[0].posted_at.date().fromisoformat(stated)
                    ).days
                )
                <= 1
            )
    assert refused == 5


def test_whole_real_threads_and_parts_of_them() -> None:
    site = build_site("sdn")
    whole, parts = 0, 0
    for page, truth in saved("xenforo"):
        if not marked_posts(page):
            continue
        try:
            thread = site.whole_thread([page], lambda handle: "h")
        except IncompleteThread:
            assert "/page-" in page.url or site.next_page(page) is not None
            parts += 1
            continue
        whole += 1
        assert thread.thread_id in page.url
        assert words(thread.title) <= words(truth["title"]) + words("question"), (
            page.url
        )
        assert len(thread.messages) == marked_posts(page)
        assert not any(message.verified for message in thread.messages), (
            "no page shows a physician's status"
        )
    assert (whole, parts) == (10, 8)


def test_a_real_board_lists_its_threads() -> None:
    site = build_site("sdn")
    page = next(p for p, _ in saved("xenforo") if "/forums/beginners" in p.url)
    listing = site.parse_listing(page)
    assert len(listing.entries) == len(
        re.findall(r'class="structItem structItem--thread', page.text)
    )
    assert all(e.posted_at and e.thread_id in e.url for e in listing.entries)
    assert listing.next_page.url.endswith("page-2")


def test_structured_data_of_real_questions() -> None:
    pages = saved("qapage")
    assert pages
    for page, truth in pages:
        (found,) = [d for d in discussions(parse(page)) if d.kind == "Question"]
        assert found.title == truth["title"], page.url
        assert words(found.opening.author.replace("_", " ")) == words(
            truth["author"].replace("_", " ")
        )
        assert found.opening.posted_at.date().isoformat() == truth["publish_date"]
        stated = words(found.opening.text)
        overlap = (stated & words(truth["main_content"])).total() / stated.total()
        print(
            f"{page.url}: {len(found.replies)} replies, excerpt {found.opening.excerpt}, overlap {overlap:.3f}"
        )
        assert overlap > 0.9, page.url
        if (
            len(found.opening.text) < 0.5 * len(truth["main_content"])
            and not found.replies
        ):
            assert not found.whole, (
                "a cut-off question without answers is no whole discussion"
            )
    assert any(d.opening.excerpt for p, _ in pages for d in discussions(parse(p)))


@pytest.mark.thorough
def test_structured_data_of_real_forum_postings() -> None:
    stated = [(p, t, d) for p, t in saved("xenforo") for d in discussions(parse(p))]
    postings = [(p, t, d) for p, t, d in stated if d.kind == "DiscussionForumPosting"]
    assert postings
    for page, truth, found in postings:
        assert words(found.title) <= words(truth["title"]) + words(page.text), page.url
        assert found.opening.text
