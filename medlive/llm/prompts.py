"""Prompts are files beside their agent; this reads them."""

from functools import cache
from importlib.resources import files

from medlive.llm.engine import Prompt


@cache
def load_prompt(package: str, task: str) -> Prompt:
    """The prompt `<package>/prompts/<task with underscores>.md` as a task's instructions.

    Raises FileNotFoundError when the file is missing: a packaging fault, no user's error.
    """
    text = files(package).joinpath("prompts", task.replace(".", "_") + ".md").read_text(encoding="utf-8")
    return Prompt(task=task, text=text.strip() + "\n")
