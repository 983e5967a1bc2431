"""Prompts, and how a request becomes messages: instructions first, hostile text last, fenced as data.

Prompts are files beside their agent, each read behind the words that all tasks share. The system message is the
composed prompt and nothing else, so that everything before the inputs is the same for every case. The inputs are one
JSON object between two fences, its keys in the order the agent gave them: what calls of one case share comes first,
what is particular to a call last, and an endpoint's prefix cache holds the rest. (The request's digest is made of
canonical JSON and knows no order.) Strings are neutralised, and whatever chat templates and fences are made of is
written as JSON escapes, so no text of a thread can close the fence or speak as somebody.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from medlive.text.neutral import inert, neutralise

from .engine import Prompt, Request
from .reading import neutral

TASK_LINE = "# Task: "
"""Begins the line of a prompt that names its task."""


_INCLUDE = re.compile(r"^( *)\{\{(?:([\w.]+)/)?(\w+)\}\}$", re.MULTILINE)
"""A line that stands for the whole of another prompt: of the same package, or of one that is named."""


@cache
def load_prompt(package: str, task: str) -> Prompt:
    """The prompt `<package>/prompts/<task with underscores>.md` as a task's instructions, behind `fence.md`.

    What guards against the input stands first and once: the same bytes for every task, which an endpoint's prefix
    cache holds. A line `{{name}}` is the file `name.md` beside it, which several tasks share; `{{package/name}}` that
    of another package. The digest is that of the composed text. Raises FileNotFoundError when a file is missing: a
    packaging fault, no user's error.
    """
    fence = files("medlive.llm").joinpath("fence.md").read_text(encoding="utf-8")
    text = _read(package, task.replace(".", "_"))
    text = _INCLUDE.sub(lambda line: line[1] + _read(line[2] or package, line[3]), text)
    return Prompt(task=task, text=f"{fence.strip()}\n\n{text}\n")


def prompt_beside(reply: type, task: str) -> Prompt:
    """The prompt of a task in the package where its reply's type is defined."""
    return load_prompt(reply.__module__.rpartition(".")[0], task)


def _read(package: str, name: str) -> str:
    file = files(package).joinpath("prompts", f"{name}.md")
    return file.read_text(encoding="utf-8").strip()


OPEN = "<input>"
CLOSE = "</input>"


def render(request: Request) -> list[dict[str, str]]:
    """The chat messages of a request, in the order system, user, and on a repair assistant, user.

    Raises ValueError for a number that JSON cannot hold and TypeError for a value it cannot.
    """
    messages = [
        {"role": "system", "content": request.prompt.text},
        {"role": "user", "content": f"{OPEN}\n{fenced(request.inputs)}\n{CLOSE}"},
    ]
    if request.repair:
        # A reply may hold what the thread told it to say, and so may the fault that is named.
        raw, problem = (inert(neutralise(text)) for text in request.repair)
        messages.append({"role": "assistant", "content": raw})
        again = f"That reply cannot be used: {problem}\nReply again, with JSON of the schema only."
        messages.append({"role": "user", "content": again})
    return messages


def fenced(inputs: Mapping[str, Any]) -> str:
    """The inputs as the JSON text that stands between the fences."""
    text = json.dumps(
        neutral(inputs), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return inert(text)


def read_inputs(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The inputs that `render` fenced, or None when there are none: how a server finds a task's inputs."""
    for message in messages:
        content = message["content"] or ""
        if message["role"] == "user" and content.startswith(OPEN):
            body = content.removeprefix(OPEN).rpartition(CLOSE)[0]
            try:
                value = json.loads(body)
            except (ValueError, RecursionError):
                return None
            return value if isinstance(value, dict) else None
    return None
