"""Cases a second through the release gates, against a target and against the least that a look at a text costs.

Run: `python benchmarks/gates.py [--cases N] [--data FOLDER]`. Cases are made of real threads, or of the demo's
where there are none: the patient's words, the physician's, and nine sentences of both as criteria. The limit is
Unicode's NFKC form of the same texts and one pass of one pattern over it, which no gate can do without, by CPU
seconds. Exit status 1 where one core misses the target.
"""

import argparse
import random
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path

from filters import REAL_DATA, real_threads

from medlive.demo.samples import load_sample_threads
from medlive.evidence.corpora.model import sentences
from medlive.rubric.model import Axis
from medlive.snapshot.gates import (
    content_hits,
    lint_case,
    row_hits,
)
from medlive.snapshot.model import SnapshotCase, SnapshotCriterion
from medlive.text.normalise import dominant_language
from medlive.threads.model import Role

TARGET = 200
"""Cases a second on one core: 100,000 new ones in 250 s on two."""
CRITERIA = 9
LONGEST = 1_500
"""Characters of a narrative and of an advice: curated ones are no longer."""
WORD = re.compile(r"\w+")


def cases(
    threads: Sequence[tuple[str, str, str]], count: int
) -> Iterator[SnapshotCase]:
    """That many cases of (language, patient's words, physician's words), none like another."""
    rng = random.Random(1)
    axes = [axis.value for axis in Axis]
    for number in range(count):
        language, asked, said = threads[number % len(threads)]
        case_id = f"c{number}"
        lines = [s.strip() for text in (said, asked) for s in sentences(text)] or [said]
        criteria = [f"{line[:150]} {number}" for line in rng.choices(lines, k=CRITERIA)]
        yield SnapshotCase(
            case_id=case_id,
            revision=1,
            first_release="2026.W47",
            language=language,
            source="benchmark",
            posted_at=date(2025, 1, 1),
            specialty="Cardiology",
            theme="Response Depth",
            narrative=asked,
            query=lines[-1],
            advice=said,
            criteria=tuple(
                SnapshotCriterion(
                    f"{case_id}-c{k}",
                    case_id,
                    1,
                    k,
                    text,
                    axes[k % len(axes)],
                    5 if k % 3 else -5,
                )
                for k, text in enumerate(criteria, start=1)
            ),
        )


def words_of(messages: Sequence[tuple[Role, str]]) -> tuple[str, str, str] | None:
    """Language, patient's words and physician's words; None where one of them is missing."""
    asked = "\n".join(text for role, text in messages if role == "patient")[:LONGEST]
    said = "\n".join(text for role, text in messages if role == "physician")[:LONGEST]
    language = dominant_language(asked)
    return (
        (language, asked, said)
        if asked.strip() and said.strip() and language in ("en", "zh")
        else None
    )


def texts_of(case: SnapshotCase) -> list[str]:
    """Every text that the gates look at."""
    return [
        case.narrative,
        case.query,
        case.advice,
        *(c.criterion for c in case.criteria),
    ]


def rate(
    work: Callable[[], object],
    count: int,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Cases a second, in the best of three rounds."""
    taken = []
    for _ in range(3):
        begun = clock()
        work()
        taken.append(clock() - begun)
    return count / min(taken)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rates and their ratios; 0 where one core reaches the target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_500)
    parser.add_argument("--data", type=Path, default=REAL_DATA)
    options = parser.parse_args(arguments)

    threads = real_threads(options.data) if options.data.is_dir() else []
    told = [words_of([(m.role, m.text) for m in t.messages]) for t in threads]
    kind = "real threads"
    if not threads:
        told = [
            words_of([(m.role, m.text) for m in sample.messages])
            for sample in load_sample_threads()
        ]
        kind = "the demo's threads (no real ones found)"
    held = [words for words in told if words is not None]
    random.Random(2).shuffle(held)
    made = list(cases(held, options.cases))
    count, size = (
        len(made),
        sum(len(text) for case in made for text in texts_of(case)) / len(made),
    )
    print(
        f"cases               {count} of {kind}, mean {size:.0f} characters and {CRITERIA} criteria"
    )

    content_hits(made[0])
    limit = rate(
        lambda: [
            WORD.findall(unicodedata.normalize("NFKC", text))
            for case in made
            for text in texts_of(case)
        ],
        count,
    )
    rows = rate(lambda: [list(row_hits(case)) for case in made], count)
    linted = rate(lambda: [lint_case(case) for case in made], count)
    whole = rate(lambda: [content_hits(case) for case in made], count)
    for name, cases_s in (
        ("rows", rows),
        ("lint", linted),
        ("content_hits", whole),
    ):
        taken = f"{1000 / cases_s:6.3f} ms a case, {limit / cases_s:6.2f} x the limit's time"
        print(f"{name:18} {cases_s:9.0f} cases/s, {taken}")
    print(f"{'NFKC, one pattern':18} {limit:9.0f} cases/s, the limit")
    print(
        f"target              {TARGET} cases/s on one core, {whole / TARGET:.2f} of it reached"
    )
    return 0 if whole >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
