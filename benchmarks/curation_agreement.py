"""How far the configured engine decides as a careful curator does, step by step.

Run: `python benchmarks/curation_agreement.py --draw` prints which threads are read (docs/yardstick.md).
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Final

SEED: Final = "medlive-yardstick-1"
STRATA: Final = (
    ("icliniq.threads.jsonl", 12),
    ("questiondoctors.threads.jsonl", 6),
    ("covid_dialogue_en.threads.jsonl", 5),
    ("kqa.threads.jsonl", 4),
    ("ehealthforum.threads.jsonl", 3),
    ("haodf.threads.jsonl", 15),
    ("toyhom_neike.threads.jsonl", 15),
)
"""How many threads of each import file are read; 30 English and 30 Chinese."""
REAL_DATA: Final = Path(__file__).resolve().parents[2] / "shared" / "realdata"


def draw(folder: Path) -> list[tuple[str, str]]:
    """(file, thread_id) of the threads to read: of each file those whose keyed digest is smallest.

    The digest is SHA-256 of `seed:file:thread_id`, so that the draw depends on nothing but the ids; an id that
    occurs several times in a file counts once.
    """
    drawn = []
    for name, wanted in STRATA:
        with (folder / name).open(encoding="utf-8") as lines:
            ids = {json.loads(line)["thread_id"] for line in lines}
        ranked = sorted(ids, key=lambda i: hashlib.sha256(f"{SEED}:{name}:{i}".encode()).hexdigest())
        drawn += [(name, thread_id) for thread_id in ranked[:wanted]]
    return drawn


def main() -> int:
    """Print the draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="print the threads to read and stop")
    parser.parse_args()
    folder = REAL_DATA / "threads"
    if not folder.is_dir():
        print("real threads are not here: nothing to measure (../shared/realdata is absent)", file=sys.stderr)
        return 3
    for name, thread_id in draw(folder):
        print(f"{name}\t{thread_id}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
