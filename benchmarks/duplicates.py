"""Near-duplicates in PostgreSQL against brute force and against an index in memory.

1. Look-up: the time it takes a thread among 1,000, 10,000 and 100,000 stored threads, its growth, and the time of
   an index in memory, which has to be filled from the whole corpus at every run.
2. Recall: real threads, or ones of this project's own words where there are none, and copies of them edited at
   random; equal texts taken once. Every pair is compared exactly; how many of similarity 0.8 and more are found?
3. A filter run over all of them: threads a second, and its decisions against those of brute force.
4. Boilerplate: the same recall where hundreds of threads are mostly one template.

Run: `python benchmarks/duplicates.py [--threads N] [--data FOLDER]`. Uses a database of its own. Exits 1 where the
recall of 2 is below 0.95, or a look-up among 100,000 threads takes over three times as long as among 1,000.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import psycopg
from filters import REAL_DATA, made_threads, real_threads
from sqlalchemy import text
from throwaway import throwaway_home

from medlive.db import embedded
from medlive.db.schema.migrate import upgrade
from medlive.db.session import Database
from medlive.db.threads.bands import find_candidates, save_bands
from medlive.db.threads.threads import load_threads, save_threads
from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain
from medlive.integrity.digest import digest_text
from medlive.service.curation.filtering import BATCH, filter_pending
from medlive.threads.model import Message, Thread
from medlive.threads.near_duplicates import (
    BANDS,
    DuplicateIndex,
    Sketch,
    jaccard,
    patient_text,
    sketches,
)
from medlive.threads.prepare import normalised

THRESHOLD: Final = 0.8
SIZES: Final = (1_000, 10_000, 100_000)
RECALL: Final = 0.95
GROWTH: Final = 3.0
ACCEPTED: Final = digest_text("benchmark")
"""The chain that accepts every thread, so that every pair can be found."""

Pairs = dict[tuple[int, int], float]
T = TypeVar("T")


def edited(original: str, rng: random.Random) -> str:
    """The text with some of its words, or characters of Chinese, replaced, doubled or left out."""
    words = original.split(" ")
    space = " " if len(words) > 5 else ""
    units = words if space else list(original)
    for _ in range(rng.randint(1, max(1, len(units) // rng.choice([8, 15, 30, 60])))):
        at = rng.randrange(len(units))
        units[at : at + 1] = [rng.choice(units) for _ in range(rng.randint(0, 2))]
        if not units:
            return original
    return space.join(units)


def with_copies(
    threads: Sequence[Thread], count: int, rng: random.Random
) -> list[Thread]:
    """The threads, and as many edited copies of some of them at another source."""
    copies = []
    for number in range(count):
        thread = rng.choice(threads)
        messages = tuple(
            replace(m, text=edited(m.text, rng)) if m.role == "patient" else m
            for m in thread.messages
        )
        copies.append(
            replace(thread, source="copies", thread_id=str(number), messages=messages)
        )
    return [*threads, *copies]


def templated(count: int, rng: random.Random) -> list[Thread]:
    """Forms: seven parts of eight are the same words in each."""
    form = " ".join(f"form{n}" for n in range(84))
    made = []
    for number in range(count):
        own = " ".join(f"own{rng.randrange(10_000)}" for _ in range(12))
        made.append(
            Thread(
                "forms", str(number), "", "", None, (), None, (_asked(f"{form} {own}"),)
            )
        )
    return made


def _asked(text: str) -> Message:
    return Message("m0", "asker", "patient", False, text)


def drawn(threads: Sequence[Thread]) -> list[Sketch]:
    """Their sketches, in their order."""
    made: list[Sketch] = []
    for part in parts(threads):
        made += sketches([patient_text(normalised(t)) for t in part])
    return made


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Consecutive parts of a filter run's size."""
    for start in range(0, len(values), BATCH):
        yield values[start : start + BATCH]


def brute_force(held: Sequence[Sketch]) -> Pairs:
    """(place, later place) → similarity, of every pair from THRESHOLD on.

    Common shingles of a text and all before it are counted by the places of each shingle: no pair is left out.
    """
    places: dict[int, list[int]] = {}
    sizes = np.array([s.shingles.size for s in held])
    pairs: Pairs = {}
    for later, sketch in enumerate(held):
        met: list[int] = []
        for shingle in sketch.shingles.tolist():
            known = places.setdefault(shingle, [])
            met += known
            known.append(later)
        if not met:
            continue
        common = np.bincount(met, minlength=1)
        near = common / (sizes[: common.size] + sketch.shingles.size - common)
        for place in np.flatnonzero(near >= THRESHOLD).tolist():
            pairs[place, later] = float(near[place])
    return pairs


async def store(
    database: Database, threads: Sequence[Thread], held: Sequence[Sketch]
) -> list[int]:
    """Save threads as accepted, with their bands; their numbers, in order."""
    numbers: list[int] = []
    async with database.begin() as session:
        saved = await save_threads(session, threads)
        for found in saved:
            numbers.append(found.thread_pk)
        await save_bands(
            session, [(pk, s.bands) for pk, s in zip(numbers, held, strict=True)]
        )
        await session.execute(
            text(
                "INSERT INTO filter_results (revision_id, chain_digest, passed) "
                "SELECT unnest(CAST(:revisions AS int[])), :chain, true ON CONFLICT DO NOTHING"
            ),
            {"revisions": [s.revision_pk for s in saved], "chain": ACCEPTED},
        )
    return numbers


def fill(url: str, count: int) -> int:
    """Add threads without content and with bands of their own; the bytes of bands a thread by then."""
    rng = np.random.default_rng(count)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "INSERT INTO sources (name, kind) VALUES ('others', 'file') ON CONFLICT DO NOTHING"
        )
        added = connection.execute(
            "INSERT INTO threads (source, thread_id, url) "
            "SELECT 'others', gen_random_uuid(), '' FROM generate_series(1, %s) RETURNING id",
            (count,),
        ).fetchall()
        keys = rng.integers(-(2**63), 2**63 - 1, size=(count, BANDS + 1)).tolist()
        with connection.cursor().copy("COPY bands (key, thread_id) FROM STDIN") as copy:
            for (number,), row in zip(added, keys, strict=True):
                for key in row:
                    copy.write_row((key, number))
        connection.execute("VACUUM ANALYZE bands")
        [size] = connection.execute(
            "SELECT pg_total_relation_size('bands') / count(DISTINCT thread_id) FROM bands"
        ).fetchall()
    return int(size[0])


class Found(NamedTuple):
    """What look-ups brought."""

    near: list[dict[int, float]]
    """Of each text asked: number of a thread → similarity, from THRESHOLD on."""
    loaded: int
    compared: int
    seconds: float


async def look_up(database: Database, asked: Sequence[Sketch]) -> Found:
    """What a filter run does before it judges: ask for candidates, load and sketch them, compare exactly."""
    near: list[dict[int, float]] = []
    loaded = compared = 0
    begun = time.perf_counter()
    for part in parts(asked):
        async with database.begin() as session:
            candidates = await find_candidates(
                session, ACCEPTED, [s.bands for s in part]
            )
            threads = await load_threads(session, [c.revision_pk for c in candidates])
        theirs = drawn([threads[c.revision_pk] for c in candidates])
        loaded += len(candidates)
        having: dict[int, list[int]] = {}
        for place, sketch in enumerate(theirs):
            for band in sketch.bands:
                having.setdefault(band, []).append(place)
        for sketch in part:
            met = {place for band in sketch.bands for place in having.get(band, ())}
            compared += len(met)
            similar = {
                candidates[p].thread_pk: jaccard(sketch.shingles, theirs[p].shingles)
                for p in met
            }
            near.append(
                {
                    number: value
                    for number, value in similar.items()
                    if value >= THRESHOLD
                }
            )
    return Found(near, loaded, compared, time.perf_counter() - begun)


async def growth(
    database: Database, url: str, threads: Sequence[Thread], asked: Sequence[Sketch]
) -> float:
    """Print the look-up's time at each size; how often the first size's time the last one's is."""
    held = drawn(threads)
    numbers = await store(database, threads, held)
    begun = time.process_time()
    async with database.begin() as session:
        loaded = await load_threads(session, numbers)
    index = DuplicateIndex(THRESHOLD)
    for number, sketch in enumerate(drawn(list(loaded.values()))):
        index.add(str(number), sketch)
    filled = (time.process_time() - begun) / len(threads)
    begun = time.process_time()
    for sketch in asked:
        index.find(sketch)
    in_memory = (time.process_time() - begun) / len(asked)

    taken: dict[int, float] = {}
    stored = len(threads)
    for size in SIZES:
        others = max(0, size - stored)
        stored += others
        bytes_each = fill(url, others)
        runs = [await look_up(database, asked) for _ in range(4)]
        taken[size] = min(r.seconds for r in runs) / len(asked)
        run = (size * filled + len(asked) * in_memory) / (len(asked) * taken[size])
        print(
            f"among {stored:7}  {taken[size] * 1e6:6.0f} µs a look-up  {bytes_each:5} bytes a thread  "
            f"{runs[0].loaded / len(asked):5.2f} candidates a text   a run of {len(asked)}: in memory {run:6.1f} x"
        )
    print(
        f"in memory          {in_memory * 1e6:6.0f} µs a look-up, {filled * 1e6:.0f} µs a stored thread to fill it"
    )
    print(
        f"growth             {taken[SIZES[-1]] / taken[SIZES[0]]:6.2f} x from {SIZES[0]} to {SIZES[-1]} threads"
    )
    return taken[SIZES[-1]] / taken[SIZES[0]]


async def recall(database: Database, name: str, given: Sequence[Thread]) -> float:
    """Print how much of what brute force finds is found; the share of pairs."""
    distinct = {
        s.digest: (t, s) for t, s in zip(given, drawn(given), strict=True) if s.bands
    }
    threads, held = [t for t, _ in distinct.values()], [s for _, s in distinct.values()]
    numbers = await store(database, threads, held)
    place_of = {number: place for place, number in enumerate(numbers)}
    pairs = brute_force(held)
    found = await look_up(database, held)
    met = {
        (min(place, other), max(place, other))
        for place, near in enumerate(found.near)
        for number in near
        if (other := place_of.get(number, place)) != place
    }
    repeated = {place for pair in pairs for place in pair}
    told = {place for pair in met for place in pair}
    true = met & pairs.keys()
    share = len(true) / max(1, len(pairs))
    print(
        f"{name}: {len(threads)} distinct texts, {len(pairs)} pairs from similarity {THRESHOLD} on by brute force"
    )
    print(
        f"  recall of pairs {share:.4f}, of texts that repeat another {len(told & repeated) / len(repeated):.4f}, "
        f"precision {len(true) / max(1, len(met)):.4f}, {found.compared / len(threads):.2f} comparisons a text"
    )
    steps = Counter(min(9, int(value * 10)) for value in pairs.values())
    kept = Counter(min(9, int(pairs[pair] * 10)) for pair in true)
    for step in sorted(steps):
        print(
            f"    similarity {step / 10:.1f} to {step / 10 + 0.1:.1f}: {kept[step]} of {steps[step]}"
        )
    return share


async def filter_run(database: Database, url: str) -> None:
    """Filter everything with the chain as shipped, and compare its decisions with brute force."""
    chain = FilterChain(FilterSettings(), load_codebook())
    begun, cpu = time.perf_counter(), time.process_time()
    passed, rejected = await filter_pending(database, chain)
    taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
    count = passed + rejected
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        rows = connection.execute(
            "SELECT r.thread_id, r.id, f.passed, CAST(v -> 'evidence' ->> 'of' AS int) "
            "FROM thread_revisions r JOIN filter_results f ON f.revision_id = r.id "
            "CROSS JOIN jsonb_array_elements(f.verdicts) v "
            "WHERE f.chain_digest = %s AND v ->> 'rule' = 'duplicate' ORDER BY r.id",
            (chain.digest,),
        ).fetchall()
    async with database.begin() as session:
        loaded = await load_threads(session, [row[1] for row in rows])
    held = drawn([loaded[row[1]] for row in rows])
    earlier: dict[int, list[int]] = {}
    for first, second in brute_force(held):
        earlier.setdefault(second, []).append(first)
    differing = 0
    for place, (_, _, _, of) in enumerate(rows):
        near = [rows[e][0] for e in earlier.get(place, ()) if rows[e][2]]
        differing += (of is not None) != bool(near)
    print(
        f"filter run         {count / taken:6.0f} threads/s by the clock, {count / cpu:.0f} a second of own CPU: "
        f"{passed} of {count} pass, {differing} decisions differ from brute force's"
    )


async def measure(url: str, threads: Sequence[Thread]) -> bool:
    """Run every part; whether recall and growth are within their limits."""
    rng = random.Random(8)
    rng.shuffle(mixed := list(threads))
    size = min(SIZES[0], len(mixed) // 2)
    database = Database.connect(url)
    try:
        asked = [*with_copies(mixed[:size], 500, rng)[size:], *mixed[size : size + 500]]
        grown = await growth(database, url, mixed[:size], drawn(asked))
        everything = with_copies(mixed, len(mixed) // 3, rng)
        share = await recall(database, "threads and edited copies", everything)
        async with database.begin() as session:
            await save_threads(session, everything)
        await filter_run(database, url)
        await recall(
            database,
            "forms, seven eighths alike",
            with_copies(templated(800, rng), 200, rng),
        )
    finally:
        await database.aclose()
    return share >= RECALL and grown <= GROWTH


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; 0 where recall and growth are within their limits."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--threads", type=int, default=3_000)
    parser.add_argument("--data", type=Path, default=REAL_DATA)
    options = parser.parse_args(arguments)
    threads = real_threads(options.data) if options.data.is_dir() else []
    print(f"threads            {'real' if threads else 'made (no real threads found)'}")
    threads = threads or made_threads(options.threads)
    threads = random.Random(9).sample(threads, min(options.threads, len(threads)))
    with throwaway_home() as home:
        url = embedded.start(home)
        upgrade(url)
        return 0 if asyncio.run(measure(url, threads)) else 1


if __name__ == "__main__":
    sys.exit(main())
