"""Cases in their threads' own words: the arm that shows whether rewriting hides what a model remembers
(docs/method.md §2)."""

from collections.abc import Mapping
from dataclasses import replace

from medlive.errors import UsageError
from medlive.evaluation.model import CaseSet
from medlive.threads.model import Role, Thread


def opening(thread: Thread) -> str:
    """The title and what the asker wrote before anybody else did; "" where that is nothing.

    What comes later answers a physician, and would give away what was advised.
    """
    texts = []
    for message in thread.messages:
        if message.role is not Role.PATIENT:
            break
        texts.append(message.text.strip())
    text = "\n\n".join(filter(None, texts))
    title = thread.title.strip()
    return text if not text or text.startswith(title) else f"{title}\n\n{text}"


def in_own_words(cases: CaseSet, threads: Mapping[str, Thread]) -> CaseSet:
    """The cases with their thread's opening as the narrative and no query; rubrics, dates and ids stay.

    `threads` are by case id, without the identifiers of people. A case whose thread is not there, or has no
    opening, is left out and counted in `notes`. The result is not publishable: it holds what a community's members
    wrote. Raises UsageError when no case is left.
    """
    openings = {case_id: opening(thread) for case_id, thread in threads.items()}
    found = [
        replace(case, narrative=text, query="") for case in cases.cases if (text := openings.get(case.case_id))
    ]
    if not found:
        raise UsageError(
            f"this database holds the thread of no case of {cases.name}",
            hint="--raw is for whoever harvested the threads; a snapshot holds none",
        )
    notes = ["asked in the threads' own words, which are not ours to publish"]
    if lost := len(cases) - len(found):
        notes.append(f"{lost} of {len(cases)} cases are left out: their thread is not in this database, or empty")
    return replace(cases, cases=tuple(found), publishable=False, notes=(*cases.notes, *notes))
