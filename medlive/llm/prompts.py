"""Prompts are files beside their agent; this reads them, each behind the words that all tasks share."""

import re
from functools import cache
from importlib.resources import files

from medlive.llm.engine import Prompt

TASK_LINE = "# Task: "
"""Begins the line of a prompt that names its task."""


_INCLUDE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)
"""A line that stands for the whole of another file of the same folder."""


@cache
def load_prompt(package: str, task: str) -> Prompt:
    """The prompt `<package>/prompts/<task with underscores>.md` as a task's instructions, behind `fence.md`.

    What guards against the input stands first and once: the same bytes for every task, which an endpoint's prefix
    cache holds. A line `{{name}}` is the file `name.md` beside it, which several tasks share. The digest is that of
    the composed text. Raises FileNotFoundError when a file is missing: a packaging fault, no user's error.
    """
    text = _INCLUDE.sub(
        lambda line: _read(package, line[1]), _read(package, task.replace(".", "_"))
    )
    return Prompt(task=task, text=f"{_fence()}\n\n{text}\n")


def prompt_beside(reply: type, task: str) -> Prompt:
    """The prompt of a task in the package where its reply's type is defined."""
    return load_prompt(reply.__module__.rpartition(".")[0], task)


def _read(package: str, name: str) -> str:
    file = files(package).joinpath("prompts", f"{name}.md")
    return file.read_text(encoding="utf-8").strip()


@cache
def _fence() -> str:
    return files("medlive.llm").joinpath("fence.md").read_text(encoding="utf-8").strip()
