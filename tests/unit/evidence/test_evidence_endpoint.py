"""An embeddings endpoint that misbehaves: every fault has its message, and none becomes a vector."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from medlive.errors import ConfigError, EvidenceUnavailable
from medlive.evidence.encoders.opening import open_encoder
from medlive.evidence.encoders.table import EncoderModel, EncoderSettings

Answer = Callable[[list[str]], tuple[int, Any]]


def vectors(texts: list[str]) -> list[dict[str, Any]]:
    """A vector that follows from the text, out of order as the form allows."""
    rows = []
    for index, text in enumerate(texts):
        seed = int.from_bytes(text.encode()[-8:], "big") + len(text)
        vector = np.random.default_rng(seed).standard_normal(8).tolist()
        rows.append({"index": index, "embedding": vector, "object": "embedding"})
    return rows[::-1]


def good(texts: list[str]) -> tuple[int, Any]:
    return 200, {"data": vectors(texts), "usage": {"total_tokens": 100 * len(texts)}}


def always(status: int, value: Any) -> Answer:
    """The same for whatever texts."""
    return lambda _: (status, value)


class Endpoint:
    """Answers as it is set to; keeps what was asked."""

    def __init__(self) -> None:
        self.answer: Answer = good
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.url = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.001)
    monkeypatch.setenv("KEY", "k")
    state = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.asked.append(body)
            state.keys.append(self.headers["Authorization"])
            status, value = state.answer(body["input"])
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(
            target=listening.serve_forever, args=(0.01,), daemon=True
        ).start()
        state.url = f"http://127.0.0.1:{listening.server_port}/v1"
        yield state
        listening.shutdown()


def settings(server: Endpoint, **entry: Any) -> EncoderSettings:
    model = EncoderModel(query="m", base_url=server.url, **entry)
    return EncoderSettings(models=Path("unused"), own_encoders={"mine": model}, batch=4)


def test_vectors_come_in_order_with_prompts_in_batches(
    server: Endpoint,
) -> None:
    own = settings(server, query_prompt="query: ", api_key_env="KEY")
    encoder = open_encoder("mine", settings=own)
    server.asked.clear()
    texts = [f"text {n}" for n in range(9)] + ["", "lone \ud800", "x" * 1_000_000]
    first = encoder.encode_queries(texts)
    assert [len(body["input"]) for body in server.asked] == [4, 4, 4]
    assert server.asked[0]["input"][0] == "query: text 0"
    assert set(server.keys) == {"Bearer k"}
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(encoder.encode_queries(texts[::-1]), first[::-1])
    alone = open_encoder("mine", settings=own).encode_queries(["text 5"])
    np.testing.assert_array_equal(alone[0], first[5])


NO_VECTORS: list[tuple[tuple[int, Any], str]] = [
    ((400, {"error": "no such model"}), "400"),
    ((503, {}), "503"),
    ((200, b"<html>"), "no embeddings"),
    ((200, {"data": []}), "0 vectors for"),
    ((200, {"data": [{"index": 0, "embedding": []}]}), "1 vectors for"),
    ((200, {"data": [{"index": 0, "embedding": ["a"]}]}), "1 vectors for"),
    ((200, b'{"data": [{"index": 0, "embedding": [NaN]}]}'), "1 vectors for"),
    ((302, {}), "302"),
]


def test_what_is_not_a_vector_is_refused(server: Endpoint) -> None:
    encoder = open_encoder("mine", settings=settings(server))
    for answer, message in NO_VECTORS:
        server.answer = always(*answer)
        with pytest.raises(EvidenceUnavailable, match=message):
            encoder.encode_passages([("", "one"), ("", "two")])
        with pytest.raises(EvidenceUnavailable):
            open_encoder("mine", settings=settings(server))


def test_a_short_outage_is_waited_out(server: Endpoint) -> None:
    encoder = open_encoder("mine", settings=settings(server))
    answers: Iterator[tuple[int, Any]] = iter([(503, {}), (429, {})])
    server.answer = lambda texts: next(answers, None) or good(texts)
    assert encoder.encode_passages([("", "one")]).shape == (1, 8)


def test_lengths_that_differ_are_refused(server: Endpoint) -> None:
    encoder = open_encoder("mine", settings=settings(server))

    def uneven(texts: list[str]) -> tuple[int, Any]:
        rows = vectors(texts)
        rows[0]["embedding"] = rows[0]["embedding"][:5]
        return 200, {"data": rows}

    server.answer = uneven
    with pytest.raises(EvidenceUnavailable, match="different lengths"):
        encoder.encode_passages([("", "one"), ("", "two")])
    with pytest.raises(EvidenceUnavailable, match="other lengths than 8"):
        encoder.encode_queries(["one"])


def test_nothing_is_asked_beyond_the_budget_and_no_key_is_a_clear_error(
    server: Endpoint,
) -> None:
    priced = settings(server, usd_per_million_tokens=1000, max_usd=1.0)
    encoder = open_encoder("mine", settings=priced)  # 10 texts: 1 USD
    asked = len(server.asked)
    with pytest.raises(EvidenceUnavailable, match=r"cost 1\.00 USD"):
        encoder.encode_passages([("", "one")])
    assert len(server.asked) == asked
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        open_encoder("mine", settings=settings(server, api_key_env="NO_SUCH_KEY"))
