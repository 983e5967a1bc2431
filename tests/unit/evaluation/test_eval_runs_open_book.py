"""Open book: nothing newer than the case, looked up once, kept with the run."""

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from medlive.errors import BadInput, IndexMissing, UsageError
from medlive.evaluation.asking.open_book import NO_DAY, NOTHING, OpenBook
from medlive.evaluation.asking.run import run_model
from medlive.evaluation.model import CaseSet
from medlive.evaluation.runs.folder import open_run
from medlive.evaluation.runs.templates import Evidence
from medlive.evidence.passage import Hit, IndexIdentity, Passage, Phrases, Retriever
from tests.unit.evaluation.conftest import AT, USE, Model, down, make_cases, reply

DAY = date(2025, 1, 3)


class Shelf:
    """Passages in a fixed order, as a retriever gives them: undated ones whatever the day."""

    identity = IndexIdentity("bm25", "sha256:1", {"demo": "sha256:2"}, 9)

    def __init__(self, dates: Sequence[date | None]) -> None:
        self.passages = [
            Passage(
                f"demo:{i}:0", "demo", f"Title {i}", "", f"Text {i}", "en", day, "", ""
            )
            for i, day in enumerate(dates)
        ]
        self.asked: list[tuple[str, int]] = []

    async def search(
        self,
        queries: Sequence[Phrases],
        *,
        k: int,
        not_after: date | None = None,
        corpora: Collection[str] | None = None,
    ) -> list[list[Hit]]:
        assert not_after is not None
        self.asked += [(query[0], k) for query in queries]
        fitting = [
            p for p in self.passages if p.published is None or p.published <= not_after
        ]
        return [
            [Hit(p, 1.0, rank) for rank, p in enumerate(fitting[:k], start=1)]
            for _ in queries
        ]


def book(shelf: Shelf, *, top_k: int = 3, undated: bool = False) -> OpenBook:
    async def opened() -> Retriever:
        return shelf

    return OpenBook("default", top_k, undated, opened)


async def gone() -> Retriever:
    raise IndexMissing


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    days=st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=60),
    top_k=st.integers(1, 8),
    undated=st.booleans(),
)
async def test_the_best_snippets_that_are_no_newer_than_the_case(
    days: list[int | None], top_k: int, undated: bool
) -> None:
    dates = [None if d is None else DAY + timedelta(days=d) for d in days]
    case = make_cases(1).cases[0]
    found, _ = await book(Shelf(dates), top_k=top_k, undated=undated).look_up([case])
    wanted = [
        f"demo:{i}:0"
        for i, d in enumerate(dates)
        if (undated if d is None else d <= DAY)
    ][:top_k]
    snippets = found.by_case["c000"]
    assert [s.passage_id for s in snippets] == wanted
    assert [s.rank for s in snippets] == list(range(1, len(wanted) + 1))
    assert [s.date for s in snippets] == [
        d.isoformat() if d else None
        for d in (dates[int(w.split(":")[1])] for w in wanted)
    ]
    assert dict(found.why) == ({} if wanted else {"c000": NOTHING})
    assert Evidence.read(found.data()) == found


async def test_a_case_whose_day_is_unknown_has_none() -> None:
    case = replace(make_cases(1).cases[0], post_time="long ago", month=None)
    shelf = Shelf([None, date(1990, 1, 1)])
    found, _ = await book(shelf, top_k=2, undated=True).look_up([case])
    assert found.by_case == {"c000": ()}
    assert found.why == {"c000": NO_DAY}


async def test_a_run_keeps_its_evidence_and_goes_on_without_the_index(
    run_dir: Path,
) -> None:
    cases = make_cases(4)
    later = replace(cases.cases[3], post_time="1999-01-01T00:00:00")
    cases = CaseSet(
        (*cases.cases[:3], later), cases.origin, cases.name, cases.digest, True
    )
    shelf = Shelf([None, date(2024, 1, 1), date(2030, 1, 1), date(2023, 1, 1)])
    model = Model(lambda prompt: down() if "病史 1" in prompt else reply("Fine."))
    first = await run_model(
        cases,
        model,
        run_dir,
        use=USE,
        created_at=AT,
        template="open-book",
        open_book=book(shelf),
    )
    assert [text for text, _ in shelf.asked if text == "怎么办？"]
    assert any("1 of 4 cases" in note for note in first.notes)
    info = open_run(run_dir).info
    assert info.arm == "open-book"
    assert (
        info.evidence.index_digest,
        info.evidence.snippets,
        info.evidence.closed,
    ) == ("sha256:1", 6, 1)
    rows = [
        json.loads(line)
        for line in (run_dir / "evidence.jsonl").read_text("utf-8").splitlines()
    ]
    assert [r["rank"] for r in rows] == [1, 2, 1, 2, 1, 2, 0]
    assert {r["passage_id"] for r in rows if r["rank"]} == {"demo:1:0", "demo:3:0"}
    assert sum("Text 1" in p and "Text 3" in p for p in model.prompts) == 3
    assert not any("Text 0" in p or "Text 2" in p for p in model.prompts)
    assert sum("<evidence>" not in p for p in model.prompts) == 1

    again = Model()
    offline = OpenBook("default", 3, False, gone)
    done = await run_model(
        cases,
        again,
        run_dir,
        use=USE,
        created_at=AT,
        template="open-book",
        open_book=offline,
    )
    assert (done.calls, len(again.prompts)) == (1, 1)
    assert "Text 1" in again.prompts[0]
    for other in (
        replace(offline, top_k=4),
        replace(offline, undated=True),
        replace(offline, index="mine"),
    ):
        with pytest.raises(UsageError):
            await run_model(
                cases,
                again,
                run_dir,
                use=USE,
                created_at=AT,
                template="open-book",
                open_book=other,
            )
    file = run_dir / "evidence.jsonl"
    file.write_bytes(file.read_bytes().replace(b"Text 1", b"Text 9"))
    with pytest.raises(BadInput):
        await run_model(
            cases,
            again,
            run_dir,
            use=USE,
            created_at=AT,
            template="open-book",
            open_book=offline,
        )


async def test_without_an_index_no_folder_is_made_and_other_templates_take_none(
    run_dir: Path,
) -> None:
    cases, model = make_cases(2), Model()
    with pytest.raises(IndexMissing):
        await run_model(
            cases,
            model,
            run_dir,
            use=USE,
            created_at=AT,
            template="open-book",
            open_book=OpenBook("default", 3, False, gone),
        )
    assert run_dir.name not in os.listdir(run_dir.parent)
    with pytest.raises(UsageError):
        await run_model(
            cases, model, run_dir, use=USE, created_at=AT, template="open-book"
        )
    with pytest.raises(UsageError):
        await run_model(
            cases, model, run_dir, use=USE, created_at=AT, open_book=book(Shelf([]))
        )
    assert model.prompts == []
