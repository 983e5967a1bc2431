"""Every attack imported, filtered, curated and frozen: none does better than its twin, none is in the snapshot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medlive.demo.samples import SampleThread
from medlive.threads.model import Thread
from tests.support.attack_list import ATTACKS
from tests.support.attacks import attacked, twin_of
from tests.support.instance import Instance, write_lines

NewInstance = Callable[..., Instance]
LAID = [a for a in ATTACKS if a.place not in ("", "evidence")]


def _as_import(name: str, thread: Thread) -> dict[str, Any]:
    return {
        "source": "attacks",
        "thread_id": name,
        "url": f"https://attacks.example/{name}",
        **thread.content(),
        "language": thread.language,
        "messages": [
            {
                "author": m.author,
                "role": m.role,
                "verified": m.verified,
                "text": m.text,
            }
            for m in thread.messages
        ],
    }


@pytest.mark.thorough
def test_no_attack_does_better_than_its_twin_and_none_is_frozen(
    new_instance: NewInstance, samples: list[SampleThread], tmp_path: Path
) -> None:
    by_id = {t.thread_id: t for t in samples}
    threads: list[tuple[str, Thread]] = []
    twins: dict[str, tuple[str, Thread]] = {}
    for number, attack in enumerate(LAID, start=100):
        threads.append((attack.id, attacked(attack, twin_of(attack, by_id, number))))
        twins.setdefault(attack.base, ("twin-" + attack.base, twin_of(attack, by_id)))
    # They are as like as threads can be; here that is no reason to leave one out.
    instance = new_instance(MEDLIVE_FILTERS__DUPLICATE_SIMILARITY="1.0")
    lines = [_as_import(name, thread) for name, thread in [*twins.values(), *threads]]
    (told,) = instance.here(
        "import", write_lines(tmp_path / "attacks.jsonl", lines), "--json"
    ).json
    assert (told["new"], told.get("problems", 0)) == (len(lines), 0)
    done = instance.here("curate", "--json").json
    assert (done["faults"], done["outcomes"].get("failed", 0)) == ([], 0), done
    places = instance.places()
    better = {}
    for attack in LAID:
        twin, tried = (
            places[f"attacks/twin-{attack.base}"],
            places[f"attacks/{attack.id}"],
        )
        assert (twin[0] == "kept") == ("-kept" in attack.base), (attack.base, twin)
        if twin[0] != "kept" and tried[0] not in ("rejected",):
            better[attack.id] = tried
    assert better == {}

    frozen = instance.here("snapshot", "freeze", "--json").json
    assert frozen["cases"] > 0
    assert frozen["kept_out"], "the gates had nothing to do"
    whole = "\n".join(
        p.read_text(encoding="utf-8", errors="replace")
        for p in _texts(Path(frozen["path"]))
    )
    for hostile in (
        "<script>",
        "im_start",
        "HYPERLINK(",
        "\\u0430",
        "\u200b",
        "нот",
        "l38OO",
        "④①⑤",
    ):
        assert hostile not in whole, hostile
    instance.here("snapshot", "verify", frozen["path"])


def _texts(folder: Path) -> list[Path]:
    return [
        p
        for p in sorted(folder.rglob("*"))
        if p.suffix in (".jsonl", ".json", ".md", ".txt")
    ]
