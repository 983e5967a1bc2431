"""An index whose shards workers embed is the one that a machine builds alone; what they leave is embedded here."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from medlive.db.jobs import Queue, count_servers
from medlive.db.session import Database
from medlive.errors import EvidenceUnavailable
from medlive.evidence.build import (
    IndexPlan,
    Progress,
    build_index,
    shards_to_embed,
)
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.manifest import read_manifest
from medlive.evidence.open_index import VECTORS, open_store
from medlive.evidence.vectors import VectorStore, keys_of
from medlive.service.work.jobs import EMBED, open_app, run_shard_jobs, run_until_stopped
from medlive.service.work.worker import embed_work
from tests.support.hashing_encoder import HashingEncoder, index_plan
from tests.unit.evidence.test_evidence_build_dense import corpus_file


class Broken(HashingEncoder):
    """Fails on one passage."""

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        if any("number 60 " in text for _, text in pairs):
            raise EvidenceUnavailable("out of memory")
        return super().encode_passages(pairs)


async def test_two_workers_embed_each_shard_once(
    database: Database, tmp_path: Path
) -> None:
    corpus, here, workers = (
        corpus_file(tmp_path, "a", 120),
        HashingEncoder(),
        [Broken(), Broken()],
    )
    told: list[bool] = []
    loop = asyncio.get_running_loop()

    def share(data: Path) -> None:
        shards = shards_to_embed(tmp_path / "index", data, side)
        inside = str(data.relative_to(tmp_path / "index"))
        running = run_shard_jobs(
            database, "index", inside, "any", shards, lambda _: None
        )
        told.append(asyncio.run_coroutine_threadsafe(running, loop).result())

    side = index_plan(here, shard=25, where="any").sides[0]

    def build(index: str, plan: IndexPlan) -> Progress:
        seen: list[Progress] = []
        build_index([open_corpus(corpus)], tmp_path / index, seen.append, plan=plan)
        return seen[-1]

    shared = IndexPlan((replace(side, share=share),), "a test")
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        running = []
        for encoder in workers:
            app = await stack.enter_async_context(open_app(database).open_async())
            works = {EMBED: embed_work(tmp_path, {"any": encoder}.__getitem__)}
            running.append(
                asyncio.create_task(
                    run_until_stopped(
                        app, database, works, [Queue.EMBED], concurrency=1, stop=stop
                    )
                )
            )
        async with asyncio.timeout(60):
            served = 0
            while served < 2:
                async with database.begin() as session:
                    served = await count_servers(session, Queue.EMBED)
        done = await asyncio.to_thread(build, "index", shared)
        stop.set()
        await asyncio.gather(*running)
    assert (told, done.embedded, done.reused) == ([True], 120, 0)
    # The shard that failed there, and no other, was embedded here.
    assert len(here.passages) == 25
    assert sum(len(encoder.passages) for encoder in workers) == 95
    alone = index_plan(HashingEncoder(), shard=25, where="any")
    await asyncio.to_thread(build, "alone", alone)
    vectors = []
    for index in ("index", "alone"):
        manifest = read_manifest(tmp_path / index)
        kept = VectorStore(tmp_path / index / VECTORS, manifest.dense[0].encoder)
        stored = kept.vectors(keys_of(open_store(tmp_path / index, manifest)))
        vectors.append(stored.rows(np.arange(len(stored))))
    assert np.array_equal(vectors[0], vectors[1])
    # Nobody serves the queue any more: what is new is embedded here.
    corpus_file(tmp_path, "a", 130)
    done = await asyncio.to_thread(build, "index", shared)
    assert (told, done.embedded, done.reused) == ([True, False], 10, 120)
