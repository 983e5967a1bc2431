"""What must be so after every round, by the database, the endpoint's count, and the files."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from medlive.snapshot.verify.steps import verify_snapshot
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
_MEMBERS = "SELECT case_id FROM snapshot_members WHERE version = %s ORDER BY 1"
_STANDING = "SELECT meta->'standing', meta->'partial' FROM snapshots WHERE version = %s"
_LOST = "SELECT revision_id FROM medlive_waiting_threads() WHERE waits_for IS NULL"
_NEVER_WRITTEN = ("Traceback", "internal error", "never retrieved")


@dataclass(frozen=True)
class Outcome:
    """What a week came to."""

    threads: list[Any]
    cases: list[Any]
    files: dict[str, bytes]
    members: list[Any]
    events: int = 0  # Pages and replies that it took
    release_s: float = 0.0  # From the freeze to the announcement


def outcome_of(week: Week, release_s: float = 0.0) -> Outcome:
    """Read what a week came to."""
    return Outcome(
        threads=week.instance.rows(_THREADS),
        cases=week.instance.rows(_CASES),
        files=read_snapshot(snapshot_folder(week), week),
        members=week.instance.rows(_MEMBERS, [week.name]),
        events=week.events,
        release_s=release_s,
    )


def read_snapshot(folder: Path, week: Week) -> dict[str, bytes]:
    """A snapshot's files, its moment of creation, the digests that depend on that, and its cost taken out.

    What a fault has had asked twice costs twice.
    """
    ((created,),) = week.instance.rows(
        "SELECT created_at FROM snapshots WHERE version = %s", [week.name]
    )
    moment = f"{created:%Y-%m-%dT%H:%M:%SZ}".encode()
    found = {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
    sums = dict(
        line.split(b"  ")[::-1] for line in found.pop("SHA256SUMS").splitlines()
    )
    dated = [
        name
        for name, data in found.items()
        if moment in data or f"{created:%Y-%m-%d}".encode() in data
    ]
    for name in dated:
        found[name] = (
            found[name]
            .replace(moment, b"<created>")
            .replace(f"{created:%Y-%m-%d}".encode(), b"<day>")
        )
    for name in found:
        for other in dated:
            found[name] = found[name].replace(
                sums.get(other.encode(), b"-"), b"<digest>"
            )
    manifest = json.loads(found["manifest.json"])
    assert manifest.pop("cost")["replies"] > 0
    found["manifest.json"] = json.dumps(manifest).encode()
    return found


def snapshot_folder(week: Week) -> Path:
    """The folder of the present week's snapshot."""
    return week.instance.home / "snapshots" / f"medlive-{week.name}"


def differences(week: Week, calm: Outcome, *, may_fail: bool = False) -> list[str]:
    """What is not as it must be; empty when all is well.

    Args:
        week: What has come to its end.
        calm: What an undisturbed week comes to.
        may_fail: Whether threads may have failed with a reason when the week was frozen.
    """
    found = outcome_of(week)
    problems = []
    if found.threads != calm.threads:
        problems.append(f"threads: {_first_difference(found.threads, calm.threads)}")
    if found.cases != calm.cases:
        problems.append(f"cases: {_first_difference(found.cases, calm.cases)}")
    problems += find_losses(week)
    problems += find_changed(week, week.name, week.frozen_rows)
    not_in_it = count_left_out(week)
    if not_in_it and (may_fail or week.rest_in):
        problems += _check_left_out(week, found, calm, not_in_it)
    elif not_in_it:
        problems.append(f"not whole: {week.instance.rows(_STANDING, [week.name])}")
    elif found.files != calm.files:
        names = found.files.keys() | calm.files.keys()
        problems.append(
            f"snapshot: {sorted(n for n in names if found.files.get(n) != calm.files.get(n))} differ"
        )
    problems += check_published(week, found.files)
    problems += find_written(week)
    return problems


def find_losses(week: Week, *, late: timedelta = timedelta()) -> list[str]:
    """Threads that are lost, replies that were paid twice, jobs that failed.

    Args:
        week: What has come to its end.
        late: How long a reply may take to be stored after its request was asked again: where the database is lost
            another worker may ask while the first answer waits for it. Zero: an answer that was stored is the last.
    """
    problems = []
    if twice := week.instance.rows(_DECIDED_TWICE):
        problems.append(f"decided twice: {twice}")
    stored = dict(week.instance.rows("SELECT output_tokens, created_at FROM replies"))
    paid = []
    for key, serials in week.endpoint.given.items():
        for serial, again in pairwise(serials):
            gap = (
                stored[serial] - week.endpoint.came[again] if serial in stored else None
            )
            if gap is not None and (not late or gap < -late):
                paid.append(f"{key}: {-gap} later")
    if paid:
        problems.append(f"paid twice: {sorted(paid)}")
    if lost := week.instance.rows(_LOST):
        problems.append(f"lost threads: {lost}")
    if left := week.instance.rows(_LEFT):
        problems.append(f"jobs left: {left}")
    return problems


def find_changed(week: Week, name: str, frozen: Mapping[str, str]) -> Iterator[str]:
    """Which tables' rows of a frozen week are not what they were."""
    rows = week.digest_frozen(name) if frozen else {}
    changed = [table for table in rows if rows[table] != frozen[table]]
    if changed:
        yield f"frozen rows of {name} changed: {changed}"


def check_published(week: Week, files: Mapping[str, bytes]) -> Iterator[str]:
    """What was published of the present week is its snapshot, and verifies."""
    published = week.public / f"medlive-{week.name}"
    if read_snapshot(published, week) != files:
        yield "what was published is not the snapshot"
    if not (report := verify_snapshot(published)).ok:
        yield f"what was published does not verify: {report.summary()}"


def find_written(week: Week) -> Iterator[str]:
    """What no log may hold."""
    log = week.shift.with_name("log").read_text(errors="replace")
    for words in _NEVER_WRITTEN:
        if words in log:
            yield f"log: {log[max(0, log.index(words) - 200) :][:2500]}"


def count_left_out(week: Week) -> int:
    """How many threads the frozen week was without: failed with a reason, or waiting still."""
    (((_, _, _, failed, waiting), _),) = week.instance.rows(_STANDING, [week.name])
    return int(failed + waiting)


def _check_left_out(
    week: Week, found: Outcome, calm: Outcome, left_out: int
) -> Iterator[str]:
    """A frozen week without some threads says so, and lacks no others."""
    (((_, _, _, _, waiting), partial),) = week.instance.rows(_STANDING, [week.name])
    manifest = json.loads((snapshot_folder(week) / "manifest.json").read_bytes())
    if bool(waiting) != bool(partial) or bool(partial) != bool(manifest.get("partial")):
        yield f"{waiting} threads wait, and the manifest says {manifest.get('partial')}"
    if (
        not set(found.members) <= set(calm.members)
        or len(calm.members) - len(found.members) > left_out
    ):
        yield f"members: {found.members} without {left_out} threads, not {calm.members}"
    if week.rest_in is not None:
        rest = week.instance.rows(_MEMBERS, [week.rest_in])
        if rest != calm.members or count_partial(week, week.rest_in):
            yield f"the rest in {week.rest_in}: {rest}, not {calm.members}"


def count_partial(week: Week, name: str) -> int:
    """1 if a week was frozen in part."""
    return len(
        [partial for _, partial in week.instance.rows(_STANDING, [name]) if partial]
    )


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    pair = next(
        ((a, b) for a, b in zip(found, wanted, strict=False) if a != b),
        (len(found), len(wanted)),
    )
    return f"{pair[0]}, not {pair[1]}"
