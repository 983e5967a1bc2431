"""Prompts and requests as an engine is sent them, looked up by a task's name or by a digest."""

import re
from collections.abc import Sequence
from typing import Any, Final

from medlive.db.curation.replies import find_prompt, find_request
from medlive.db.session import Session
from medlive.errors import UsageError
from medlive.llm.prompts import load_prompt, render

_TASK: Final = re.compile(r"[a-z_.]{1,80}")
_PACKAGES: Final = (
    "medlive.curation",
    "medlive.rubric",
    "medlive.grader",
    "medlive.harm",
)


async def show_prompt(
    session: Session, name: str, packages: Sequence[str] = ()
) -> dict[str, Any]:
    """A task's present prompt, or by its digest a stored prompt, or a stored request as it was rendered.

    "messages" is what the engine is sent; of a request with the reply, of a prompt with what stands for inputs.
    `packages` hold prompts beside the service's own. A digest may be cut short. Raises UsageError for an unknown or
    ambiguous one.
    """
    digest = name if name.startswith("sha256:") else f"sha256:{name}"
    prompt = (
        _present_prompt(name, (*_PACKAGES, *packages))
        or await _stored_request(session, digest)
        or await _stored_prompt(session, digest)
    )
    if prompt is None:
        raise UsageError(
            f"{name[:100]!r} names no task, and no one stored prompt or request",
            hint="name a task such as validator.query, or more of the digest",
        )
    return prompt


def _present_prompt(task: str, packages: Sequence[str]) -> dict[str, Any] | None:
    if not _TASK.fullmatch(task):
        return None
    for package in packages:
        try:
            prompt = load_prompt(package, task)
        except FileNotFoundError:
            continue
        return {"task": task, "digest": prompt.digest, "text": prompt.text}
    return None


async def _stored_request(session: Session, digest: str) -> dict[str, Any] | None:
    stored = await find_request(session, digest)
    if stored is None:
        return None
    request, row = stored
    return {
        "task": row.task,
        "digest": row.request_digest,
        "messages": render(request),
        "reply": {
            "text": row.text,
            "finish": row.finish.value,
            "model": row.reply_model,
        },
    }


async def _stored_prompt(session: Session, digest: str) -> dict[str, Any] | None:
    row = await find_prompt(session, digest)
    if row is None:
        return None
    return {"task": row.task, "digest": row.digest, "text": row.text}
