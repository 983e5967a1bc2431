"""Verifying a snapshot of 100,000 cases and 600,000 criteria, against hashing its files twice and parsing them.

Run `python benchmarks/snapshot_verify.py [--cases 100000] [--rounds 2] [--folder FOLDER]`; a folder that holds
the snapshot of an earlier run is used again. The limit is what two runs of `sha256sum` over the folder's files and
one plain pass of the usual parsers take (`json` a line of both JSON Lines files, `json` of `livemedbench.json`,
pyarrow on both parquet files), all in this run, each in a process of its own, imports left out, the best round of
each. Printed is verify's share of that and its peak memory. Exits 1 where the share is over 3, 3 without sha256sum
or pyarrow.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medlive.rubric.model import SPECIALTIES, Axis, Theme
from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.manifest import Provenance, SnapshotMeta
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion, folder_name

VERSION = "2026.W47"
CRITERIA = 6
ENGLISH = """
the my knee pain since three days left arm doctor said take one tablet twice daily blood pressure 140/90 mmHg and
I am worried about a dry cough at night with fever 38.5 history of diabetes on metformin 500 mg should I go to the
hospital or wait it was "mild" before, then worse; no rash and no weight loss. The scan showed nothing new
"""
CHINESE = "我的膝盖疼痛已经三天左臂医生说每天吃两片药血压偏高担心胸口咳嗽发烧糖尿病史是否需要去医院检查一下，。？38.5℃"
PROGRAM = """
import json, resource, sys, time
from pathlib import Path
import pyarrow.parquet as pq
from medlive.snapshot.verify.steps import verify_snapshot

def parse(folder):
    for name in ("cases", "criteria"):
        with (folder / f"data/{name}.jsonl").open("rb") as handle:
            for line in handle:
                json.loads(line)
        pq.read_table(folder / f"data/{name}.parquet")
    json.loads((folder / "livemedbench.json").read_bytes())

def verify(folder):
    report = verify_snapshot(folder)
    assert report.ok, report.summary()

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started, busy = time.perf_counter(), time.process_time()
locals()[sys.argv[2]](Path(sys.argv[1]))
took = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu = time.process_time() - busy
print(json.dumps({"seconds": took, "cpu": cpu, "peak": peak / 1024, "before": before / 1024}))
"""


class Texts:
    """Slices of made-up text, English and Chinese."""

    def __init__(self) -> None:
        self.rng = random.Random(47)
        words = ENGLISH.split()
        self._english = " ".join(self.rng.choice(words) for _ in range(40_000))
        self._chinese = "".join(self.rng.choice(CHINESE) for _ in range(200_000))

    def text(self, length: int, chinese: bool) -> str:
        """About `length` characters, a quarter more or less."""
        pool = self._chinese if chinese else self._english
        size = self.rng.randint(length * 3 // 4, length * 5 // 4)
        start = self.rng.randrange(len(pool) - size)
        return f"{self.rng.randrange(10**6)} {pool[start : start + size]}"


def cases(count: int) -> Iterator[SnapshotCase]:
    """Cases in the lengths that real ones have, a third of them Chinese, none like another."""
    texts = Texts()
    rng, axes, themes = texts.rng, list(Axis), list(Theme)
    for number in range(count):
        zh, case_id = number % 3 == 0, f"ml-{number:012x}"
        yield SnapshotCase(
            case_id=case_id,
            revision=1,
            first_release=VERSION,
            language="zh" if zh else "en",
            source=rng.choice(("dxy", "medlive") if zh else ("icliniq", "sdn")),
            posted_at=date(2024, 1, 1) + timedelta(days=rng.randrange(1_000)),
            specialty=rng.choice(SPECIALTIES),
            theme=rng.choice(themes),
            narrative=texts.text(600, zh),
            query=texts.text(120, zh),
            advice=texts.text(500, zh),
            criteria=tuple(
                SnapshotCriterion(
                    f"{case_id}-c{place}",
                    case_id,
                    1,
                    place,
                    texts.text(110, zh),
                    rng.choice(axes),
                    5 if place == 1 else rng.choice((-8, -3, 2, 3, 5, 8)),
                )
                for place in range(1, CRITERIA + 1)
            ),
        )


def added(count: int, section: str) -> Iterator[dict[str, Any]]:
    """The entries of a first release: every case is new."""
    for number in range(count if section == "added" else 0):
        yield {
            "case_id": f"ml-{number:012x}",
            "reason": "new in this release",
            "from_revision": None,
            "to_revision": 1,
        }


def build(folder: Path, count: int) -> Path:
    """The snapshot's folder, made unless it is there."""
    target = folder / folder_name(VERSION)
    if not (target / "manifest.json").is_file():
        provenance = Provenance(
            code_version="0", engines=(), prompts={}, evidence=(), thresholds={}
        )
        meta = SnapshotMeta(
            version=VERSION,
            created_at=datetime(2026, 11, 21, tzinfo=UTC),
            provenance=provenance,
            why_not=("a benchmark",),
        )
        write_snapshot(cases(count), meta, folder, partial(added, count))
    return target


def measure(folder: Path, what: str) -> dict[str, float]:
    """Seconds and megabytes of `parse` or `verify` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), what],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def hash_all(files: list[Path]) -> float:
    """Seconds of sha256sum over the files."""
    started = time.perf_counter()
    subprocess.run(
        ["sha256sum", *map(str, files)], stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - started


def main() -> int:
    """Measure, print, and say whether the limit was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    if shutil.which("sha256sum") is None or find_spec("pyarrow") is None:
        print("not measured: sha256sum or pyarrow is missing")
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(given.folder or Path(scratch), given.cases)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        size = sum(path.stat().st_size for path in files)
        hash_all(files)
        rounds = [
            (hash_all(files), measure(folder, "parse"), measure(folder, "verify"))
            for _ in range(given.rounds)
        ]
    hashed = min(one for one, _, _ in rounds)
    plain = min((two for _, two, _ in rounds), key=lambda m: m["seconds"])
    parsed = plain["seconds"]
    best = min((three for _, _, three in rounds), key=lambda m: m["seconds"])
    limit = 2 * hashed + parsed
    print(
        f"{given.cases} cases, {CRITERIA * given.cases} criteria, {size / 1e6:.0f} MB; the best of {given.rounds}"
    )
    print(
        f"sha256sum {hashed:.2f} s, parsing {parsed:.2f} s ({plain['cpu']:.2f} s of CPU), "
        f"so {limit:.2f} s are allowed"
    )
    print(
        f"verify    {best['seconds']:.2f} s ({best['cpu']:.2f} s of CPU), peak {best['peak']:.0f} MB, "
        f"of which {best['before']:.0f} MB were there before"
    )
    ratio = best["seconds"] / limit
    print(f"ratio: {ratio:.2f} (3 or less is the target)")
    return 0 if ratio <= 3 else 1


if __name__ == "__main__":
    raise SystemExit(main())
