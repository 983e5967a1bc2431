"""The sample communities answer over real HTTP as well-behaved sites do."""

import json
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio
from selectolax.lexbor import LexborHTMLParser

from medlive.demo.communities import Communities, serve_communities
from medlive.demo.samples import SITES, SampleThread, load_sample_threads

pytestmark = pytest.mark.asyncio(loop_scope="module")

THREADS = load_sample_threads()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def communities() -> AsyncIterator[Communities]:
    async with serve_communities(THREADS) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as client:
        yield client


async def _text(client: httpx2.AsyncClient, url: str) -> str:
    response = await client.get(url)
    assert response.status_code == 200, url
    return response.text


async def _shown(client: httpx2.AsyncClient, base: str, thread: SampleThread) -> str:
    """All that the thread's pages show a visitor, white space removed."""
    pages = []
    url: str | None = base + thread.path
    while url is not None:
        response = await client.get(url)
        assert response.status_code == 200
        tree = LexborHTMLParser(response.content.decode(thread.charset))
        pages.append(tree.text())
        following = tree.css_first("a.pageNav-jump--next")
        url = (
            base + (following.attributes["href"] or "")
            if following is not None
            else None
        )
    return "".join("".join(pages).split())


async def test_lists_lead_to_every_thread_in_pages_of_ten(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    found: list[str] = []
    base = communities["icliniq"].base_url
    url: str | None = f"{base}/qa?page=1"
    while url is not None:
        tree = LexborHTMLParser(await _text(client, url))
        rows = [str(a.attributes["href"]) for a in tree.css(".card-title a")]
        following = tree.css_first("a[rel=next]")
        assert len(rows) == 10 or following is None
        found += rows
        url = (
            base + str(following.attributes["href"]) if following is not None else None
        )
    assert sorted(found) == sorted(t.path for t in THREADS if t.site == "icliniq")
    dated = {t.path: t.posted_at for t in THREADS if t.posted_at}
    moments = [dated[path] for path in found if path in dated]
    assert moments == sorted(moments, reverse=True)


async def test_a_page_held_already_is_not_sent_again(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    thread = next(t for t in THREADS if t.site == "dxy")
    url = communities["dxy"].base_url + thread.path
    first = await client.get(url)
    tag = first.headers["ETag"]
    again = await client.get(url, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == tag
    other = {"If-None-Match": '"other"'}
    assert (await client.get(url, headers=other)).status_code == 200


async def test_an_edited_thread_changes_its_validators(
    communities: Communities,
    client: httpx2.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = next(
        t for t in THREADS if t.site == "icliniq" and t.expect.outcome == "kept"
    )
    edited = thread.model_copy(update={"title": thread.title + " (edited)"})
    url = communities["icliniq"].base_url + thread.path
    same = {"If-None-Match": (await client.get(url)).headers["ETag"]}
    assert (await client.get(url, headers=same)).status_code == 304
    monkeypatch.setattr(communities["icliniq"], "threads", [edited])
    assert (await client.get(url, headers=same)).status_code == 200


@pytest.mark.thorough
async def test_what_people_wrote_is_never_markup(client: httpx2.AsyncClient) -> None:
    hostile = "</script><script>alert(1)</script> \"a\" & 'b' < 5 <img src=x onerror=1> ]]> \u202e\U0001f600"
    for site in SITES:
        # SDN's third post on quotes the one before, so a long thread shows the text in a quotation too.
        thread = max(
            (t for t in THREADS if t.site == site), key=lambda t: len(t.messages)
        )
        messages = tuple(
            m.model_copy(update={"text": hostile, "author": hostile})
            for m in thread.messages
        )
        thread = thread.model_copy(update={"title": hostile, "messages": messages})
        async with serve_communities([thread]) as running:
            html = await _text(client, running[site].base_url + thread.path)
            tree = LexborHTMLParser(html)
            assert [
                s
                for s in tree.css("script")
                if "alert(1)" in s.text() and "$$data" not in s.text()
            ] == []
            assert tree.css("[onerror]") == []
            assert "".join(hostile.split()) in await _shown(
                client, running[site].base_url, thread
            )


async def test_the_page_state_of_dxy_is_json(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    thread = next(t for t in THREADS if t.site == "dxy")
    tree = LexborHTMLParser(
        await _text(client, communities["dxy"].base_url + thread.path)
    )
    script = next(s.text() for s in tree.css("script"))
    state = json.loads(script.removeprefix("window.$$data=").rstrip(";"))
    assert [bool(turn["type"]) for turn in state["questionDialog"]] == [
        m.role != "patient" for m in thread.messages
    ]


async def test_old_pages_are_gb18030_and_say_so_in_their_head_only(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    old = [t for t in THREADS if t.charset == "gb18030"]
    assert old
    for thread in old:
        response = await client.get(communities["medlive"].base_url + thread.path)
        body = response.content
        assert response.headers["Content-Type"] == "text/html"
        assert b"charset=gb18030" in body
        assert thread.title in body.decode("gb18030")
        with pytest.raises(UnicodeDecodeError):
            body.decode("utf-8")


async def test_medlives_list_wants_the_token_of_its_front_page(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    base = communities["medlive"].base_url
    form = {"branch": "case", "page": "1", "size": "5", "_token": ""}
    refused = await client.post(f"{base}/new/articlelist", data=form)
    assert refused.status_code == 403
    token = LexborHTMLParser(await _text(client, f"{base}/new/")).css_first(
        "meta[name=csrf-token]"
    )
    form["_token"] = str(token.attributes["content"])
    urls: list[str] = []
    for page in range(1, 100):
        answer = await client.post(
            f"{base}/new/articlelist", data={**form, "page": str(page)}
        )
        rows = answer.json()["data"]["data"]
        urls += [row["url"] for row in rows]
        if len(rows) < 5:
            break
    assert sorted(urls) == sorted(
        t.path for t in THREADS if t.site == "medlive" and t.board == "case"
    )


@pytest.mark.parametrize(
    ("site", "path"),
    [
        ("icliniq", "/qa?page=99"),
        ("icliniq", "/qa/no-such-topic"),
        ("sdn", "/forums/nowhere.1/"),
        ("sdn", "/threads/gone.9/"),
        ("dxy", "/questions/neike?page_index=0"),
        ("dxy", "/question/1"),
        ("medlive", "/case/show-1_1.html"),
    ],
)
async def test_what_is_not_there_is_404(
    communities: Communities,
    client: httpx2.AsyncClient,
    site: str,
    path: str,
) -> None:
    response = await client.get(communities[site].base_url + path)
    assert response.status_code == 404


async def test_each_site_has_its_own_host_and_robots(
    communities: Communities, client: httpx2.AsyncClient
) -> None:
    urls = {community.base_url for community in communities.values()}
    assert len(urls) == len(SITES)
    for base in urls:
        assert base.startswith("http://127.0.0.1:")
        assert "Disallow: /user/" in await _text(client, f"{base}/robots.txt")


async def test_the_server_is_gone_when_the_block_ends(
    client: httpx2.AsyncClient,
) -> None:
    async with serve_communities(THREADS) as running:
        base = running["sdn"].base_url
    with pytest.raises(httpx2.ConnectError):
        await client.get(f"{base}/robots.txt")
