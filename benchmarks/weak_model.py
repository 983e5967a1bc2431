"""Puts a weak model into every role and curates threads with it: nothing may be released, and nothing asked for ever.

    python benchmarks/weak_model.py THREADS.jsonl [--count 20] [--roles validator rubric] [--server NAME]

SmolLM2-135M cannot do these tasks. What is measured is what became of its replies: where threads stand, for which
reasons, and how many calls each cost. The servers are those of `make endpoints`.
"""

import argparse
import collections
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from endpoints import ROOT, SERVERS, running
from throwaway import throwaway_home

ROLES = ("screener", "validator", "controller", "rubric", "reader", "grader")
ROLE = """
[roles.{role}]
engine = "openai"
base_url = "{url}"
model = "{model}"
api_key_env = "ENDPOINT_KEY"
concurrency = 2
timeout_s = 600
parameters = {parameters}
"""
CALLS = """
SELECT task, outcome, count(*) FROM agent_calls GROUP BY 1, 2 ORDER BY 1, 2
"""
MOST_CALLS = "SELECT coalesce(max(n), 0) FROM (SELECT count(*) n FROM agent_calls GROUP BY curation_id) x"


def medlive(
    environment: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "medlive"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def measure(
    home: Path,
    url: str,
    model: str,
    threads: Path,
    count: int,
    roles: list[str],
    most_tokens: int,
) -> dict[str, Any]:
    """Import and curate, twice, as a plain `medlive curate` tries failed threads again."""
    config = home / "config"
    shutil.copytree(ROOT / "config", config)
    tables = []
    for role in ROLES:
        table = f'[roles.{role}]\nengine = "rules"\n'
        if role in roles:
            limit = f"{{ max_tokens = {most_tokens} }}"
            table = ROLE.format(role=role, url=url, model=model, parameters=limit)
        tables.append(table)
    (config / "models.toml").write_text("".join(tables))
    chosen = home / "threads.jsonl"
    with threads.open() as lines, chosen.open("w") as out:
        out.writelines(itertools.islice(lines, count))
    environment = {
        **os.environ,
        "MEDLIVE_HOME": str(home),
        "MEDLIVE_CONFIG": str(config),
        "ENDPOINT_KEY": "sk-local-endpoints",
    }
    medlive(environment, "db", "start")
    medlive(environment, "import", str(chosen), "--assume-posted-at", "2026-06-01")
    corpus = ROOT / "medlive" / "demo" / "data" / "evidence.jsonl"
    medlive(environment, "evidence", "build", str(corpus))
    result: dict[str, Any] = {"curate": []}
    for _ in range(2):
        began = time.monotonic()
        done = medlive(environment, "curate", "--json")
        whole = json.loads(done.stdout)
        names = ("outcomes", "failures", "calls", "left", "stopped", "misconfigured")
        kept = {name: whole[name] for name in names}
        kept["messages"] = done.stderr.splitlines()
        seconds = round(time.monotonic() - began)
        result["curate"].append({"status": done.returncode, "seconds": seconds, **kept})
    rows = json.loads(medlive(environment, "thread", "list", "--json").stdout)["rows"]
    result["threads"] = collections.Counter(
        " / ".join(str(row[name]) for name in ("stage", "outcome", "reason", "detail"))
        for row in rows
    ).most_common()
    database = medlive(environment, "db", "url").stdout.strip()
    with psycopg.connect(re.sub(r"\+\w+:", ":", database)) as connection:
        result["calls"] = connection.execute(CALLS).fetchall()
        result["most calls of a thread"] = connection.execute(MOST_CALLS).fetchone()
        result["cases"] = connection.execute("SELECT count(*) FROM cases").fetchone()
    return result


def main() -> None:
    """Start the server, curate and print what became of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("threads", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument(
        "--roles", nargs="+", default=list(ROLES), help="others are the rules engine's"
    )
    parser.add_argument("--max-tokens", type=int, default=600)
    parser.add_argument("--server", default="llama-server")
    parser.add_argument("--home", type=Path, default=ROOT / ".medlive" / "endpoints")
    choice = parser.parse_args()
    choice.home.mkdir(parents=True, exist_ok=True)
    (server,) = [one for one in SERVERS if choice.server in one.name]
    with running(server, choice.home.resolve()) as url, throwaway_home() as home:
        result = measure(
            home,
            url,
            server.model,
            choice.threads,
            choice.count,
            choice.roles,
            choice.max_tokens,
        )
    print(json.dumps(result, indent=1, default=str))


if __name__ == "__main__":
    main()
