"""Makes what lies beside this file: an instance as medlive 0.1.0 left it, by 0.1.0 itself.

The last commit whose only migration is 0001 is unpacked, and its own commands are run: a whole week of the demo, and
what people do. `database.sql.xz` has its tables with their rows, `home.tar.xz` its folders. Run once; needs git and a
PostgreSQL.

    python tests/data/release_0_1_0/make.py
"""

import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import psycopg

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
COMMIT = "6dd4461f"
FOLDERS = ("archive", "snapshots")
WAITING = ("900001", "900002")
"""Threads that are queued when the instance is left."""
HELD, WITHDRAWN, DISPUTED = (
    "SELECT min(id) FROM cases WHERE status = 'held'",
    "SELECT min(id) FROM cases WHERE status = 'ready'",
    "SELECT max(id) FROM cases WHERE status = 'ready'",
)
TAKEN_DOWN = (
    "SELECT source || ' ' || t.thread_id FROM threads t LEFT JOIN cases c"
    " ON c.thread_id = t.id WHERE c.id IS NULL ORDER BY t.id LIMIT 1"
)
STUDY = (
    "INSERT INTO studies (name, kind, stratum, seed, raters, created_by)"
    " VALUES ('first', 'case_quality', 'none', 1, '{ada,ben}', 'ada')",
    "INSERT INTO study_items (study, item, position, case_id, revision, aspect)"
    " SELECT 'first', 'i1', 1, min(id), 1, 'narrative' FROM cases",
    "INSERT INTO study_ratings (study, item, rater, rating, comment)"
    " VALUES ('first', 'i1', 'ada', 2, 'clear'), ('first', 'i1', 'ben', 1, '')",
)


def main() -> None:
    """Make the instance, and write the two files."""
    with tempfile.TemporaryDirectory(prefix="medlive-0-1-0-") as folder:
        place = Path(folder)
        place.chmod(0o755)  # root's PostgreSQL runs as another user, who must get in
        old, home = place / "medlive", place / "home"
        old.mkdir()
        archive = subprocess.run(
            ["git", "archive", COMMIT], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x"], cwd=old, check=True, input=archive.stdout)
        run(old, home, "demo")
        try:
            use(old, home)
            write(old, home)
        finally:
            run(old, home, "db", "stop")


def run(old: Path, home: Path, *arguments: str) -> str:
    """What a command of the old version prints."""
    environment = {**os.environ, "PYTHONPATH": str(old), "MEDLIVE_HOME": str(home)}
    command = [sys.executable, "-m", "medlive", *arguments]
    done = subprocess.run(
        command, cwd=old, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


def url_of(old: Path, home: Path) -> str:
    return run(old, home, "db", "url").replace("+psycopg", "")


def use(old: Path, home: Path) -> None:
    """Do what people do: review, withdraw, dispute, take down, rate, queue."""
    with psycopg.connect(url_of(old, home), autocommit=True) as connection:

        def value(query: str) -> str:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return str(row[0])

        because = ("--reason", "a test of upgrades", "--by", "ada")
        run(old, home, "review", "approve", value(HELD), *because)
        run(old, home, "review", "dispute", value(DISPUTED), *because)
        withdrawn = value(WITHDRAWN)
        run(old, home, "snapshot", "withdraw", withdrawn, "--kind", "erratum", *because)
        run(old, home, "thread", "takedown", *value(TAKEN_DOWN).split(), *because)
        run(old, home, "user", "invite", "ada", "--role", "admin")
        for statement in STUDY:
            connection.execute(statement.encode())
        threads = home / "threads.jsonl"
        lines = []
        for number in WAITING:
            lines.append(json.dumps(thread(number)) + "\n")
        threads.write_text("".join(lines), encoding="utf-8")
        run(old, home, "import", str(threads))
        run(old, home, "filter")
        assert value("SELECT count(*) FROM procrastinate_jobs") == str(len(WAITING))


def thread(number: str) -> dict[str, object]:
    """A thread that passes the filters."""
    question = (
        f"My father, 6{number[-1]} years old with hypertension, takes ramipril and has had a dry cough for three"
        " weeks. What can he take instead?"
    )
    answer = "A dry cough is common with ACE inhibitors. Ask about an angiotensin receptor blocker such as losartan."
    at = "2026-10-01T08:00:00Z"
    patient = {"id": "m0", "author": "p", "role": "patient", "verified": False}
    physician = {"id": "m1", "author": "d", "role": "physician", "verified": True}
    return {
        "source": "sdn",
        "thread_id": number,
        "url": f"https://forum.example/{number}",
        "title": f"Cough with ramipril, case {number}",
        "language": "en",
        "posted_at": at,
        "messages": [
            patient | {"posted_at": at, "text": question},
            physician
            | {"posted_at": at, "text": answer, "verified_by": "Attending Physician"},
        ],
    }


def write(old: Path, home: Path) -> None:
    """Write the dump, and the folders."""
    from medlive.db.embedded import find_program

    dump = subprocess.run(
        [
            find_program("pg_dump", 18),
            *("--inserts", "--rows-per-insert=100", "--no-owner", "--no-acl"),
            f"--dbname={url_of(old, home)}",
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    # psql's own commands, which no other client understands.
    dump = re.sub(r"^\\.*\n", "", dump, flags=re.MULTILINE)
    packed = lzma.compress(dump.encode(), preset=9)
    (HERE / "database.sql.xz").write_bytes(packed)
    with tarfile.open(HERE / "home.tar.xz", "w:xz") as folders:
        for name in FOLDERS:
            folders.add(home / name, arcname=name)


if __name__ == "__main__":
    main()
