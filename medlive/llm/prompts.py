"""Prompts are files beside their agent; this reads them, each behind the words that all tasks share."""

from functools import cache
from importlib.resources import files

from medlive.llm.engine import Prompt

TASK_LINE = "# Task: "
"""Begins the line of a prompt that names its task."""


@cache
def load_prompt(package: str, task: str) -> Prompt:
    """The prompt `<package>/prompts/<task with underscores>.md` as a task's instructions, behind `fence.md`.

    What guards against the input stands first and once: the same bytes for every task, which an endpoint's prefix
    cache holds. The digest is that of the composed text. Raises FileNotFoundError when the file is missing: a
    packaging fault, no user's error.
    """
    text = (
        files(package)
        .joinpath("prompts", task.replace(".", "_") + ".md")
        .read_text(encoding="utf-8")
    )
    return Prompt(task=task, text=f"{_fence()}\n\n{text.strip()}\n")


@cache
def _fence() -> str:
    return files("medlive.llm").joinpath("fence.md").read_text(encoding="utf-8").strip()
