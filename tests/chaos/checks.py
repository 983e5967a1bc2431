"""What must be so after every round, by the database, the endpoint's count, and the files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medlive.snapshot.verify.run import verify_snapshot
from tests.chaos.stage import Week

_THREADS = """
SELECT t.source, t.thread_id, (SELECT string_agg(r.digest, ' ' ORDER BY r.revision) FROM thread_revisions r
                               WHERE r.thread_id = t.id),
       (SELECT (s.outcome, s.stage, s.reason)::text FROM thread_standings s WHERE s.thread_id = t.id)
FROM threads t ORDER BY 1, 2
"""
_CASES = """
SELECT t.thread_id, k.id, r.revision, md5(r.narrative || '|' || r.query || '|' || r.advice),
       (SELECT count(*) FROM criteria c WHERE c.case_id = r.case_id AND c.revision = r.revision)
FROM case_revisions r JOIN cases k ON k.id = r.case_id JOIN threads t ON t.id = k.thread_id ORDER BY 1, 2, 3
"""
_DECIDED_TWICE = """
SELECT revision_id, count(*) FROM curations WHERE outcome <> 'failed' GROUP BY 1 HAVING count(*) > 1
"""
_LEFT = """
SELECT queue_name, status::text, args::text FROM procrastinate_jobs
WHERE status NOT IN ('succeeded', 'todo', 'doing')
"""


@dataclass(frozen=True)
class Outcome:
    """What a week came to."""

    threads: list[Any]
    cases: list[Any]
    files: dict[str, bytes]
    events: int = 0  # Pages and replies that it took
    release_s: float = 0.0  # From the freeze to the announcement


def outcome_of(week: Week, release_s: float = 0.0) -> Outcome:
    """Read what a week came to."""
    return Outcome(
        week.instance.rows(_THREADS), week.instance.rows(_CASES), read_snapshot(_folder(week), week), week.events,
        release_s,
    )  # fmt: skip


def read_snapshot(folder: Path, week: Week) -> dict[str, bytes]:
    """A snapshot's files, its moment of creation, and the digests that depend on that, taken out."""
    ((created,),) = week.instance.rows("SELECT created_at FROM snapshots WHERE version = %s", [week.name])
    moment = f"{created:%Y-%m-%dT%H:%M:%SZ}".encode()
    found = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    sums = dict(line.split(b"  ")[::-1] for line in found.pop("SHA256SUMS").splitlines())
    dated = [name for name, data in found.items() if moment in data or f"{created:%Y-%m-%d}".encode() in data]
    for name in dated:
        found[name] = found[name].replace(moment, b"<created>").replace(f"{created:%Y-%m-%d}".encode(), b"<day>")
    for name in found:
        for other in dated:
            found[name] = found[name].replace(sums.get(other.encode(), b"-"), b"<digest>")
    return found


def _folder(week: Week) -> Path:
    return week.instance.home / "snapshots" / f"medlive-{week.name}"


def differences(week: Week, calm: Outcome) -> list[str]:
    """What is not as it must be; empty when all is well."""
    found = outcome_of(week)
    problems = []
    if found.threads != calm.threads:
        problems.append(f"threads: {_first_difference(found.threads, calm.threads)}")
    if found.cases != calm.cases:
        problems.append(f"cases: {_first_difference(found.cases, calm.cases)}")
    if twice := week.instance.rows(_DECIDED_TWICE):
        problems.append(f"decided twice: {twice}")
    stored = {serial for (serial,) in week.instance.rows("SELECT output_tokens FROM replies")}
    if paid := [key for key, serials in week.endpoint.given.items() if stored.intersection(serials[:-1])]:
        problems.append(f"paid twice: {sorted(paid)}")
    if left := week.instance.rows(_LEFT):
        problems.append(f"jobs left: {left}")
    now_frozen = week.digest_frozen()
    if week.frozen_rows and now_frozen != week.frozen_rows:
        problems.append(f"frozen rows changed: {[t for t in now_frozen if now_frozen[t] != week.frozen_rows[t]]}")
    if found.files != calm.files:
        names = found.files.keys() | calm.files.keys()
        problems.append(f"snapshot: {sorted(n for n in names if found.files.get(n) != calm.files.get(n))} differ")
    published = week.public / f"medlive-{week.name}"
    if read_snapshot(published, week) != found.files:
        problems.append("what was published is not the snapshot")
    if not (report := verify_snapshot(published)).ok:
        problems.append(f"what was published does not verify: {report.summary()}")
    log = week.shift.with_name("log").read_text(errors="replace")
    if "Traceback" in log:
        problems.append("traceback: " + log[log.index("Traceback") :].split("\n\n")[0][-1500:])
    return problems


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    pair = next(((a, b) for a, b in zip(found, wanted, strict=False) if a != b), (len(found), len(wanted)))
    return f"{pair[0]}, not {pair[1]}"
