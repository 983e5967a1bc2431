"""An endpoint's batch API over real HTTP: files are taken, and batches stand as the test says."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class BatchEndpoint:
    """The files and batches of one endpoint, by id."""

    def __init__(self) -> None:
        self.url = ""
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.keys: set[str] = set()

    def calls(self, batch: str) -> list[dict[str, Any]]:
        """The calls of a batch."""
        return [
            json.loads(line)
            for line in self.files[self.batches[batch]["input_file_id"]].splitlines()
        ]

    def turn(
        self,
        batch: str,
        status: str,
        results: list[Any] | None = None,
        failures: list[Any] | None = None,
        **more: Any,
    ) -> None:
        """Let a batch stand so, with files of results and of errors where they are given."""
        counts = {
            "total": len(self.calls(batch)),
            "completed": len(results or ()),
            "failed": len(failures or ()),
        }
        self.batches[batch] |= {"status": status, "request_counts": counts, **more}
        for name, rows in (("output_file_id", results), ("error_file_id", failures)):
            if rows is not None:
                self.batches[batch][name] = file = f"file-{len(self.files)}"
                self.files[file] = "".join(
                    json.dumps(row) + "\n" for row in rows
                ).encode()

    async def _upload(self, request: web.Request) -> web.Response:
        self.keys.add(request.headers["Authorization"])
        form = await request.post()
        assert form["purpose"] == "batch"
        field, file = form["file"], f"file-{len(self.files)}"
        assert isinstance(field, web.FileField)
        self.files[file] = field.file.read()
        found = {
            "id": file,
            "object": "file",
            "bytes": len(self.files[file]),
            "created_at": 1,
            "purpose": "batch",
        }
        return web.json_response(
            found | {"filename": field.filename, "status": "processed"}
        )

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if asked["input_file_id"] not in self.files:
            return web.json_response({"error": {"message": "no such file"}}, status=400)
        batch = f"batch-{len(self.batches)}"
        self.batches[batch] = {
            **asked,
            "id": batch,
            "object": "batch",
            "created_at": 1,
            "status": "validating",
        }
        return web.json_response(self.batches[batch])

    async def _retrieve(self, request: web.Request) -> web.Response:
        found = self.batches.get(request.match_info["batch"])
        refusal = {"error": {"message": "no such batch"}}
        return web.json_response(found or refusal, status=200 if found else 404)

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["file"]])


@asynccontextmanager
async def batch_endpoint() -> AsyncIterator[BatchEndpoint]:
    """Serve a batch API on a free port."""
    endpoint = BatchEndpoint()
    app = web.Application()
    app.router.add_post("/v1/files", endpoint._upload)
    app.router.add_post("/v1/batches", endpoint._create)
    app.router.add_get("/v1/batches/{batch}", endpoint._retrieve)
    app.router.add_get("/v1/files/{file}/content", endpoint._content)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield endpoint
    finally:
        await runner.cleanup()
