"""Pages that a site changed a little give the same thread or a typed error, never a thread with a hole."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from medlive.demo import communities as demo
from medlive.demo.samples import load_sample_threads
from medlive.sources.registry import build_site
from medlive.sources.source import IncompleteThread, LayoutError, NotAThread, Page
from medlive.threads.model import Thread

PAGES = Path(__file__).parents[2] / "pages"
SDN_URL = "https://forums.studentdoctor.net/threads/furosemide-stopped-working.77001/"
SAVED = {
    "icliniq": [
        (
            "https://www.icliniq.com/qa/heel-pain/my-heel-hurts-every-morning",
            "detail_2020.html",
        )
    ],
    "icliniq-data": [
        ("https://www.icliniq.com/qa/anemia/iron-with-tea", "detail_jsonld.html")
    ],
    "sdn": [(SDN_URL, "thread_page1.html"), (SDN_URL + "page-2", "thread_page2.html")],
    "dxy": [("https://dxy.com/question/33001", "question_state.html")],
    "dxy-markup": [("https://dxy.com/question/33001", "question_markup.html")],
    "medlive": [("https://www.medlive.cn/case/show-140001_53.html", "case.html")],
}
RENDER = {
    "icliniq": demo.icliniq_thread,
    "sdn": demo.sdn_thread_page,
    "dxy": demo.dxy_thread,
    "medlive": demo.medlive_thread,
}


def saved(name: str) -> list[Page]:
    folder = PAGES / name.partition("-")[0]
    return [Page(url, (folder / file).read_bytes()) for url, file in SAVED[name]]


def rendered(site: str) -> list[Page]:
    """A thread as the demonstration's communities show it, on one page."""
    thread = next(
        t
        for t in load_sample_threads()
        if t.site == site
        and 2 <= len(t.messages) <= demo.POSTS_PER_PAGE
        and any(m.verified for m in t.messages)
    )
    return [
        Page(
            "https://demo.example" + thread.path,
            RENDER[site](thread).encode(),
        )
    ]


CASES = [*SAVED, *(f"{site}-demo" for site in RENDER)]
MOST = [
    *SAVED,
    *(pytest.param(f"{site}-demo", marks=pytest.mark.thorough) for site in RENDER),
]


def pages_of(case: str) -> list[Page]:
    return rendered(case.partition("-")[0]) if case.endswith("-demo") else saved(case)


def read(case: str, pages: list[Page]) -> Thread | None:
    """The thread, or None for a typed error; anything else fails the test."""
    try:
        return build_site(case.partition("-")[0]).whole_thread(
            pages, lambda handle: f"h:{handle}"
        )
    except (LayoutError, NotAThread):
        return None


def bare(text: str) -> str:
    return "".join(text.split())


def seen(thread: Thread) -> list[tuple[str, str, bool, str | None]]:
    return [(bare(m.text), m.role, m.verified, m.verified_by) for m in thread.messages]


def elements(page: Page) -> Iterator[tuple[LexborHTMLParser, LexborNode]]:
    """Every element of the page's body in a tree of its own; every second one of a long page."""
    count = len(LexborHTMLParser(page.text).css("body *"))
    for place in range(0, count, 2 if count > 100 else 1):
        tree = LexborHTMLParser(page.text)
        yield tree, tree.css("body *")[place]


def changed(pages: list[Page], tree: LexborHTMLParser) -> list[Page]:
    return [Page(pages[0].url, (tree.html or "").encode()), *pages[1:]]


@pytest.mark.parametrize("case", MOST)
def test_an_extra_wrapper_around_any_element(case: str) -> None:
    pages = pages_of(case)
    whole = read(case, pages)
    assert whole is not None
    same = 0
    for tree, node in elements(pages[0]):
        around = LexborHTMLParser(f'<div class="extra">{node.html}</div>').css_first(
            "div.extra"
        )
        assert around is not None
        node.replace_with(around)
        thread = read(case, changed(pages, tree))
        same += thread is not None
        if thread is not None:
            # A wrapper may part a name from its mark: proof may be lost so, never words, and none is made up.
            assert [m[0] for m in seen(thread)] == [m[0] for m in seen(whole)], (
                node.tag,
                node.attributes,
            )
            proofs = zip(thread.messages, whole.messages, strict=True)
            assert all(
                now.verified_by in (None, then.verified_by) for now, then in proofs
            )
    assert same, "most wrappers change nothing"


@pytest.mark.parametrize("case", MOST)
def test_a_missing_element_takes_no_other_words_with_it(case: str) -> None:
    pages = pages_of(case)
    whole = read(case, pages)
    assert whole is not None
    for tree, node in elements(pages[0]):
        lost, attributes = bare(node.text()), node.attributes
        node.decompose()
        thread = read(case, changed(pages, tree))
        if thread is None:
            continue
        left = "\n".join(bare(m.text) for m in thread.messages)
        for message in whole.messages:
            text = bare(message.text)
            kept = (
                [part for part in text.split(lost) if part]
                if lost and lost in text
                else [text]
            )
            assert all(part in left for part in kept) or text in lost, (
                attributes,
                message.id,
            )
        assert sum(m.verified for m in thread.messages) <= sum(
            m.verified for m in whole.messages
        ), attributes


@pytest.mark.parametrize("case", CASES)
def test_attributes_in_another_order_and_other_quotes(case: str) -> None:
    pages = pages_of(case)
    whole = read(case, pages)
    assert whole is not None

    def turned(match: re.Match[str]) -> str:
        attributes = re.findall(r"([\w-]+)=\"([^\"]*)\"", match[2])
        quoted = "".join(
            f" {name.upper()} = '{value.replace(chr(39), '&#39;')}'"
            for name, value in attributes[::-1]
        )
        return f"<{match[1].upper()}{quoted} >" if attributes else match[0]

    turned_pages = [
        Page(
            p.url,
            re.sub(r"<(\w+)((?:\s+[\w-]+=\"[^\"]*\")+)\s*>", turned, p.text).encode(),
        )
        for p in pages
    ]
    assert turned_pages[0].body != pages[0].body
    thread = read(case, turned_pages)
    assert thread is not None
    assert seen(thread) == seen(whole)


# For each site: what happened to the page, and what must come of it: "same" or the error.
TABLE: list[tuple[str, str, str, str, object]] = [
    (
        "sdn",
        "the posts' class is renamed",
        r"message--post",
        "message--entry",
        LayoutError,
    ),
    (
        "sdn",
        "one post's class is renamed",
        r'message--post(?=[^>]*"IMprof")',
        "message--entry",
        LayoutError,
    ),
    (
        "sdn",
        "one post's body is renamed",
        r'class="bbWrapper"(?=>A 71)',
        'class="text"',
        LayoutError,
    ),
    (
        "sdn",
        "the posts' bodies are renamed",
        r'class="bbWrapper"',
        'class="text"',
        LayoutError,
    ),
    (
        "sdn",
        "the posts are no articles",
        r'<article class="message m',
        '<div class="message m',
        LayoutError,
    ),
    (
        "sdn",
        "the posts share a number",
        r'data-content="post-\d+"',
        'data-content="post-1"',
        LayoutError,
    ),
    (
        "sdn",
        "two posts run together",
        r'</article>\s*<article[^>]*"IMprof"[^>]*>',
        "",
        LayoutError,
    ),
    (
        "sdn",
        "a post has no author",
        r' data-author="IMprof"|>IMprof<',
        "><",
        LayoutError,
    ),
    ("sdn", "the handle stands in the name only", r' data-author="[^"]*"', "", "same"),
    (
        "sdn",
        "the pager's link leads nowhere",
        r'href="[^"]*page-2"',
        'href="javascript:more()"',
        LayoutError,
    ),
    ("sdn", "the pager's class is renamed", r"pageNav-jump--next", "next", "same"),
    ("sdn", "the whole pager is renamed", r"pageNav", "steps", "same"),
    ("sdn", "the title is renamed", r"p-title-value", "title", LayoutError),
    ("sdn", "the template is another", r"thread_view", "thread_preview", LayoutError),
    ("sdn", "the posts' numbers jump", r"\n#2\n", "\n#7\n", IncompleteThread),
    ("sdn", "the status field is renamed", r"current_status", "status", "unverified"),
    ("sdn", "the time is renamed", r"<time class", "<span class", "same"),
    ("icliniq", "the container is renamed", r"articleConDiv", "article", LayoutError),
    ("icliniq", "the queries are renamed", r"qContent", "query", LayoutError),
    ("icliniq", "the answers are renamed", r"answerDiv", "answer", LayoutError),
    ("icliniq", "the answers' text is renamed", r"ansExtCon", "text", LayoutError),
    ("icliniq", "the doctors' names are renamed", r"doctor-name", "name", LayoutError),
    ("icliniq", "the doctors' specialties are renamed", r"doctor-spec", "spec", "same"),
    ("dxy", "the state's turns are renamed", r"questionDialog", "dialogs", "same"),
    (
        "dxy",
        "the state has lost a text",
        r'"content":"请问[^"]*"',
        '"content":""',
        LayoutError,
    ),
    (
        "dxy",
        "the state is cut off",
        r'("disease".{0,40}).*?</script>',
        r"\1</script>",
        "same",
    ),
    ("dxy-markup", "the bubbles are renamed", r"dialog-content", "bubble", LayoutError),
    (
        "dxy-markup",
        "the doctor's side is renamed",
        r"theme-white",
        "theme-blue",
        LayoutError,
    ),
    ("dxy-markup", "the doctor is renamed", r"doctor-info", "doctor", LayoutError),
    ("medlive", "the body is renamed", r"content_body", "body", LayoutError),
    ("medlive", "the title is renamed", r"title_cms", "title", LayoutError),
    ("medlive", "the comments are renamed", r"inc_c", "comments", LayoutError),
    (
        "medlive",
        "the count of comments is another",
        r'data-count="\d+"',
        'data-count="9"',
        LayoutError,
    ),
    ("medlive", "the mark is renamed", r"认证医师", "会员", "unverified"),
    ("medlive", "the author is renamed", r"color_888", "author", LayoutError),
]


@pytest.mark.parametrize(
    ("case", "what", "pattern", "by", "expected"),
    TABLE,
    ids=[f"{r[0]}: {r[1]}" for r in TABLE],
)
def test_mutation_table(
    case: str, what: str, pattern: str, by: str, expected: object
) -> None:
    pages = saved(case)
    site = build_site(case.partition("-")[0])
    whole = site.parse_thread(pages, str)
    mutated = [
        Page(p.url, re.sub(pattern, by, p.text, flags=re.S).encode()) for p in pages
    ]
    assert mutated[0].body != pages[0].body, "the mutation must hit"
    if isinstance(expected, type):
        with pytest.raises(expected):
            site.parse_thread(mutated, str)
        return
    thread = site.parse_thread(mutated, str)
    assert [bare(m.text) for m in thread.messages] == [
        bare(m.text) for m in whole.messages
    ]
    assert [m.verified for m in thread.messages] == [
        m.verified and expected == "same" for m in whole.messages
    ]


def test_a_pager_of_other_classes_still_leads_on() -> None:
    first = saved("sdn")[0]
    body = first.body.replace(b"pageNav", b"steps")
    assert body != first.body
    site = build_site("sdn")
    assert site.next_page(Page(first.url, body)) == SDN_URL + "page-2"
    elsewhere = body.replace(
        b"furosemide-stopped-working.77001/page-2", b"another-thread.5/page-2"
    )
    assert site.next_page(Page(first.url, elsewhere)) is None
    quoted = elsewhere.replace(
        b"Check adherence", b'<a href="/threads/x.77001/page-2">there</a>'
    )
    assert site.next_page(Page(first.url, quoted)) is None, (
        "what a post links to is no pager"
    )
