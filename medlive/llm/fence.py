"""How a request becomes messages: instructions first, hostile text last, fenced as data.

The system message is the prompt file and nothing else, so that everything before the inputs is the same
for every case. The inputs are canonical JSON between two fences; inside JSON a newline and a quote are
escaped, and `<` and `>` are written as \\u003c and \\u003e, so no text of a thread can close the fence or
open another.
"""

import json
from collections.abc import Mapping
from typing import Any

from medlive.digest import canonical_json
from medlive.llm.engine import Request

OPEN = "<input>"
CLOSE = "</input>"


def schema_name(task: str) -> str:
    """A task's name as OpenAI's `json_schema.name` allows it (letters, digits, underscore)."""
    return task.replace(".", "_")


def render(request: Request) -> list[dict[str, str]]:
    """The chat messages of a request, in the order system, user, and on a repair assistant, user."""
    fenced = canonical_json(dict(request.inputs)).replace("<", "\\u003c").replace(">", "\\u003e")
    messages = [
        {"role": "system", "content": request.prompt.text},
        {"role": "user", "content": f"{OPEN}\n{fenced}\n{CLOSE}"},
    ]
    if request.repair:
        raw, problem = request.repair
        messages.append({"role": "assistant", "content": raw})
        again = f"That reply cannot be used: {problem}\nReply again, with JSON of the schema only."
        messages.append({"role": "user", "content": again})
    return messages


def read_inputs(messages: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The inputs that `render` fenced, or None when there are none: how a server finds a task's inputs."""
    for message in messages:
        content = message.get("content")
        if message.get("role") == "user" and isinstance(content, str) and content.startswith(OPEN):
            body = content[len(OPEN) : content.rindex(CLOSE)] if CLOSE in content else ""
            try:
                value = json.loads(body)
            except ValueError:
                return None
            return value if isinstance(value, dict) else None
    return None
