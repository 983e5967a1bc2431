"""The documents' site at /docs: files of one folder, and nothing beside it."""

import httpx2
import pytest
from pydantic import SecretStr

from medlive.config import Settings, WebSection
from medlive.db.session import Database
from medlive.web.app import build_app, serve_web
from medlive.web.site import Site


async def test_built_documents_are_served_and_nothing_beside_them(
    web_database: Database,
    database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "secret").write_text("no")
    built = folder / "site"
    (built / "guide").mkdir(parents=True)
    (built / "linked").symlink_to(folder / "secret")
    settings = Settings(
        home=folder / "home",
        database_url=SecretStr(database_url),
        web=WebSection(docs_folder=built),
    )
    app = build_app(Site(web_database, settings, folder / "snapshots"))
    async with (
        serve_web(app, "127.0.0.1", 0) as url,
        httpx2.AsyncClient(base_url=url, timeout=60) as client,
    ):
        before = await client.get("/docs/")
        (built / "index.html").write_text("<p>front</p>")
        (built / "guide" / "index.html").write_text("<p>guide</p>")
        (built / "style.css").write_text("p {}")
        answers = {
            path: await client.get(path)
            for path in (
                "/docs/",
                "/docs/guide/",
                "/docs/style.css",
                "/docs/absent/",
                "/docs/linked",
                "/docs/..%2Fsecret",
                "/docs/%2E%2E/secret",
            )
        }
        short = await client.get("/docs")
    assert before.status_code == 404
    assert "make docs" in before.text
    assert answers["/docs/"].text == "<p>front</p>"
    assert answers["/docs/"].headers["Content-Type"].startswith("text/html")
    assert answers["/docs/guide/"].text == "<p>guide</p>"
    assert answers["/docs/style.css"].headers["Content-Type"].startswith("text/css")
    refused = [path for path, answer in answers.items() if answer.status_code == 404]
    assert len(refused) == 4
    assert (short.status_code, short.headers["Location"]) == (308, "/docs/")
