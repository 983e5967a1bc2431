"""Look up a prompt by its task's name, or a stored prompt or request by its digest (`show_prompt`)."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from medlive.db.curation.replies import find_prompt, find_request
from medlive.db.session import Session
from medlive.errors import UsageError
from medlive.llm.prompts import load_prompt, render

_TASK = re.compile(r"[a-z_.]{1,80}")
# The packages that have prompts
_PACKAGES = (
    "medlive.curation",
    "medlive.rubric",
    "medlive.grader",
    "medlive.harm",
)


async def show_prompt(
    session: Session, name: str, packages: Sequence[str] = ()
) -> dict[str, Any]:
    """A task's present prompt, or by its digest a stored prompt, or a stored request as it was rendered.

    Beside "task" and "digest" a prompt has its "text", a request the "messages" as the engine was sent them and the
    "reply". `packages` hold prompts beside the service's own. A digest may be cut short. Raises UsageError for an
    unknown or ambiguous one.
    """
    digest = name if name.startswith("sha256:") else f"sha256:{name}"
    for package in (*_PACKAGES, *packages) if _TASK.fullmatch(name) else ():
        with suppress(FileNotFoundError):
            present = load_prompt(package, name)
            return {"task": name, "digest": present.digest, "text": present.text}
    if stored := await find_request(session, digest):
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
    if prompt := await find_prompt(session, digest):
        return {"task": prompt.task, "digest": prompt.digest, "text": prompt.text}
    raise UsageError(
        f"{name[:100]!r} names no task, and no one stored prompt or request",
        hint="name a task such as validator.query, or more of the digest",
    )
