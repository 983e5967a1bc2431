"""`medlive doctor`: tries for real what a week needs, before the week does.

Each examination asks one thing of the set-up and answers with findings, one line each: what was tried, what came
out, and what to do. An examination never raises for what it examines; the next one runs in any case.
"""

import importlib.util
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from medlive.clock import now
from medlive.config import RoleSettings, Settings
from medlive.db.migrate import check as schema_differences
from medlive.db.runs import load_history
from medlive.db.session import read_clock
from medlive.errors import IndexMissing, LiteratureUnavailable, MedliveError
from medlive.integrity.signing import load_signing_key
from medlive.llm.engine import UNNAMED, Prompt, Reply, Request
from medlive.llm.reading import NoObject, read_object
from medlive.service.database import database_url, open_database
from medlive.service.notify import places, send
from medlive.service.paths import index_path
from medlive.service.schedule.clocks import clock_problem
from medlive.service.wiring import (
    find_dependent_judges,
    open_endpoint,
    proof_roles,
)

if TYPE_CHECKING:
    from medlive.sources.fetching.fetch import Fetcher
    from medlive.sources.fetching.policy import FetchPolicy
    from medlive.sources.source import PageRequest

WEEKS_AHEAD: Final = 52
"""The disk is compared with what a year of weeks would add."""
GB_A_WEEK: Final = 0.5
"""What a week adds where none was harvested yet: twice what 10,000 threads and their pages take."""
LOW_SHARE: Final = 0.05
"""Less of a disk than this share free is too little for any week."""
_GB: Final = 1024**3
_EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "medcpt": ("torch", "transformers", "faiss"),
    "s3": ("boto3",),
    "huggingface": ("huggingface_hub",),
}
"""Feature → the modules that it imports."""


class Health(StrEnum):
    """How an examination ended."""

    GOOD = "good"
    WARNING = "warning"  # The week runs; somebody should know
    BAD = "bad"  # The week fails or is spoilt
    SKIPPED = "skipped"  # Nothing is configured that could be tried


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    subject: str
    health: Health
    text: str
    next_step: str = ""


Examination = Callable[[Settings], Awaitable[list[Finding]]]


class _Ready(BaseModel):
    ready: bool


async def examine(settings: Settings, *, send: bool = True) -> AsyncIterator[Finding]:
    """Yield the findings of every examination, in the order in which a week needs things.

    Args:
        settings: The settings to try.
        send: Whether a message is really sent to the webhook and by e-mail.
    """
    for subject, examination in EXAMINATIONS:
        if subject == "messages" and not send:
            yield Finding("messages", Health.SKIPPED, "not sent, as asked")
            continue
        try:
            findings = await examination(settings)
        except MedliveError as exc:
            findings = [_bad(subject, exc.message, exc.hint or "")]
        for finding in findings:
            yield finding


def _good(subject: str, text: str) -> Finding:
    return Finding(subject, Health.GOOD, text)


def _bad(subject: str, text: str, next_step: str) -> Finding:
    return Finding(subject, Health.BAD, text, next_step)


def _warning(subject: str, text: str, next_step: str) -> Finding:
    return Finding(subject, Health.WARNING, text, next_step)


async def examine_home(settings: Settings) -> list[Finding]:
    """Whether the home can be written, is private, and has room for a year."""
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(home, os.W_OK | os.X_OK):
        return [
            _bad(
                "home",
                f"{home} cannot be written by this user",
                "run as its owner, or set MEDLIVE_HOME",
            )
        ]
    findings = [_good("home", f"{home} can be written")]
    if home.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        step = f"chmod go-r {home}"
        findings.append(
            _warning("home", f"{home} is readable by other users of this machine", step)
        )
    return findings


async def examine_disk(settings: Settings) -> list[Finding]:
    """Whether the disk of the home has room for a year of weeks like those before."""
    usage = shutil.disk_usage(settings.home)
    weeks = await _weeks_harvested(settings)
    used = sum(
        path.lstat().st_size for path in settings.home.rglob("*") if path.is_file()
    )
    per_week = used / weeks / _GB if weeks else GB_A_WEEK
    basis = f"{weeks} weeks so far" if weeks else "10,000 threads a week are assumed"
    if weeks is None:
        basis += ": the database cannot say how many weeks there were"
    needed, free = per_week * WEEKS_AHEAD, usage.free / _GB
    text = f"{free:.1f} GB free; a year takes about {needed:.1f} GB ({basis})"
    step = "a larger disk, [archive] keep_days, or archive.folder on another disk"
    if usage.free < LOW_SHARE * usage.total:
        return [_bad("disk", text, step)]
    return [_warning("disk", text, step) if free < needed else _good("disk", text)]


async def _weeks_harvested(settings: Settings) -> int | None:
    """The whole weeks since the first harvest, 0 where there was none; None where the database cannot say."""
    try:
        async with open_database(settings) as database, database.begin() as session:
            history = await load_history(session)
    except MedliveError:
        return None
    begun = [harvest.first_at for harvest in history.harvests.values()]
    return (now() - min(begun)) // timedelta(weeks=1) if begun else 0


async def examine_database(settings: Settings) -> list[Finding]:
    """Whether the database answers, has this version's schema, and agrees about the time."""
    async with open_database(settings) as database, database.begin() as session:
        off = clock_problem(now(), await read_clock(session))
    if off is not None:
        return [
            _bad(
                "database",
                off,
                "let both machines set their clocks by the network (NTP)",
            )
        ]
    differences = schema_differences(database_url(settings))
    if differences:
        step = "medlive db check lists them; restore a backup, or upgrade with the version that made the tables"
        return [
            _bad(
                "database",
                f"{len(differences)} differences between tables and model",
                step,
            )
        ]
    return [_good("database", "it answers, and its tables are this version's")]


async def examine_extras(settings: Settings) -> list[Finding]:
    """Whether the optional packages that the settings need are installed."""
    needed = _needed_extras(settings)
    missing = []
    for extra in needed:
        absent = [name for name in _EXTRAS[extra] if not _is_installed(name)]
        if absent:
            package = "publish" if extra in ("s3", "huggingface") else extra
            text = f"{extra} is configured and {', '.join(absent)} cannot be imported"
            missing.append(_bad("extras", text, f"install medlive[{package}]"))
    return missing or [
        _good(
            "extras",
            f"all that is configured is installed ({', '.join(needed) or 'none needed'})",
        )
    ]


def _needed_extras(settings: Settings) -> list[str]:
    needed = []
    if (
        settings.evidence.retriever in ("dense", "hybrid")
        or settings.evidence.reranker == "medcpt"
    ):
        needed.append("medcpt")
    if settings.publish.to in ("s3", "huggingface"):
        needed.append(settings.publish.to)
    return needed


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


async def examine_keys(settings: Settings) -> list[Finding]:
    """Whether the signing key can be read."""
    key = load_signing_key(os.environ)
    if key is None:
        step = "medlive snapshot keygen, and MEDLIVE_SIGNING_KEY_FILE"
        return [
            _warning(
                "signing key",
                "none: snapshots are not signed, so nobody can prove their origin",
                step,
            )
        ]
    return [_good("signing key", f"key {key.public.id_text()} signs snapshots")]


async def examine_roles(settings: Settings) -> list[Finding]:
    """Whether each role's endpoint answers a real call, by the right model, with usage and a price."""
    findings = []
    for name, role in settings.roles:
        if name == "prober" and role.engine == "rules":
            continue  # Another role's model takes its place: `examine_proof`
        findings.append(await _examine_role(name, role, settings))
    return findings


async def examine_proof(settings: Settings) -> list[Finding]:
    """Whether rubrics are proved, and by models that are not the writer's."""
    roles = proof_roles(settings)
    if not roles:
        text = "rubrics are not proved: [rubric] prove is off, or the rules engine writes them"
        return [Finding("rubric proof", Health.SKIPPED, text)]
    findings = []
    for warning in find_dependent_judges(settings):
        if warning.startswith("rubrics"):
            step = "another model under [roles.prober] or [roles.grader] in models.toml"
            findings.append(_warning("rubric proof", warning, step))
    if settings.roles.grader.engine == "rules":
        text = (
            f"[roles.grader] names no model: {roles['grader'].model} grades the answers"
        )
        step = "a model under [roles.grader] in models.toml"
        findings.append(_warning("rubric proof", text, step))
    named = ", ".join(f"{role} {own.model}" for role, own in roles.items())
    return findings or [_good("rubric proof", named)]


async def _examine_role(name: str, role: RoleSettings, settings: Settings) -> Finding:
    subject = f"role {name}"
    if role.engine != "openai":
        step = f"set engine, base_url and model under [roles.{name}] in models.toml"
        return _warning(
            subject, f"engine {role.engine}: what it decides is not publishable", step
        )
    price = settings.prices.get(role.model or "")
    try:
        engine = open_endpoint(role, price)
        try:
            reply = await engine.answer(_request())
        finally:
            await engine.aclose()
    except MedliveError as exc:
        return _bad(
            subject, exc.message, exc.hint or f"see [roles.{name}] in models.toml"
        )
    return _judge_reply(subject, role, reply, priced=bool(role.price or price))


def _request() -> Request:
    instructions = 'This is a test of the connection. Answer with the JSON object {"ready": true} and nothing else.'
    return Request(
        task="doctor.ready",
        prompt=Prompt("doctor.ready", instructions),
        inputs={"asked_at": now().isoformat()},
        schema=_Ready.model_json_schema(),
    )


def _judge_reply(
    subject: str, role: RoleSettings, reply: Reply, *, priced: bool
) -> Finding:
    if reply.model != role.model and not role.allow_unpinned:
        answered = "an unnamed model" if reply.model == UNNAMED else repr(reply.model)
        step = "name that model, or set allow_unpinned = true in the role's table"
        return _bad(subject, f"{role.model!r} was asked and {answered} answered", step)
    try:
        _Ready.model_validate(read_object(reply.text))
    except (NoObject, ValueError):
        words = " ".join(reply.text.split())[:80]
        step = "another model, or another json_mode in the role's table"
        return _bad(
            subject,
            f"the reply is not the JSON object that was asked for: {words!r}",
            step,
        )
    usage = reply.usage
    if usage.estimated:
        step = "budgets count an upper bound of tokens instead; ask the endpoint to send usage"
        return _warning(subject, f"{reply.model} answers and sends no usage", step)
    if not priced:
        step = f'set a price under [prices."{role.model}"] in models.toml'
        return _warning(
            subject,
            f"{reply.model} answers and has no price: its cost is unknown",
            step,
        )
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    return _good(
        subject, f"{reply.model} answers: {tokens}, {usage.cost_usd or 0:.6f} USD"
    )


async def examine_evidence(settings: Settings) -> list[Finding]:
    """Whether the index opens, every file has its digest, and a search ends with passages; so for each service."""
    findings = await _examine_services(settings) if settings.evidence.online else []
    try:
        findings.append(await _examine_index(settings))
    except IndexMissing:
        if not settings.evidence.online:
            raise
    return findings


async def _examine_services(settings: Settings) -> list[Finding]:
    """Whether each literature service gives passages now, whatever was stored of it."""
    from medlive.service.wiring import open_online

    findings: list[Finding] = []
    async with open_database(settings) as database:
        retriever = open_online(settings, database, use_stored=False)
        assert retriever is not None
        async with aclosing(retriever):
            for service in retriever.services:
                search = partial(
                    service.search, "fever treatment", most=3, not_after=None
                )
                findings.append(await _examine_service(service.name, search))
    return findings


async def _examine_service(
    name: str, search: Callable[[], Awaitable[Sequence[object]]]
) -> Finding:
    try:
        hits = await search()
    except LiteratureUnavailable as error:
        step = "medlive doctor again later; [evidence] online in medlive.toml names the services"
        return _bad(f"evidence {name}", error.message, step)
    if not hits:
        step = "[evidence] online_addresses in medlive.toml: does it name the service?"
        return _warning(
            f"evidence {name}", "it answers, and has nothing on fever", step
        )
    return _good(f"evidence {name}", "it answers with passages")


async def _examine_index(settings: Settings) -> Finding:
    from medlive.evidence.passage import Query
    from medlive.service.wiring import open_retriever

    retriever = open_retriever(settings)
    # verifies the files first
    (hits,) = await retriever.search([Query("fever treatment")], k=3)
    passages = retriever.identity.passages
    if not hits:
        step = "medlive evidence list shows what it holds; build it from corpora on the threads' subjects"
        return _warning("evidence", f"{passages:,} passages, and none on fever", step)
    return _good(
        "evidence",
        f"{passages:,} passages at {index_path(settings)}, every file as it was built",
    )


async def examine_messages(settings: Settings) -> list[Finding]:
    """Whether the webhook and the mail server take a message."""
    section = settings.notify
    named = places(section)
    if not named:
        step = "set webhook or email_to under [notify] in medlive.toml"
        return [_warning("messages", "nobody is told when a week fails", step)]
    text = "a test message of medlive doctor; nothing has happened"
    for place in named:
        await send(section, place, {"event": "test", "week": "", "text": text})
    return [_good("messages", f"a test message was taken by {' and '.join(named)}")]


async def examine_backup(settings: Settings) -> list[Finding]:
    """Whether weekly backups have a folder that can be written, away from the home."""
    folder = settings.backup.folder
    if folder is None:
        step = "set [backup] folder in medlive.toml, on another disk"
        return [_warning("backup", "no weekly backup is made", step)]
    parent = _existing_parent(folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        return [
            _bad(
                "backup",
                f"{folder} cannot be written by this user",
                "let this user write there",
            )
        ]
    if parent.stat().st_dev == settings.home.stat().st_dev:
        step = "name a folder on another disk: one failure would take both"
        return [
            _warning("backup", f"{folder} is on the same disk as {settings.home}", step)
        ]
    return [_good("backup", f"{folder} can be written")]


def _existing_parent(path: Path) -> Path:
    return next(
        parent for parent in (path, *path.absolute().parents) if parent.exists()
    )


async def examine_sites(settings: Settings) -> list[Finding]:
    """Whether each community's robots.txt lets its lists be read; no page is fetched."""
    from medlive.service.harvest.sources import fetch_settings, select_sources
    from medlive.sources.fetching.fetch import Fetcher
    from medlive.sources.fetching.policy import FetchPolicy
    from medlive.sources.registry import build_site

    findings = []
    async with Fetcher(fetch_settings(settings)) as fetcher:
        for name, overrides in select_sources(settings, []).items():
            site = build_site(name, overrides)
            base_url = site.settings.base_url
            policy = FetchPolicy.of(site, base_url)
            findings.append(
                await _examine_site(
                    name, fetcher, site.listing_requests(base_url), policy
                )
            )
    return findings


async def _examine_site(
    name: str, fetcher: "Fetcher", lists: Sequence["PageRequest"], policy: "FetchPolicy"
) -> Finding:
    subject = f"site {name}"
    if not lists:
        return _bad(
            subject,
            "it has no list to read",
            f"set boards under [sources.{name}] in sources.toml",
        )
    try:
        robots = await fetcher.robots_of(lists[0].url, policy)
    except MedliveError as exc:
        return _bad(
            subject, exc.message, exc.hint or "medlive source check tries one page"
        )
    denied = [page.url for page in lists if not robots.allows(page.url)]
    if denied:
        why = robots.detail or f"it disallows {denied[0]}"
        step = f"ask the community, or set enabled = false under [sources.{name}] in sources.toml"
        return _bad(subject, f"robots.txt of {robots.host}: {why}", step)
    return _good(
        subject, f"robots.txt of {robots.host} allows its lists ({robots.state.value})"
    )


EXAMINATIONS: Final[tuple[tuple[str, Examination], ...]] = (
    ("home", examine_home),
    ("database", examine_database),
    ("disk", examine_disk),
    ("extras", examine_extras),
    ("signing key", examine_keys),
    ("roles", examine_roles),
    ("rubric proof", examine_proof),
    ("evidence", examine_evidence),
    ("backup", examine_backup),
    ("messages", examine_messages),
    ("sites", examine_sites),
)
"""Every examination, in the order in which a week needs things."""
