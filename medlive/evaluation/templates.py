"""Prompt templates for the models under evaluation: named, one text a language, pinned by digest."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Final

from medlive.digest import digest_json
from medlive.errors import UsageError
from medlive.evaluation.model import EvaluationCase

TEMPLATES: Final = ("livemedbench-v1", "open")
"""`livemedbench-v1` asks for the final answer only, as LiveMedBench's candidates are asked, and so depresses
completeness and communication; `open` asks for a full answer. A new one is its two files and a name here."""

LANGUAGES: Final = ("en", "zh")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A template with its texts by language; `$narrative` and `$query` stand for the case's own."""

    name: str
    texts: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """The template's identity."""
        return digest_json([self.name, [list(pair) for pair in self.texts]])

    def messages(self, case: EvaluationCase) -> list[dict[str, str]]:
        """The chat messages that ask a model about a case: one, from the user, in the case's language.

        The case's own text is put in as it is: a `$` in it stands for nothing.
        """
        text = dict(self.texts)["zh" if case.language == "zh" else "en"]
        content = Template(text).substitute(narrative=case.narrative, query=case.query)
        return [{"role": "user", "content": content.strip()}]


@cache
def load_template(name: str) -> PromptTemplate:
    """The template of that name. Raises UsageError when there is none."""
    if name not in TEMPLATES:
        raise UsageError(f"there is no prompt template {name!r}", hint="choose one of " + ", ".join(TEMPLATES))
    folder = files("medlive.evaluation").joinpath("prompts")
    texts = tuple((code, folder.joinpath(f"{name}.{code}.md").read_text(encoding="utf-8")) for code in LANGUAGES)
    return PromptTemplate(name, texts)
