"""A store of replies in a file of JSON Lines, for benchmarks that are run again and again."""

import json
from dataclasses import asdict
from pathlib import Path

from medlive.llm.engine import EngineIdentity, Finish, Reply, Request, Usage


class FileReplyStore:
    """A ReplyStore in one append-only file."""

    def __init__(self, path: Path) -> None:
        """Read the file where it exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._rows = {row["request"]: row["reply"] for row in map(json.loads, lines)}
        self._path = path

    async def find(self, request_digest: str) -> Reply | None:
        """The reply stored under that digest."""
        row = self._rows.get(request_digest)
        if row is None:
            return None
        last = row["last_usage"]
        return Reply(
            **{
                **row,
                "usage": Usage(**row["usage"]),
                "last_usage": Usage(**last) if last else None,
                "finish": Finish(row["finish"]),
            }
        )

    async def keep(
        self, request_digest: str, request: Request, _: EngineIdentity, reply: Reply
    ) -> None:
        """Append a reply."""
        self._rows[request_digest] = asdict(reply)
        with self._path.open("a", encoding="utf-8") as file:
            row = {
                "request": request_digest,
                "task": request.task,
                "reply": asdict(reply),
            }
            file.write(json.dumps(row) + "\n")
