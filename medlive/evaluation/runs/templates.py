"""Prompt templates for the models under evaluation: named, one text a language, pinned by digest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Final

from medlive.digest import digest_json
from medlive.errors import UsageError
from medlive.evaluation.model import EvaluationCase
from medlive.evaluation.runs.evidence import Snippet, shown

TEMPLATES: Final = ("livemedbench-v1", "open", "open-book")
"""`livemedbench-v1` asks for the final answer only, as LiveMedBench's candidates are asked, and so depresses
completeness and communication; `open` asks for a full answer; `open-book` asks as `open` does, with passages of
evidence before the question. A new one is its two files and a name here."""

WITHOUT_EVIDENCE: Final = {"open-book": "open"}
"""Templates that put evidence before the question, and how a case is asked that has none."""

LANGUAGES: Final = ("en", "zh")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A template with its texts by language; `$narrative` and `$query` stand for the case's own, `$evidence` for
    the snippets of a template that takes some."""

    name: str
    texts: tuple[tuple[str, str], ...]
    without: "PromptTemplate | None" = None
    """How a case is asked that has no evidence; None: the template takes none."""

    @property
    def digest(self) -> str:
        """The template's identity."""
        parts = [self.name, [list(pair) for pair in self.texts]]
        return digest_json(parts if self.without is None else [*parts, self.without.digest])

    def messages(self, case: EvaluationCase, evidence: Sequence[Snippet] = ()) -> list[dict[str, str]]:
        """The chat messages that ask a model about a case: one, from the user, in the case's language.

        The case's own text is put in as it is: a `$` in it stands for nothing. Evidence is put in as JSON that
        cannot leave its marks; a template that takes none passes it over.
        """
        if self.without is not None and not evidence:
            return self.without.messages(case)
        text = dict(self.texts)["zh" if case.language == "zh" else "en"]
        parts = {"narrative": case.narrative, "query": case.query}
        if self.without is not None:
            parts["evidence"] = shown(evidence)
        return [{"role": "user", "content": Template(text).substitute(parts).strip()}]


@cache
def load_template(name: str) -> PromptTemplate:
    """The template of that name. Raises UsageError when there is none."""
    if name not in TEMPLATES:
        raise UsageError(f"there is no prompt template {name!r}", hint="choose one of " + ", ".join(TEMPLATES))
    folder = files("medlive.evaluation").joinpath("prompts")
    texts = tuple((code, folder.joinpath(f"{name}.{code}.md").read_text(encoding="utf-8")) for code in LANGUAGES)
    closed = WITHOUT_EVIDENCE.get(name)
    return PromptTemplate(name, texts, load_template(closed) if closed else None)
