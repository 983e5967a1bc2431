"""The offline engine, to try the loop with: deterministic rules over the task's own inputs, and no judgement.

It takes sentences as they stand and counts words. It carries the demo where no reply is recorded, the tests' typed
tasks, and dry runs on real threads; whatever it answered is never published.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final

from medlive.digest import digest_bytes, digest_json
from medlive.errors import UsageError
from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage
from medlive.llm.rules import auditor, controller, grader, reader, rubric, screener, validator


def _version() -> str:
    """Eight digits of the rules' own source and word lists: other rules are another engine."""
    here = files(__package__)
    folders = [here, here / "data"]
    found = sorted((f.name, f.read_bytes()) for d in folders for f in d.iterdir() if f.is_file())
    return digest_json([[name, digest_bytes(data)] for name, data in found])[7:15]


VERSION: Final = _version()

ANSWERS: Final[dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    **screener.ANSWERS,
    **validator.ANSWERS,
    **controller.ANSWERS,
    **rubric.ANSWERS,
    **reader.ANSWERS,
    **grader.ANSWERS,
    **auditor.ANSWERS,
}
"""Task name → what answers it."""


class RulesEngine:
    """Answers each task that has rules; no key, no network, no cost, the same answer every time."""

    @property
    def identity(self) -> EngineIdentity:
        """ "rules" at this version."""
        return EngineIdentity("rules", f"rules-{VERSION}")

    async def answer(self, request: Request) -> Reply:
        """The reply as JSON. Raises UsageError for a task without rules."""
        rule = ANSWERS.get(request.task)
        if rule is None:
            raise UsageError(f"The rules engine has no rules for the task {request.task!r}.")
        text = json.dumps(rule(dict(request.inputs)), ensure_ascii=False)
        given = len(request.prompt.text) + len(json.dumps(dict(request.inputs), ensure_ascii=False))
        # Four characters a token: good enough to try budgets out without a model.
        usage = Usage(input_tokens=given // 4, output_tokens=len(text) // 4, cost_usd=0.0)
        return Reply(text, Finish.STOP, usage, self.identity.model)

    async def aclose(self) -> None:
        """Nothing is held."""
