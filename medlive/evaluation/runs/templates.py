"""Prompt templates for the models under evaluation, pinned by digest, and an open book's snippets (`Evidence`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, Self

from medlive.errors import BadInput, UsageError
from medlive.evaluation.model import CaseSet, EvaluationCase, LogRow
from medlive.integrity.digest import digest_json
from medlive.integrity.log import lines_of
from medlive.llm.prompts import fenced

EVIDENCE = "evidence.jsonl"


@dataclass(frozen=True)
class Snippet(LogRow):
    """One passage of evidence that is put before one case's question."""

    case_id: str
    rank: int
    """From 1, best first."""
    passage_id: str
    corpus: str
    date: str | None
    """`YYYY-MM-DD`, on or before the case's; None: its source gives none (only where undated ones are let in)."""
    digest: str
    """The digest of title, section and text (`Passage.digest`)."""
    title: str
    section: str
    text: str

    def shown(self) -> dict[str, Any]:
        """What the model is shown of it."""
        shown = {
            "n": self.rank,
            "source": self.corpus,
            "date": self.date or "unknown",
            "title": self.title,
            "section": self.section,
            "text": self.text,
        }
        return {name: value for name, value in shown.items() if value}


@dataclass(frozen=True)
class Evidence:
    """The snippets of a run's cases."""

    by_case: Mapping[str, Sequence[Snippet]]
    """Every case id → its snippets, best first; empty for a case that has none."""
    why: Mapping[str, str]
    """Case id → why the case has no snippet, and is asked as a closed book."""

    def data(self) -> bytes:
        """`evidence.jsonl`: a line a snippet; a case without any has a line of rank 0 that says why."""
        rows: list[dict[str, Any]] = []
        for case_id, snippets in self.by_case.items():
            rows += [snippet.row() for snippet in snippets]
            if not snippets:
                why = self.why[case_id]
                rows.append({"case_id": case_id, "rank": 0, "why": why})
        return lines_of(rows)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Parse `evidence.jsonl`. Raises BadInput if a row is not a snippet."""
        by_case: dict[str, list[Snippet]] = {}
        why: dict[str, str] = {}
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line:
                continue
            try:
                row = json.loads(line)
                snippets = by_case.setdefault(row["case_id"], [])
                if row["rank"] == 0:
                    why[row["case_id"]] = row["why"]
                else:
                    snippets.append(Snippet.from_row(row))
            except (ValueError, TypeError, KeyError, RecursionError) as exc:
                raise BadInput(
                    f"{EVIDENCE}:{number}: not a snippet: {str(exc)[:120]}"
                ) from exc
        return cls({name: tuple(own) for name, own in by_case.items()}, why)


AS_IS = "as-is"
CLINICAL = "clinical"
LIVEMEDBENCH = "livemedbench-v1"
TEMPLATES = (CLINICAL, LIVEMEDBENCH, "open", "open-book", AS_IS)
"""`clinical` says what a rubric wants: what it is, what to do, what must not be missed, and no more words than that
takes; `livemedbench-v1` asks for the final answer only, as LiveMedBench's candidates are asked, and so depresses
completeness and communication; `open` asks for a full answer; `open-book` asks as `open` does, with passages of
evidence before the question; `as-is` sends a case's conversation, or its text, without a word of ours. A new one
is its two files and a name here."""

WITHOUT_EVIDENCE = {"open-book": "open"}
"""Template that puts evidence before the question → the template for a case that has none."""

LANGUAGES = ("en", "zh")


@dataclass(frozen=True)
class PromptTemplate:
    """A template with its texts by language; `$narrative` and `$query` stand for the case's own, `$evidence` for
    the snippets of a template that takes some."""

    name: str
    texts: tuple[tuple[str, str], ...]
    without: "PromptTemplate | None" = None
    """The template for a case that has no evidence; None: this one takes none."""

    @property
    def digest(self) -> str:
        """The template's identity."""
        parts = [self.name, list(map(list, self.texts))]
        return digest_json(
            parts if self.without is None else [*parts, self.without.digest]
        )

    def messages(
        self,
        case: EvaluationCase,
        evidence: Sequence[Snippet] = (),
    ) -> list[dict[str, str]]:
        """The chat messages that ask a model about a case: its conversation, or one, in the case's language.

        The case's own text is put in as it is: a `$` in it stands for nothing. Evidence is put in as JSON that
        cannot leave its marks; a template that takes none ignores it. Raises UsageError for a conversation
        under a template that has words of its own.
        """
        if case.turns:
            if self.name != AS_IS:
                raise UsageError(
                    f"a conversation is sent unchanged: --template {AS_IS}, not {self.name}"
                )
            return [{"role": turn.role, "content": turn.content} for turn in case.turns]
        if self.without is not None and not evidence:
            return self.without.messages(case)
        text = dict(self.texts)["zh" if case.language == "zh" else "en"]
        parts = {"narrative": case.narrative, "query": case.query}
        if self.without is not None:
            # As JSON, in which no text can close the marks around it.
            parts["evidence"] = fenced(
                {"passages": [snippet.shown() for snippet in evidence]}
            )
        return [{"role": "user", "content": Template(text).substitute(parts).strip()}]


def default_template(cases: CaseSet) -> str:
    """The template of a run that names none: other people's benchmarks are asked as their own candidates are."""
    if cases.origin == "snapshot":
        return CLINICAL
    return LIVEMEDBENCH if cases.origin == "livemedbench" else AS_IS


@cache
def load_template(name: str) -> PromptTemplate:
    """The template of that name. Raises UsageError when there is none."""
    if name not in TEMPLATES:
        raise UsageError(
            f"there is no prompt template {name!r}",
            hint="choose one of " + ", ".join(TEMPLATES),
        )
    folder = files("medlive.evaluation").joinpath("prompts")
    texts = []
    for code in LANGUAGES:
        text = "$narrative\n\n$query"
        if name != AS_IS:
            text = folder.joinpath(f"{name}.{code}.md").read_text("utf-8")
        texts.append((code, text))
    closed = WITHOUT_EVIDENCE.get(name)
    without = load_template(closed) if closed else None
    return PromptTemplate(name, tuple(texts), without)
