"""An index whose shards workers embed is the one that a machine builds alone; what they leave is embedded here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from medlive.db.jobs import Queue, count_servers
from medlive.db.session import Database
from medlive.errors import EvidenceUnavailable
from medlive.evidence.build import Progress, build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.dense_side import shards_to_embed
from medlive.evidence.encoder import Encoder
from medlive.evidence.encoders.opening import open_encoder
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings
from medlive.evidence.index_folder import VECTORS, IndexFolder
from medlive.evidence.manifest import read_manifest
from medlive.evidence.plan import IndexPlan, plan_index
from medlive.evidence.vectors import VectorStore, keys_of
from medlive.service.work.jobs import EMBED, open_app, run_shard_jobs, run_until_stopped
from medlive.service.work.worker import embed_work
from tests.support.hashing_encoder import HashingEncoder, index_plan
from tests.support.real_encoders import missing, unpack_minilm
from tests.unit.evidence.test_evidence_build_dense import corpus_file


class Broken(HashingEncoder):
    """Fails on one passage."""

    def encode_passages(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        if any("number 60 " in text for _, text in pairs):
            raise EvidenceUnavailable("out of memory")
        return super().encode_passages(pairs)


@asynccontextmanager
async def serve_queue(
    database: Database, home: Path, openings: Sequence[Callable[[str], Encoder]]
) -> AsyncIterator[None]:
    """Serve the queue `embed` by as many workers as there are ways to open their encoders."""
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        running = []
        for opening in openings:
            app = await stack.enter_async_context(open_app(database).open_async())
            works = {EMBED: embed_work(home, opening)}
            worker = run_until_stopped(
                app, database, works, [Queue.EMBED], concurrency=1, stop=stop
            )
            running.append(asyncio.create_task(worker))
        async with asyncio.timeout(60):
            served = 0
            while served < len(openings):
                async with database.begin() as session:
                    served = await count_servers(session, Queue.EMBED)
        yield
        stop.set()
        await asyncio.gather(*running)


@pytest.mark.skipif(bool(missing()), reason="real encoders: make dense")
async def test_workers_embed_by_real_weights_as_one_machine_does(
    database: Database, tmp_path: Path
) -> None:
    model = unpack_minilm(tmp_path / "model")
    own = {"ours": EncoderModel(query=str(model), languages=("en",))}
    settings = EncoderSettings(
        home=tmp_path, environment={}, own=own, by_language={"en": "ours"}
    )
    opened: list[str] = []

    def opening(name: str) -> Encoder:
        opened.append(name)
        return open_encoder(name, settings=settings)

    corpus = open_corpus(corpus_file(tmp_path, "a", 40))
    loop = asyncio.get_running_loop()

    def build(index: str, *, by_workers: bool) -> Progress:
        folder, steps = tmp_path / index, list[Progress]()
        plan = plan_index(folder, (), settings, shard=10)
        side = plan.sides[0]

        def share(data: Path) -> None:
            shards = shards_to_embed(folder, data, side)
            inside = str(data.relative_to(folder))
            running = run_shard_jobs(
                database, index, inside, side.where, shards, lambda _: None
            )
            assert asyncio.run_coroutine_threadsafe(running, loop).result()

        if by_workers:
            plan = plan._replace(sides=(replace(side, share=share),))
        build_index([corpus], folder, steps.append, plan=plan)
        return steps[-1]

    async with serve_queue(database, tmp_path, [opening, opening]):
        done = await asyncio.to_thread(build, "index", by_workers=True)
    assert (done.embedded, done.reused) == (40, 0)
    assert set(opened) == {"ours"}
    await asyncio.to_thread(build, "alone", by_workers=False)
    [shared, alone] = [stored_vectors(tmp_path / name) for name in ("index", "alone")]
    assert np.abs(np.linalg.norm(shared, axis=1) - 1).max() < 1e-2
    np.testing.assert_allclose(shared, alone, atol=2e-3)


def stored_vectors(index: Path) -> NDArray[np.float32]:
    manifest = read_manifest(index)
    kept = VectorStore(index / VECTORS, manifest.dense[0].encoder)
    stored = kept.vectors(keys_of(IndexFolder(index, manifest).open_store()))
    return stored.rows(np.arange(len(stored)))


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
    openings = [{"any": encoder}.__getitem__ for encoder in workers]
    async with serve_queue(database, tmp_path, openings):
        done = await asyncio.to_thread(build, "index", shared)
    assert (told, done.embedded, done.reused) == ([True], 120, 0)
    # The shard that failed there, and no other, was embedded here.
    assert len(here.passages) == 25
    assert sum(len(encoder.passages) for encoder in workers) == 95
    alone = index_plan(HashingEncoder(), shard=25, where="any")
    await asyncio.to_thread(build, "alone", alone)
    shared_vectors = stored_vectors(tmp_path / "index")
    assert np.array_equal(shared_vectors, stored_vectors(tmp_path / "alone"))
    # Nobody serves the queue any more: what is new is embedded here.
    corpus_file(tmp_path, "a", 130)
    done = await asyncio.to_thread(build, "index", shared)
    assert (told, done.embedded, done.reused) == ([True, False], 10, 120)
