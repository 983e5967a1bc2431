"""Replies of a language model, recorded once and replayed: found by task and inputs, not by the prompt's wording.

A recording is data: a file of JSON Lines whose first line says whose replies they are and when they were made.
Where it holds no reply to a request, another engine stands in, and the reply names that one as its model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medlive.errors import BadInput
from medlive.integrity.digest import digest_json

from .engine import Engine, EngineIdentity, Finish, Reply, Request, Usage

_HEAD = ("model", "made_on", "how")


@dataclass
class Recording:
    """Replies of one model, found by `reply_key`."""

    model: str  # Who wrote them
    made_on: str  # The day, as an ISO date
    how: str  # In a sentence for people
    # `reply_key` → (task, the reply's text)
    replies: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The digest of all replies: other replies are another engine."""
        rows = [[key, *reply] for key, reply in sorted(self.replies.items())]
        return digest_json(rows)


def reply_key(request: Request) -> str:
    """What a recorded reply is found by: the digest of the task's name and its inputs."""
    return digest_json({"task": request.task, "inputs": request.inputs})


def load_recording(path: Path) -> Recording:
    """A recording from its file. Raises BadInput."""
    try:
        # Texts hold other line ends too.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        head, *rows = map(json.loads, lines)
        recording = Recording(
            str(head["model"]), str(head["made_on"]), str(head["how"])
        )
        for row in rows:
            text = json.dumps(row["reply"], ensure_ascii=False)
            recording.replies[str(row["key"])] = (str(row["task"]), text)
    except (OSError, ValueError, LookupError, TypeError) as exc:
        raise BadInput(f"{path} is not a recording of replies: {exc}") from exc
    return recording


def save_recording(recording: Recording, path: Path) -> None:
    """Write a recording, its replies sorted by task and key, so that two versions are easily compared."""
    rows: list[Mapping[str, Any]] = [{name: getattr(recording, name) for name in _HEAD}]
    replies = [(task, key, text) for key, (task, text) in recording.replies.items()]
    for task, key, text in sorted(replies):
        rows.append({"task": task, "key": key, "reply": json.loads(text)})
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


class RecordedEngine:
    """Answers from a recording, and asks another engine where it holds nothing."""

    def __init__(self, recording: Recording, otherwise: Engine) -> None:
        """`otherwise` answers what is not recorded, and repairs replies that were unusable."""
        self._recording, self._otherwise = recording, otherwise
        other = f"{otherwise.identity.engine} {otherwise.identity.model}"
        parameters = {"recording": recording.digest, "otherwise": other}
        self.identity = EngineIdentity(
            "recorded", recording.model, parameters, pinned=False
        )
        """ "recorded", with the model whose replies they are."""

    async def answer(self, request: Request) -> Reply:
        """The recorded reply, at no cost, or the other engine's."""
        recorded = self._recording.replies.get(reply_key(request))
        if recorded is None or request.repair is not None:
            return await self._otherwise.answer(request)
        free = Usage(cost_usd=0.0)
        return Reply(recorded[1], Finish.STOP, free, self._recording.model)

    async def aclose(self) -> None:
        """Let go of the other engine."""
        await self._otherwise.aclose()


class RecordingEngine:
    """Asks another engine and keeps its replies in a recording; a repaired reply replaces the one before."""

    def __init__(self, engine: Engine, recording: Recording) -> None:
        self._engine = engine
        self._recording = recording
        self.identity = engine.identity

    async def answer(self, request: Request) -> Reply:
        """The engine's reply; kept where it is JSON and whole."""
        reply = await self._engine.answer(request)
        if reply.finish is Finish.STOP:
            try:
                text = json.dumps(json.loads(reply.text), ensure_ascii=False)
            except ValueError:
                return reply
            self._recording.replies[reply_key(request)] = (request.task, text)
        return reply

    async def aclose(self) -> None:
        """Close the engine; the recording is its owner's to save."""
        await self._engine.aclose()
