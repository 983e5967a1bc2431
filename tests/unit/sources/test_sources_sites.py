"""Each site's pages give the thread that a reader sees, and a damaged page gives it too or a typed error."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from medlive.sources.registry import SITES, build_site
from medlive.sources.source import (
    IncompleteThread,
    LayoutError,
    NotAThread,
    Page,
    PageRequest,
)
from medlive.threads.model import Thread
from tests.support.site_pages import PAGES, SAMPLES, URLS, Sample

SDN_URL, ICLINIQ_URL = URLS["sdn"], URLS["icliniq"]
IDS = [f"{s.site}-{s.files[0].removesuffix('.html')}" for s in SAMPLES]


def read(site: str, pages: list[Page]) -> Thread:
    return build_site(site).whole_thread(pages, lambda handle: f"h:{handle}")


def essence(thread: Thread) -> list[tuple[str, str, str, bool]]:
    return [(m.id, m.author, m.role, m.verified) for m in thread.messages]


def said(thread: Thread) -> list[tuple[str, str]]:
    return [(m.text, m.role) for m in thread.messages]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_roles_and_verified_marks_are_those_that_the_page_shows(sample: Sample) -> None:
    thread = read(sample.site, sample.pages())
    letters = {"patient": "p", "physician": "V", "other": "o"}
    assert "".join(letters[m.role] for m in thread.messages) == sample.roles
    assert [m.verified for m in thread.messages] == [
        letter == "V" for letter in sample.roles
    ]
    assert [m.id for m in thread.messages] == [
        f"m{n}" for n in range(len(sample.roles))
    ]
    assert all(m.author.startswith("h:") for m in thread.messages), (
        "every handle goes through the anonymiser"
    )
    assert [m.verified_by for m in thread.messages if m.verified] == list(sample.proofs)
    assert not any(m.verified_by for m in thread.messages if not m.verified), (
        "no proof without a verified author"
    )
    assert all(
        m.posted_at is None or m.posted_at.tzinfo is UTC for m in thread.messages
    )


def test_icliniq_keeps_the_sites_phrases_and_drops_the_label() -> None:
    thread = read("icliniq", SAMPLES[0].pages())
    assert thread.thread_id == "heel-pain/my-heel-hurts-every-morning"
    assert thread.title == "My heel hurts every morning. What should I do?"
    assert (thread.language, thread.tags) == ("en", ("heel pain",))
    assert thread.posted_at == datetime(2018, 7, 6, tzinfo=UTC)
    first, answer, follow_up, _ = thread.messages
    assert first.text == (
        "Hello doctor,\n\nI am 44 and for 3 weeks the first steps of the day hurt under my left heel.\n"
        "It eases after ten minutes of walking. I stand all day at work & took ibuprofen 400 mg twice."
    )
    assert first.media == ("image",)
    assert answer.text.startswith(
        "Hello, Welcome to icliniq.com.\n\nPain with the first steps"
    )
    assert "\nIce for 10 minutes in the evening." in answer.text
    assert answer.author == "h:Dr. Nila Sample"
    assert answer.media == (), "the doctor's portrait is no medium of the answer"
    assert follow_up.text == "Thank you doctor. May I go on running meanwhile?"


def test_icliniq_reads_a_page_that_only_states_its_question_as_data() -> None:
    thread = read("icliniq", SAMPLES[1].pages())
    assert (
        thread.messages[0].text
        == "Hi doctor, my ferritin is 9 ng/mL.\n\nMay I take the tablet with tea?"
    )
    assert thread.posted_at == datetime(2024, 2, 11, 4, 0, tzinfo=UTC)
    assert thread.messages[1].author == "h:Dr. Omar Sample"


def test_icliniq_takes_no_excerpt_for_a_message() -> None:
    page = SAMPLES[1].pages()[0]
    cut = Page(
        page.url,
        page.body.replace(b"as tannins bind iron.", "as tannins…".encode()),
    )
    with pytest.raises(LayoutError):
        read("icliniq", [cut])


def test_sdn_drops_quotes_signatures_and_smilies() -> None:
    thread = read("sdn", SAMPLES[2].pages())
    assert (thread.thread_id, thread.title) == ("77001", "Furosemide stopped working")
    assert thread.url == SDN_URL
    assert thread.tags == ("Internal Medicine", "Case")
    assert thread.posted_at == datetime(2025, 3, 2, 3, 10, tzinfo=UTC)
    opening, advice, *_ = thread.messages
    assert opening.media == ()
    assert advice.text == (
        "Check adherence and salt first.\n"
        "Then give metolazone 2.5 mg once, 30 minutes before the furosemide, and recheck potassium the next day."
    )
    assert advice.media == ("image",)
    assert not any("signature" in m.text for m in thread.messages)


def test_sdn_counts_the_statuses_that_the_settings_name() -> None:
    pages = SAMPLES[2].pages()
    only_attendings = build_site(
        "sdn", {"verified_labels": ["Attending"]}
    ).parse_thread(pages, str)
    assert [m.verified for m in only_attendings.messages] == [
        False,
        True,
        False,
        False,
        False,
    ]
    aspiring = Page(
        pages[1].url,
        pages[1].body.replace(b"<li>Fellow</li>", b"<li>Fellowship Applicant</li>"),
    )
    assert not read("sdn", [pages[0], aspiring]).messages[4].verified


def test_sdn_wants_every_page_of_a_thread() -> None:
    first, second = SAMPLES[2].pages()
    with pytest.raises(IncompleteThread):
        read("sdn", [first])
    with pytest.raises(IncompleteThread, match="is page 2"):
        read("sdn", [second])
    assert build_site("sdn").next_page(first) == SDN_URL + "page-2"
    assert build_site("sdn").next_page(second) is None


def test_sdn_notices_a_post_that_is_missing() -> None:
    first, second = SAMPLES[2].pages()
    start = first.body.index(
        b'<article class="message message--post js-post js-inlineModContainer" data-author="IMprof"'
    )
    end = first.body.index(b'<article class="message message--post', start + 1)
    with pytest.raises(IncompleteThread):
        read("sdn", [Page(first.url, first.body[:start] + first.body[end:]), second])


def test_sdn_reads_the_solution_of_a_question_once() -> None:
    first, second = SAMPLES[2].pages()
    post = re.search(
        rb'<article class="message message--post.*?</article>\s*</div>.*?</article>',
        first.body,
        re.S,
    )
    repeated = b'<div id="js-solutionHighlightBlock">' + post[0] + b"</div>"
    body = first.body.replace(
        b'<div class="block-body', repeated + b'<div class="block-body'
    )
    assert said(read("sdn", [Page(first.url, body), second])) == said(
        read("sdn", [first, second])
    )


def test_dxy_reads_state_and_markup_alike() -> None:
    by_state, by_markup = (
        read("dxy", SAMPLES[3].pages()),
        read("dxy", SAMPLES[4].pages()),
    )
    assert said(by_state) == said(by_markup)
    assert essence(by_state) == essence(by_markup)
    assert by_state.title == by_markup.title == "早上血压偏高，需要加药吗？"
    assert by_state.tags == ("高血压", "心血管内科")
    assert by_state.posted_at == datetime(2025, 3, 1, 0, 5, tzinfo=UTC)
    assert by_markup.posted_at == datetime(2025, 3, 1, tzinfo=UTC)
    assert by_state.messages[1].posted_at == datetime(2025, 3, 1, 2, 10, tzinfo=UTC)
    assert by_state.messages[0].media == ("image",)
    assert (
        by_state.messages[0].text
        == "我父亲68岁，早上血压160/95mmHg，\n\n正在吃氨氯地平5mg，每天一次。"
    )


def test_dxy_doctor_without_a_hospital_is_not_verified() -> None:
    page = SAMPLES[3].pages()[0]
    body = page.body.replace("样例市人民医院".encode(), b"")
    assert [m.role for m in read("dxy", [Page(page.url, body)]).messages] == [
        "patient",
        "other",
        "patient",
        "other",
    ]


def test_dxy_state_with_a_turn_less_than_the_page_is_refused() -> None:
    page = SAMPLES[3].pages()[0]
    body = re.sub(rb',\{"type":2,"content":"[^"]*"\}', b"", page.body)
    assert body != page.body
    with pytest.raises(LayoutError):
        read("dxy", [Page(page.url, body)])


def test_dxy_without_a_doctor_is_no_thread() -> None:
    page = SAMPLES[3].pages()[0]
    with pytest.raises(NotAThread):
        read("dxy", [Page(page.url, re.sub(rb'"type":[12]', b'"type":0', page.body))])


def test_medlive_marks_only_whom_the_page_marks() -> None:
    thread = read("medlive", SAMPLES[5].pages())
    assert said(thread) == said(read("medlive", SAMPLES[6].pages())), (
        "GBK bytes give the same thread"
    )
    assert thread.thread_id == "show-140001_53"
    assert thread.tags == ("感染科",)
    assert thread.posted_at == datetime(2025, 3, 1, 0, 0, tzinfo=UTC)
    assert thread.messages[0].media == ("image",)
    assert thread.messages[3].author == thread.messages[0].author == "h:夜班的灯"
    assert thread.messages[4].posted_at == datetime(2025, 3, 2, 2, 30, tzinfo=UTC)


def test_medlive_mark_counts_for_the_nearest_person_only() -> None:
    page = SAMPLES[5].pages()[0]
    unmarked = page.body.replace(
        '<i class="icon_rz" title="认证医师"></i>'.encode(), b""
    )
    thread = read("medlive", [Page(page.url, unmarked)])
    assert not any(m.verified for m in thread.messages)
    claimed = page.body.replace("学习了".encode(), "我是认证医师，学习了".encode())
    assert not read("medlive", [Page(page.url, claimed)]).messages[4].verified, (
        "words in a text prove nothing"
    )


def test_medlive_comment_outside_the_comments_is_refused() -> None:
    page = SAMPLES[5].pages()[0]
    moved = '<dl><dt></dt><dd><a href="/user/9">九</a><span>2025-03-03 08:00</span></dd><dd>同意</dd></dl>'
    body = page.body.replace(
        b'<div class="footer">',
        f'<section>{moved}</section><div class="footer">'.encode(),
    )
    with pytest.raises(LayoutError):
        read("medlive", [Page(page.url, body)])


def test_medlive_footers_are_no_comments() -> None:
    page = SAMPLES[5].pages()[0]
    body = page.body.replace(
        "版权所有".encode(), "版权所有，未经书面许可不得转载本站的任何内容。".encode()
    )
    assert len(read("medlive", [Page(page.url, body)]).messages) == 5


def test_medlive_mark_belongs_to_the_link_that_it_follows() -> None:
    page = SAMPLES[5].pages()[0]
    other = '<a href="/user/3">路过的人</a><a href="/user/8">被回复的人</a><i title="认证医师"></i>'
    body = page.body.replace('<a href="/user/3">路过的人</a>'.encode(), other.encode())
    assert not read("medlive", [Page(page.url, body)]).messages[4].verified


def test_medlive_article_without_discussion_is_no_thread() -> None:
    page = SAMPLES[5].pages()[0]
    body = re.sub(
        rb'<div class="case_result">.*?</div>\s*<div class="inc_c".*?</div><div class="footer">',
        b'<div class="footer">',
        page.body,
        flags=re.S,
    )
    assert body != page.body
    with pytest.raises(NotAThread):
        read("medlive", [Page(page.url, body)])


def listing_page(site: str, name: str, url: str) -> Page:
    return Page(url, (PAGES / site / name).read_bytes())


@pytest.mark.parametrize("era", ["list_2020.html", "list_2019.html", "list_2018.html"])
def test_icliniq_lists_of_every_era(era: str) -> None:
    listing = build_site("icliniq").parse_listing(
        listing_page("icliniq", era, "https://www.icliniq.com/qa?page=1")
    )
    assert listing.entries[0].url == ICLINIQ_URL
    if era == "list_2020.html":
        assert [e.thread_id for e in listing.entries][1:] == [
            "anemia/can-i-take-iron-with-tea"
        ]
        assert listing.next_page == PageRequest("https://www.icliniq.com/qa?page=2")
    else:
        assert (len(listing.entries), listing.next_page) == (1, None)


def test_sdn_takes_no_board_that_lost_its_rows_for_an_empty_one() -> None:
    url = "https://forums.studentdoctor.net/forums/internal-medicine.41/"
    body = listing_page("sdn", "list.html", url).body
    site = build_site("sdn")
    renamed = body.replace(b"structItem", b"listEntry")
    with pytest.raises(LayoutError):
        site.parse_listing(Page(url, renamed))
    inside = re.sub(rb"pageNav|page-\d+", b"p", renamed).replace(
        b"<body>", b'<body><div class="p-body-content">'
    )
    with pytest.raises(LayoutError):
        site.parse_listing(Page(url, inside))
    empty = b'<html id="XF" data-template="forum_view"><body><div class="p-body-content">None.</div></body></html>'
    assert site.parse_listing(Page(url, empty)).entries == ()


def test_sdn_list_has_opening_dates_and_no_labels() -> None:
    url = "https://forums.studentdoctor.net/forums/internal-medicine.41/?order=last_post_date&direction=desc"
    listing = build_site("sdn").parse_listing(listing_page("sdn", "list.html", url))
    assert [e.thread_id for e in listing.entries] == ["9", "77001"]
    assert listing.entries[1].posted_at == datetime(2025, 3, 2, 3, 10, tzinfo=UTC)
    assert [e.last_post_at for e in listing.entries] == [
        None,
        datetime(2025, 3, 3, 12, 0, tzinfo=UTC),
    ]
    assert listing.next_page.url.endswith(
        "/forums/internal-medicine.41/page-2?order=last_post_date&direction=desc"
    )


def test_dxy_list() -> None:
    listing = build_site("dxy").parse_listing(
        listing_page("dxy", "list.html", "https://dxy.com/questions/neike?page_index=1")
    )
    assert [e.thread_id for e in listing.entries] == ["33001", "33002"]
    assert listing.next_page == PageRequest(
        "https://dxy.com/questions/neike?page_index=2"
    )


def test_medlive_list_repeats_the_front_pages_token() -> None:
    site = build_site("medlive")
    (start,) = site.listing_requests()
    front = site.parse_listing(listing_page("medlive", "front.html", start.url))
    assert front.entries == ()
    assert front.next_page == PageRequest(
        "https://www.medlive.cn/new/articlelist",
        (("branch", "case"), ("page", "1"), ("size", "20"), ("_token", "tok&1")),
    )
    body = (PAGES / "medlive" / "articlelist.json").read_bytes()
    page = Page(front.next_page.url, body, front.next_page.form)
    listing = site.parse_listing(page)
    assert [e.thread_id for e in listing.entries] == [
        "show-140001_53",
        "show-140002_53",
    ]
    assert [e.posted_at for e in listing.entries] == [
        datetime(2025, 3, 1, tzinfo=UTC),
        datetime(2025, 2, 28, tzinfo=UTC),
    ]
    assert listing.next_page is None, "fewer rows than asked for are the last"
    row = '{"title": "又一例", "url": "/case/show-9_9.html", "inputtime": null}'
    full = f'{{"data": {{"data": [{",".join([row] * 20)}]}}}}'.encode()
    following = site.parse_listing(Page(page.url, full, page.form)).next_page
    assert following is not None
    assert dict(following.form or ())["page"] == "2"


@pytest.mark.parametrize("name", sorted(SITES))
@pytest.mark.parametrize(
    "body",
    [b"", b"<html></html>", b"\x00\xff\xfe", b"{}", b"<html><p>Log in to read</html>"],
)
def test_a_page_of_something_else_is_a_layout_error(name: str, body: bytes) -> None:
    site = build_site(name)
    with pytest.raises(LayoutError):
        site.parse_thread([Page(URLS[name], body)], str)
    with pytest.raises(LayoutError):
        site.parse_listing(
            Page(URLS[name], body, form=() if name == "medlive" else None)
        )


def outcome(sample: Sample, pages: list[Page]) -> Thread | None:
    """The thread, or None for a typed error; anything else fails the test."""
    try:
        return read(sample.site, pages)
    except (LayoutError, NotAThread):
        return None


def class_renames(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The page with each class renamed: everywhere, and at its last place alone."""
    names = sorted(
        {
            name
            for value in re.findall(rb'class="([^"]*)"', body)
            for name in value.split()
        }
    )
    for name in names:
        places = list(
            re.finditer(
                rb'class="[^"]*?(?<![\w-])(' + re.escape(name) + rb")(?![\w-])", body
            )
        )
        yield (
            f"{name.decode()} everywhere",
            re.sub(
                rb'(class="[^"]*?(?<![\w-]))' + re.escape(name) + rb"(?![\w-])",
                rb"\1zz",
                body,
            ),
        )
        if len(places) > 1:
            start, end = places[-1].span(1)
            yield f"the last {name.decode()}", body[:start] + b"zz" + body[end:]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_renamed_class_never_gives_half_a_thread(sample: Sample) -> None:
    pages = sample.pages()
    whole = said(read(sample.site, pages))
    for index, page in enumerate(pages):
        for what, body in class_renames(page.body):
            thread = outcome(
                sample,
                [
                    *pages[:index],
                    Page(page.url, body),
                    *pages[index + 1 :],
                ],
            )
            if thread is None:
                continue
            texts = [text for text, _ in said(thread)]
            # Lost decoration may let a quotation or an attribute through, but no message is missing or cut.
            assert len(texts) == len(whole), what
            assert all(
                kept in got for (kept, _), got in zip(whole, texts, strict=True)
            ), what
            assert all(
                not got.verified or role == "physician"
                for got, (_, role) in zip(thread.messages, whole, strict=True)
            ), f"{what}: a mark appeared that the page does not show"


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_page_cut_anywhere_is_refused(sample: Sample) -> None:
    pages = sample.pages()
    last = pages[-1]
    end = last.body.rindex(b"</html")
    for at in range(0, end + 1, max(1, end // 50)):
        with pytest.raises((LayoutError, NotAThread)):
            read(
                sample.site,
                [*pages[:-1], Page(last.url, last.body[:at])],
            )


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_a_script_cut_anywhere_gives_the_thread_or_an_error(sample: Sample) -> None:
    pages = sample.pages()
    whole = said(read(sample.site, pages))
    for script in re.finditer(rb"(<script[^>]*>)(.*?)(</script>)", pages[0].body, re.S):
        start, end = script.span(2)
        for at in range(start, end, max(1, (end - start) // 20)):
            body = pages[0].body[:at] + pages[0].body[end:]
            thread = outcome(sample, [Page(pages[0].url, body), *pages[1:]])
            assert thread is None or said(thread) == whole


def test_a_message_without_words_of_proof_has_the_content_it_always_had() -> None:
    thread = read("sdn", SAMPLES[2].pages())
    told = [message.get("verified_by") for message in thread.content()["messages"]]
    assert told == [None, "Attending Physician", None, None, "Fellow"]
    bare = replace(
        thread, messages=tuple(replace(m, verified_by=None) for m in thread.messages)
    )
    assert not any("verified_by" in message for message in bare.content()["messages"])
    assert bare.digest != thread.digest
