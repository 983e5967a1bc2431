"""Loading a snapshot of 100,000 cases and 600,000 criteria: how long until its cases are a data frame?

Run `python benchmarks/snapshot_load.py [--cases 100000] [--folder FOLDER]`; a folder that holds the snapshot of
an earlier run is used again. Measured is `load_snapshot(verify=False)` and `.to_pandas("cases")` in a fresh
process, without the imports of pandas and pyarrow, which both sides pay; beside it, in the same way, what pyarrow
and pandas take for the same parquet file without medlive. Then slices, the criteria, polars, one case by its id,
and a pass over every typed case, each with the memory that it takes. Exits 1 when the cases take 2 s or more, 3
when pandas, polars or pyarrow is missing.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

from medlive.snapshot.freeze import write_snapshot
from medlive.snapshot.manifest import Ancestor, Provenance, SnapshotMeta
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion, folder_name

LIMIT_S = 2.0
REPEATS = 3
RELEASES = tuple(f"2026.W{week:02d}" for week in range(10, 48))
VERSION = RELEASES[-1]
SENTENCE = "The patient has had a dry cough for three weeks and takes a tablet for blood pressure every morning. "
AXES = ("Accuracy", "Completeness", "Safety")

MEASURES = {
    "plain": "frame = pq.read_table(folder / 'data/cases.parquet').to_pandas(date_as_object=False)",
    "cases": "frame = load_snapshot(folder, verify=False).to_pandas('cases')",
    "polars": "frame = load_snapshot(folder, verify=False).to_polars('cases')",
    "criteria": "frame = load_snapshot(folder, verify=False).to_pandas('criteria')",
    "slice": "frame = load_snapshot(folder, verify=False).filter(language='zh').to_pandas()",
    "slice_criteria": "frame = load_snapshot(folder, verify=False).filter(language='zh').to_pandas('criteria')",
    "one_case": "frame = load_snapshot(folder, verify=False).case('t-00000701').criteria",
    "typed": "frame = range(sum(1 for _ in load_snapshot(folder, verify=False)))",
}
PROGRAM = """
import json, resource, sys, time
from pathlib import Path
import pandas, polars, pyarrow.parquet as pq
from medlive import load_snapshot
folder = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
exec(sys.argv[2])
took = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": took, "rows": len(frame), "megabytes": (after - before) / 1024}))
"""


def cases(count: int) -> Iterator[SnapshotCase]:
    """Cases about as long as real ones, none like another."""
    for number in range(count):
        case_id = f"t-{number:08d}"
        yield SnapshotCase(
            case_id=case_id,
            revision=1,
            first_release=RELEASES[number % len(RELEASES)],
            language="zh" if number % 3 == 0 else "en",
            source=("icliniq", "sdn", "dxy", "medlive")[number % 4],
            posted_at=date(2023, 1, 1) + timedelta(days=number % 1_000),
            specialty="Cardiology",
            theme="Response Depth",
            narrative=f"Case {number}. " + SENTENCE * 6,
            query=f"What could cause it, and what should the patient of case {number} do?",
            advice=f"{SENTENCE * 3}{number}",
            criteria=tuple(
                SnapshotCriterion(
                    f"{case_id}-c{k}",
                    case_id,
                    1,
                    k,
                    f"{SENTENCE}{number} {k}",
                    AXES[k % 3],
                    -4 if k == 6 else k,
                )
                for k in range(1, 7)
            ),
        )


def build(folder: Path, count: int) -> Path:
    """The snapshot's folder, made unless it is there."""
    target = folder / folder_name(VERSION)
    if not (target / "manifest.json").is_file():
        meta = SnapshotMeta(
            version=VERSION,
            created_at=datetime(2026, 11, 21, tzinfo=UTC),
            provenance=Provenance(
                code_version="0", engines=(), prompts={}, evidence=(), thresholds={}
            ),
            lineage=tuple(
                Ancestor(version=v, digest="sha256:" + "0" * 64) for v in RELEASES[:-1]
            ),
            why_not=("a benchmark",),
        )
        write_snapshot(cases(count), meta, folder, lambda _: [])
    return target


def measure(folder: Path, statement: str) -> dict[str, float]:
    """One fresh process's seconds, rows and megabytes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), statement],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure_all(folder: Path) -> dict[str, dict[str, float]]:
    """The medians of every measure; in rounds, so that a busy machine slows all of them alike."""
    rounds = [
        {name: measure(folder, statement) for name, statement in MEASURES.items()}
        for _ in range(REPEATS)
    ]
    return {
        name: {
            part: statistics.median(one[name][part] for one in rounds)
            for part in rounds[0][name]
        }
        for name in MEASURES
    }


def main() -> int:
    """Measure, print, and say whether the limit was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    if missing := [
        name for name in ("pandas", "polars", "pyarrow") if find_spec(name) is None
    ]:
        print(f"not measured: {', '.join(missing)} not installed")
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        folder = build(given.folder or Path(scratch), given.cases)
        found = measure_all(folder)
    print(
        f"{given.cases} cases, {6 * given.cases} criteria; the median of {REPEATS} fresh processes each"
    )
    for name, of in found.items():
        print(
            f"{name:>14}: {of['seconds']:7.3f} s, {of['rows']:>8.0f} rows, {of['megabytes']:6.0f} MB more"
        )
    took, plain = found["cases"]["seconds"], found["plain"]["seconds"]
    print(
        f"ratio: {took / plain:.2f} of plain pyarrow and pandas; {took:.2f} s of {LIMIT_S:g} s allowed"
    )
    return 0 if took < LIMIT_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
