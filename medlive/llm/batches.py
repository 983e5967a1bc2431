"""An endpoint's batch API: files of calls handed in, looked after, and their results fetched."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from openai import APIStatusError, OpenAI, OpenAIError
from openai.types import Batch

from medlive.errors import EndpointUnavailable
from medlive.llm.openai import Access

URL: Literal["/v1/chat/completions"] = "/v1/chat/completions"
ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


@dataclass(frozen=True, slots=True)
class BatchState:
    """A batch as its endpoint reports it."""

    id: str
    status: str  # validating, in_progress, finalizing, completed, failed, expired, cancelling or cancelled
    calls: int
    completed: int
    failed: int
    # Ids of the files of results and of errors, once the endpoint has written them
    result_files: tuple[str, ...]
    errors: tuple[str, ...]  # Why the file of calls was refused

    @property
    def ended(self) -> bool:
        """Whether nothing more will come of it; an expired batch may have results."""
        return self.status in ENDED


class BatchApi:
    """The batch API of one endpoint."""

    def __init__(self, base_url: str, api_key: str, access: Access) -> None:
        """`base_url` ends in `/v1`, as most do."""
        headers = dict(access.headers) | (
            {access.key_header: api_key} if access.key_header else {}
        )
        key = api_key or "none"
        self._client = OpenAI(
            base_url=base_url,
            api_key=key,
            default_query=access.query,
            default_headers=headers,
        )
        self.base_url = base_url

    def submit(self, calls: Path) -> BatchState:
        """Hand in a file of calls. Raises EndpointUnavailable, as the other methods do."""
        with self._asking(), calls.open("rb") as file:
            sent = self._client.files.create(file=file, purpose="batch")
            return _state(
                self._client.batches.create(
                    input_file_id=sent.id, endpoint=URL, completion_window="24h"
                )
            )

    def state(self, batch: str) -> BatchState:
        """How a batch stands."""
        with self._asking():
            return _state(self._client.batches.retrieve(batch))

    def content(self, file: str) -> bytes:
        """A file of results: JSON Lines."""
        with self._asking():
            return self._client.files.content(file).read()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except APIStatusError as exc:
            raise EndpointUnavailable(
                f"{self.base_url} refuses: status {exc.status_code}: {' '.join(exc.message.split())[:300]}",
                hint="has this endpoint a batch API, and does the key belong to it?",
            ) from exc
        except OpenAIError as exc:
            raise EndpointUnavailable(
                f"{self.base_url} cannot be reached: {exc}"
            ) from exc


def _state(batch: Batch) -> BatchState:
    counts, errors = (
        batch.request_counts,
        (batch.errors.data or []) if batch.errors else [],
    )
    return BatchState(
        id=batch.id,
        status=batch.status,
        calls=counts.total if counts else 0,
        completed=counts.completed if counts else 0,
        failed=counts.failed if counts else 0,
        result_files=tuple(
            file for file in (batch.output_file_id, batch.error_file_id) if file
        ),
        errors=tuple(
            f"line {error.line}: {error.message}"
            if error.line
            else error.message or error.code or "unknown error"
            for error in errors
        ),
    )
