"""How a request becomes messages: instructions first, hostile text last, fenced as data.

The system message is the composed prompt and nothing else, so that everything before the inputs is the same for
every case. The inputs are one JSON object between two fences, its keys in the order the agent gave them: what
calls of one case share comes first, what is particular to a call last, and an endpoint's prefix cache holds the
rest. (The request's digest is made of canonical JSON and knows no order.) Strings are neutralised, and whatever
chat templates and fences are made of is written as JSON escapes, so no text of a thread can close the fence or
speak as somebody.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from medlive.llm.engine import Request
from medlive.text.neutral import inert, neutralise

OPEN = "<input>"
CLOSE = "</input>"
LONGEST = 100_000  # Characters; of texts up to this the last 64 are remembered as they are written


def schema_name(task: str) -> str:
    """A task's name as OpenAI's `json_schema.name` allows it (letters, digits, underscore)."""
    return task.replace(".", "_")


def render(request: Request) -> list[dict[str, str]]:
    """The chat messages of a request, in the order system, user, and on a repair assistant, user.

    Raises ValueError for a number that JSON cannot hold and TypeError for a value it cannot.
    """
    messages = [
        {"role": "system", "content": request.prompt.text},
        {"role": "user", "content": data(request)},
    ]
    if request.repair:
        # A reply may hold what the thread told it to say, and so may the fault that is named.
        raw, problem = (inert(neutralise(text)) for text in request.repair)
        messages.append({"role": "assistant", "content": raw})
        again = f"That reply cannot be used: {problem}\nReply again, with JSON of the schema only."
        messages.append({"role": "user", "content": again})
    return messages


def data(request: Request) -> str:
    """The message that holds a request's inputs. Raises as `render`."""
    return f"{OPEN}\n{fenced(request.inputs)}\n{CLOSE}"


def fenced(inputs: Mapping[str, Any]) -> str:
    """The inputs as the JSON text that stands between the fences; their names are the agents' own."""
    return (
        "{" + ",".join([_member(name, value) for name, value in inputs.items()]) + "}"
    )


def _member(name: str, value: Any) -> str:
    if isinstance(value, str) and len(value) <= LONGEST:
        return _remembered(name, value)
    text = json.dumps(
        _neutral(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return f"{_written(name)}:{inert(text)}"


@lru_cache(maxsize=64)
def _remembered(name: str, text: str) -> str:
    """Calls of one case share its texts, and come after each other."""
    return f"{_written(name)}:{_written(text)}"


def _written(text: str) -> str:
    return inert(encode_basestring(neutralise(text)))


def _neutral(value: Any) -> Any:
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, Mapping):
        return {neutralise(key): _neutral(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_neutral(item) for item in value]
    return value


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
