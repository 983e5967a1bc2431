"""A store of replies in memory, which outlives the engines that use it."""

from pathlib import Path

from medlive.llm.engine import EngineIdentity, Reply, Request


class Memory:
    """A ReplyStore."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}

    async def find(self, request_digest: str) -> Reply | None:
        return self.replies.get(request_digest)

    async def keep(
        self,
        request_digest: str,
        request: Request,
        identity: EngineIdentity,
        reply: Reply,
    ) -> None:
        self.replies[request_digest] = reply


_STORES: dict[Path, Memory] = {}


def store_of(folder: Path) -> Memory:
    """The store that belongs to a test's folder."""
    return _STORES.setdefault(folder, Memory())
