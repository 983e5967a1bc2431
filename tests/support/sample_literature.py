"""The sample evidence as articles that both literature services know."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from medlive.demo.samples import sample_evidence_path
from tests.support.literature import Article, LiteratureServer, serve_literature


def sample_articles() -> list[Article]:
    """An article for each passage of the sample evidence."""
    articles = []
    lines = sample_evidence_path().read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1000):
        row = json.loads(line)
        articles.append(
            Article(str(number), row["title"], f"{row['section']}. {row['text']}")
        )
    return articles


@asynccontextmanager
async def serve_samples() -> AsyncIterator[LiteratureServer]:
    """Serve the sample evidence while the block runs."""
    async with serve_literature(*sample_articles()) as server:
        yield server
