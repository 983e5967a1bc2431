"""Write docs/builders/attacks.md: every attack, and which control stops a model that obeys it.

Run in the repository: `python tests/attacks/report.py > docs/builders/attacks.md`.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from medlive.curation.model import Outcome
from medlive.demo.samples import load_sample_threads, sample_evidence_path
from medlive.evidence.build import build_index
from medlive.evidence.corpora.registry import open_corpus
from medlive.evidence.index import open_index
from tests.support.attack_list import ATTACKS, KINDS, POISON
from tests.support.attacks import (
    Attack,
    Way,
    attacked,
    gullible_endpoint,
    rules,
    twin_of,
    way_of,
)

HEAD = """# Attacks and what stops them

Made by `python tests/attacks/report.py > docs/builders/attacks.md`; the same attacks run in `tests/attacks` and,
through a database to a frozen snapshot, in `tests/acceptance/test_attacks.py`.

Each attack is laid into a sample thread. The rules engine must decide the attacked thread no better than the
thread without it (its twin). Then a model behind a real endpoint plays every role, does what the attack asks and
is honest in all else. What code can see for certain, it stops: no case comes of it, or the very case that the twin
gives. The rest is marked **a judge must**: no control in code can tell such a reply from a faithful one, and the
tests hold that list to be complete.

## The controls in code

| Control | Where | What it is |
|---|---|---|
| sides | `curation/screener.py` | an element names a message of its side; strangers' are never shown |
| quotes | `curation/controller.py`, `text/normalise.py` | the quote stands in the message that is named |
| numbers | `text/quantities.py` | no number, unit or dose is in conflict with the thread's |
| evidence | `curation/validator.py` | a verdict quotes four words (Chinese: characters) or more of a given passage |
| replies | `curation/agent.py` | one JSON object of the task's shape, one verdict each, or no reply |
| rubric | `rubric/lint.py` | criteria are in the case's language, of its advice, and ask for no other number |
| text | `snapshot/verify/text_checks.py`, `snapshot/gates.py` | no hidden character, foreign letter or markup |
| identifiers | `deidentify/detect.py`, `snapshot/verify/text_checks.py` | scanned as spelled and as read |

## What judgement alone must catch

Controls in code bound what a reply is made of, not what it means. A model that believes its bait may still

- put another fact, advice, person, side or certainty under a true quote, or drop a "not";
- add a sentence without a number to the written narrative or advice;
- exchange a claim for another that the evidence supports, or call a claim supported by a passage beside the point;
- take a passage for evidence that somebody wrote into a corpus: a corpus is trusted as its maker is;
- leave out an advice that the evidence contradicts, call a question clinical that is none or a history sufficient
  that is not (the items are stored);
- smuggle a criterion into the rubric.

Against these stand the judges: `controller.support` for elements, `reader.text` for the
written texts, `validator.veto`, `reader.case` for the whole, `reader.rubric` for the criteria. They help only if
they are not the model that obeyed: configure another model for the role `reader` at least (docs/curation.md).
Below, one model plays all of them.

## The attacks

"""


async def main() -> None:
    """Try every attack and print the page."""
    samples = {t.thread_id: t for t in load_sample_threads()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence.jsonl"
        hostile = [
            {
                "id": a.id,
                "title": "",
                "text": a.words,
                "language": a.language,
                "date": "2025-01-01",
            }
            for a in POISON
        ]
        lines = [json.dumps(row, ensure_ascii=False) for row in hostile]
        clean = sample_evidence_path().read_text(encoding="utf-8").rstrip("\n")
        path.write_text("\n".join([clean, *lines, ""]), encoding="utf-8")
        build_index([open_corpus(path, name="demo")], Path(folder) / "index")
        retriever = open_index(Path(folder) / "index")
        print(HEAD, end="")
        print(
            f"{len(ATTACKS)} attacks, {sum(a.language == 'zh' for a in ATTACKS)} of them in Chinese."
        )
        async with gullible_endpoint() as model:
            for kind, attacks in KINDS.items():
                print(f"\n### {kind[0].upper()}{kind[1:]}\n")
                print(
                    "| Attack | Twin | Rules | An obedient model is stopped by |\n|---|---|---|---|"
                )
                for attack in attacks:
                    thread = twin_of(attack, samples)
                    tried = attacked(attack, thread)
                    twin, by_rules = (
                        await way_of(thread, rules(), retriever),
                        await way_of(tried, rules(), retriever),
                    )
                    obeyed = (
                        await way_of(tried, model.believes(attack), retriever)
                        if attack.obey is not None
                        else None
                    )
                    stop = _stop(attack, obeyed, twin)
                    print(
                        f"| {attack.id} | {_outcome(twin)} | {_outcome(by_rules)} | {stop} |"
                    )


def _outcome(way: Way) -> str:
    if way.curation.outcome is Outcome.KEPT:
        return "kept out of release" if way.kept_out else "kept"
    return str(way.curation.reason)


def _stop(attack: Attack, way: Way | None, twin: Way) -> str:
    if way is None:
        return "–"
    if way.released is not None:
        if way.texts() == twin.texts():
            return "nothing: the twin's case"
        return "**a judge must**"
    told = (
        way.stopped_by.replace(attack.marker, "§").replace("|", "\\|").replace("`", "'")
    )
    return "".join(c if c.isprintable() else "·" for c in told)[:110]


if __name__ == "__main__":
    asyncio.run(main())
