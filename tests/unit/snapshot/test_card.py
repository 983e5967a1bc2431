"""The dataset card and the change note: read as the libraries and as people read them, whatever the names hold."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from medlive.snapshot.describe.card import (
    MOST_ADDED,
    cell,
    changes_md,
    licence,
    readme,
    table,
)
from medlive.snapshot.diff import Change
from medlive.snapshot.freeze import draft_manifest
from medlive.snapshot.manifest import (
    Ancestor,
    Counts,
    EngineUse,
    EvidenceUse,
    Manifest,
    Signing,
    SnapshotMeta,
)
from medlive.snapshot.verify.markup import find_active_markdown
from medlive.statistics.charts import plain
from tests.support.entries import entry
from tests.unit.snapshot.conftest import PROVENANCE
from tests.unit.snapshot.test_card_figures import CANARY, COUNTS, FIGURES

KEY = Signing(key_id="A1B2C3D4E5F60718", public_key="RWQ" + "x" * 53)

META = SnapshotMeta(
    version="2026.W47",
    created_at=datetime(2026, 11, 21, 8, 30, 1, tzinfo=UTC),
    provenance=PROVENANCE,
    lineage=(Ancestor(version="2026.W46", digest="sha256:" + "7" * 64),),
    signing=KEY,
)


def manifest_of(counts: Counts = COUNTS, **changes: Any) -> Manifest:
    """The manifest of a snapshot with these counts."""
    made = draft_manifest(META.model_copy(update=changes))
    return made.model_copy(update={"counts": counts})


def card_of(counts: Counts = COUNTS, **changes: Any) -> str:
    return readme(manifest_of(counts, **changes), "sha256:" + "5" * 64)


HOSTILE = [
    "a|b",
    "\\|",
    "\\",
    "<script>alert(1)</script>",
    "<!--",
    "</details>",
    "`code`",
    "```\n",
    "one\ntwo\r\n\n# three",
    "---",
    "\n---\n",
    "--- # yaml",
    "key: [value]",
    "\"quoted\" 'twice'",
    "*bold* _x_ ~~y~~ $z$",
    "![i](http://x.example/y.png)",
    "&lt;",
    "\u2028\u0085\x0b\x00\ud800\u202e",
    "- item",
    "1. item",
    "名称|列",
    "",
]
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))
named = st.dictionaries(texts, st.integers(0, 9999), max_size=4)


def front(card: str) -> dict[str, Any]:
    """The front matter, cut out as the hub's own library cuts it (its expression, with `\\n` alone)."""
    match = re.search(r"^(\s*---\n)([\S\s]*?)(\n---[ \t]*(\n|$))", card)
    parsed: dict[str, Any] = yaml.safe_load(match[2])
    return parsed


def tables(text: str) -> Iterator[list[list[str]]]:
    """Each table of a Markdown text as rows of cells, cut at the pipes that no backslash takes the meaning of."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            re.split(r"(?<!\\)(?:\\\\)*\|", row)[1:-1] for row in block.splitlines()
        ]
        yield rows


def marked(card: str) -> list[str]:
    """Headings, fences, rules, quoted items and HTML below the front matter: a name that got out would add one."""
    body = card[card.index("\n---\n") + 5 :]
    return re.findall(r"^#+ .*$|^```.*$|^---$|^> - |<[a-z/!][^>]*>", body, re.MULTILINE)


@pytest.fixture(scope="module")
def card() -> str:
    return card_of()


def test_the_card_says_the_version_the_numbers_the_parent_and_the_canary(
    card: str,
) -> None:
    assert "| cases | 2,756, 2,756 of them first in this release |" in card
    assert "| criteria | 16,702 |" in card
    assert f"| comes after | 2026.W46, `sha256:{'7' * 64}` |" in card
    assert card.endswith(f"\nCanary: {CANARY}\n")
    assert CANARY in licence(CANARY).splitlines()[-1]
    assert "| Chinese (中文) | 1,188 | 43.1% |" in card
    assert "| Urology | 210 | 7.6% |" in card


def test_every_figure_is_shown_once_by_its_path_and_no_table_is_ragged(
    card: str,
) -> None:
    assert sorted(re.findall(r"!\[[^\]]+\]\(([^)]+)\)", card)) == sorted(FIGURES)
    for rows in tables(card):
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 2
    assert "\n\n\n" not in card


def test_a_signed_card_tells_how_to_check_and_an_unsigned_one_that_nobody_signed(
    card: str,
) -> None:
    commands = f"minisign -VHm SHA256SUMS -P {KEY.public_key}\nsha256sum -c --strict SHA256SUMS\n"
    assert f"{commands}medlive snapshot verify" in card
    assert card.count(KEY.key_id) == 2
    unsigned = card_of(signing=None)
    assert "**This release is not signed.**" in unsigned
    assert "| signed | **no**" in unsigned
    assert "minisign -V" not in unsigned


def test_a_snapshot_that_may_not_be_published_warns_before_anything_else(
    card: str,
) -> None:
    assert "Not publishable" not in card
    loud = card_of(why_not=("the screener was <b>rules</b>", "one\n# two"))
    warning = loud[loud.index("> [!WARNING]") : loud.index("| made |")]
    assert "> **Not publishable. DO NOT CITE" in warning
    assert "> - the screener was &lt;b&gt;rules&lt;/b&gt;\n> - one # two\n" in warning
    assert "| publishable | **no** |" in loud


def test_a_card_that_warns_of_one_model_in_all_parts_verifies() -> None:
    engines = tuple(
        EngineUse(role=role, engine="openai", model="m-1")
        for role in ("rubric", "prober", "grader")
    )
    made = PROVENANCE.model_copy(update={"engines": engines})
    card = card_of(provenance=made)
    assert "> [!NOTE]\n> m-1 wrote rubrics" in card
    assert find_active_markdown(card.encode()) is None


def test_held_out_cases_are_counted_and_explained(card: str) -> None:
    assert "12 further cases are held out: `holdouts.json`" in card
    assert "| held out | 12 cases |" in card
    none = card_of(COUNTS.model_copy(update={"held": 0}))
    assert "None: every case that this release knows is in it." in none
    one = card_of(COUNTS.model_copy(update={"held": 1}))
    assert "1 further case is held out" in one


def test_the_front_matter_holds_what_the_hub_asks_for(card: str) -> None:
    data = front(card)
    assert data["pretty_name"] == "medlive 2026.W47"
    assert data["language"] == ["en", "zh"]
    assert (data["license"], data["license_link"]) == ("other", "LICENSE")
    assert data["size_categories"] == ["1K<n<10K"]
    assert [
        (c["config_name"], c["data_files"][0]["path"]) for c in data["configs"]
    ] == [
        ("cases", "data/cases.parquet"),
        ("criteria", "data/criteria.parquet"),
    ]


@pytest.mark.thorough
@settings(max_examples=40)
@given(
    named,
    st.dictionaries(st.text("az-", min_size=1, max_size=5), st.integers(0, 9999)),
    named,
    st.lists(texts, max_size=3),
    st.tuples(texts, texts, texts),
)
def test_no_name_breaks_the_front_matter_a_table_or_the_sections(
    sources: dict[str, int],
    languages: dict[str, int],
    axes: dict[str, int],
    why_not: list[str],
    engine: tuple[str, str, str],
) -> None:
    update = {
        "by_source": sources,
        "by_specialty": sources,
        "by_theme": axes,
        "by_axis": axes,
    }
    role, name, model = engine
    made = PROVENANCE.model_copy(
        update={
            "code_version": name,
            "engines": (
                EngineUse.model_construct(role=role, engine=name, model=model),
            ),
            "evidence": (
                EvidenceUse.model_construct(
                    retriever=role, index_digest=name, corpora={model: role}, passages=1
                ),
            ),
            "thresholds": {role: model, name: 0.5},
        }
    )
    counts = COUNTS.model_copy(update={**update, "by_language": languages})
    text = card_of(counts, provenance=made, why_not=why_not)
    harmless = card_of(why_not=["a"] * len(why_not))
    data, expected = front(text), front(harmless)
    for config in (*data["configs"], *expected["configs"]):
        assert config.pop("description").startswith(
            "medlive 2026.W47, made 2026-11-21T08:30:01Z, 2756 cases, "
        )
    assert data.pop("language", []) == sorted(languages)
    assert data.pop("multilinguality") == [
        "multilingual" if len(languages) > 1 else "monolingual"
    ]
    assert data == {
        k: v for k, v in expected.items() if k not in ("language", "multilinguality")
    }
    for rows in tables(text):
        assert len({len(row) for row in rows}) == 1
    assert marked(text) == marked(harmless)
    assert len(list(tables(text))) == len(list(tables(harmless)))


def shown(markdown: str) -> list[list[str]]:
    """A table's cells as an independent parser of Markdown shows them, each of which must be bare text."""
    rows: list[list[str]] = []
    for token in (
        MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)
    ):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            assert {child.type for child in token.children or ()} <= {
                "text",
                "text_special",
            }
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5))
def test_a_table_shows_exactly_what_its_cells_were_given(
    pairs: list[tuple[str, str]],
) -> None:
    written = table(("a", "b"), [(cell(x), cell(y)) for x, y in pairs])
    assert shown(written) == [
        ["a", "b"],
        *([plain(x).strip(), plain(y).strip()] for x, y in pairs),
    ]


def test_a_plain_cell_is_shown_as_it_is_and_markup_as_its_characters() -> None:
    name = "Gastroenterology, (GI) 0.5 -0.5 2026.W47 some-model/v1:x 心内科"
    assert cell(name) == name
    assert (
        cell("a|b\n`c` <d> & e_f [g] \\")
        == "a\\|b \\`c\\` &lt;d&gt; &amp; e\\_f \\[g\\] \\\\"
    )
    assert [cell(t) for t in ("---", "# x", "1. y", "- z", "-0.5")] == [
        "\\---",
        "\\# x",
        "1\\. y",
        "\\- z",
        "-0.5",
    ]


def note(
    added: int,
    asked: list[str] | None = None,
    *,
    first: bool = False,
    **held: int,
) -> str:
    changes = {
        "added": [Change("added", f"a{n:04d}", "new", None, 1) for n in range(added)],
        "revised": [Change("revised", "r1", "a dose | was\nwrong", 1, 2)],
        "withdrawn": [Change("withdrawn", "w1", "taken down", 3, None)],
    }

    def entries(section: str) -> list[dict[str, Any]]:
        if asked is not None:
            asked.append(section)
        return list(map(entry, changes[section]))

    meta = manifest_of(lineage=()) if first else manifest_of()
    numbers = (
        {kind: len(rows) for kind, rows in changes.items()}
        | {"revealed": 0, "dropped": 0}
        | held
    )
    return "".join(changes_md(meta, numbers, entries))


def test_the_change_note_lists_each_change_with_its_reason() -> None:
    text = note(MOST_ADDED)
    assert text.startswith(
        "# Changes in medlive 2026.W47 since 2026.W46\n\n## Added: 200\n"
    )
    assert text.count("| new |") == MOST_ADDED
    assert (
        "## Revised: 1\n\n| case | revision | reason |\n| --- | --- | --- |\n" in text
    )
    assert "| r1 | 1 → 2 | a dose \\| was wrong |\n" in text
    assert "| w1 | 3 | taken down |\n" in text
    assert text.endswith(f"\nCanary: {CANARY}\n")


def test_many_added_cases_are_counted_and_never_asked_for() -> None:
    asked: list[str] = []
    text = note(MOST_ADDED + 1, asked)
    assert asked == ["revised", "withdrawn"]
    assert "## Added: 201\n" in text
    assert "a0001" not in text


def test_the_change_note_speaks_of_held_out_cases_and_of_a_first_release() -> None:
    assert "Held out" not in note(1)
    text = note(1, first=True, revealed=2, dropped=1)
    assert "(the first release)" in text
    assert (
        "2 cases are shown now, with the proof in `holdouts.json`; 1 was withdrawn"
        in text
    )


_LIBRARIES = """
import json, sys
from huggingface_hub import DatasetCard
from datasets import get_dataset_config_names, load_dataset

folder = sys.argv[1]
card = DatasetCard.load(folder + "/README.md")
default, criteria = load_dataset(folder, split="test"), load_dataset(folder, "criteria", split="test")
print(json.dumps({
    "card": card.data.to_dict(),
    "text": card.text.lstrip()[:20],
    "configs": get_dataset_config_names(folder),
    "types": {name: str(feature.dtype) for name, feature in default.features.items()},
    "cases": [{**row, "posted_at": row["posted_at"].isoformat()} for row in default],
    "criteria": list(criteria),
    "namesake": load_dataset(sys.argv[2], split="test").num_rows,
}))
"""


@pytest.mark.skipif(
    find_spec("datasets") is None or find_spec("huggingface_hub") is None,
    reason="`datasets` and `huggingface_hub` are not installed",
)
def test_the_folder_is_a_hugging_face_dataset_as_it_is(
    copied: Callable[[int], Path], tmp_path: Path
) -> None:
    # Another build of the same week lies in a folder of the same name, and was read into the same cache.
    (tmp_path / "elsewhere").mkdir()
    namesake = copied(3).rename(tmp_path / "elsewhere" / "medlive-2026.W47")
    folder = copied(8)
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _LIBRARIES, str(folder), str(namesake)]
    done = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["card"]["language"] == ["en", "zh"]
    assert found["card"]["license_name"] == "medlive-data-terms"
    assert found["text"].startswith("# medlive 2026.W47")
    assert found["configs"] == ["cases", "criteria"]
    assert found["namesake"] == 3
    assert found["types"]["posted_at"] == "date32"
    assert found["types"]["revision"] == "int32"
    for name in ("cases", "criteria"):
        rows = [
            json.loads(row)
            for row in (folder / "data" / f"{name}.jsonl").read_bytes().splitlines()
        ]
        assert found[name] == rows
