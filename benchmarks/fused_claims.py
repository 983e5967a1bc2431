"""Does searching by meaning find more for claims of real threads? Two readers' marks of what two searches put first.

Run `python benchmarks/fused_claims.py`. `benchmarks/data/fused_marks.jsonl` holds a line for each of 60 claims, half of
them Chinese, by digest: the three passages that an index of words put first and those of the same index with
all-MiniLM-L6-v2 beside it, by their places in the pool that was shown, and whether each passage is on the claim's
subject and supports it, by each reader. The readers are language models that did not know which search found what.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from measured import mean_and_interval

MARKS: Final = Path(__file__).resolve().parent / "data" / "fused_marks.jsonl"
QUESTIONS: Final = ("on the subject", "supports")
"""By their place in a mark."""
DEPTHS: Final = (1, 3)

Row = Mapping[str, Any]


def hit_rate(row: Row, search: str, question: int, depth: int) -> float:
    """The share of readers who call one of the first passages of a search on the subject, or supporting."""
    answers = []
    for reader in ("a", "b"):
        marks = [row[reader][f"s{place}"][question] for place in row[search][:depth]]
        answers.append(float(any(marks)))
    return fmean(answers)


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each question, depth and language: words, fused, and what fused finds beyond."""
    for question, name in enumerate(QUESTIONS):
        for depth in DEPTHS:
            for language in ("en", "zh", "both"):
                own = [row for row in rows if language in (row["language"], "both")]
                words = [hit_rate(row, "words", question, depth) for row in own]
                fused = [hit_rate(row, "fused", question, depth) for row in own]
                gains = [two - one for one, two in zip(words, fused, strict=True)]
                more = mean_and_interval(gains)
                yield (
                    f"{name}, first {depth}, {language} (n {len(own)}): words {fmean(words):.2f}, fused "
                    f"{fmean(fused):.2f}, more by {more['mean']:.2f} ({more['low']:.2f} to {more['high']:.2f})"
                )


def main() -> None:
    """Print the figures."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    rows = list(map(json.loads, MARKS.read_text(encoding="utf-8").splitlines()))
    print(*lines(rows), sep="\n")


if __name__ == "__main__":
    main()
