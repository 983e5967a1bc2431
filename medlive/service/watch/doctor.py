"""`medlive doctor`: tries for real what a week needs, before the week does.

Each examination asks one thing of the set-up and yields findings, one line each: what was tried, what came out, and
what to do. Whatever it raises is one more; the next one runs in any case.
"""

import importlib.util
import os
import shutil
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from medlive.clock import now
from medlive.config import RoleSettings, Settings
from medlive.db.schema.differences import find_differences
from medlive.db.session import read_clock
from medlive.errors import IndexMissing, LiteratureUnavailable, MedliveError
from medlive.evidence.encoders.folders import DOWNLOAD, PACKAGES
from medlive.evidence.encoders.table import LANGUAGES
from medlive.instance.opening import open_endpoint
from medlive.instance.paths import index_path
from medlive.integrity.signing import load_signing_key
from medlive.llm.engine import UNNAMED, Prompt, Reply, Request
from medlive.llm.reading import NoObject, read_object
from medlive.service.database import database_url, open_database
from medlive.service.schedule.clocks import clock_problem
from medlive.service.watch.notify import places, send
from medlive.service.wiring import find_dependent_judges, proof_roles

if TYPE_CHECKING:
    from medlive.sources.fetching.fetch import Fetcher
    from medlive.sources.fetching.policy import FetchPolicy
    from medlive.sources.source import PageRequest

_EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": PACKAGES,
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
class Diagnosis:
    """One line of the report."""

    health: Health
    text: str
    next_step: str = ""
    subject: str = ""  # "": the examination's


Diagnoses = AsyncIterator[Diagnosis]
Examination = Callable[[Settings], Diagnoses]


class _Ready(BaseModel):
    ready: bool


async def examine(settings: Settings, *, send: bool = True) -> Diagnoses:
    """Yield the findings of every examination, in the order in which a week needs things.

    Args:
        settings: The settings to try.
        send: Whether a message is really sent to the webhook and by e-mail.
    """
    for subject, examination in EXAMINATIONS:
        if subject == "messages" and not send:
            yield Diagnosis(Health.SKIPPED, "not sent, as asked", subject=subject)
            continue
        try:
            async for finding in examination(settings):
                yield replace(finding, subject=finding.subject or subject)
        except MedliveError as exc:
            yield replace(_failed(exc), subject=subject)


def _good(text: str) -> Diagnosis:
    return Diagnosis(Health.GOOD, text)


def _bad(text: str, next_step: str) -> Diagnosis:
    return Diagnosis(Health.BAD, text, next_step)


def _warning(text: str, next_step: str) -> Diagnosis:
    return Diagnosis(Health.WARNING, text, next_step)


def _failed(error: MedliveError, next_step: str = "") -> Diagnosis:
    return _bad(error.message, error.hint or next_step)


async def examine_home(settings: Settings) -> Diagnoses:
    """Whether the home can be written, is private, and has room for a year."""
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not os.access(home, os.W_OK | os.X_OK):
        step = "run as its owner, or set MEDLIVE_HOME"
        yield _bad(f"{home} cannot be written by this user", step)
        return
    yield _good(f"{home} can be written")
    if home.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        text = f"{home} is readable by other users of this machine"
        yield _warning(text, f"chmod go-r {home}")


async def examine_disk(settings: Settings) -> Diagnoses:
    """Whether the disk of the home has the room below which a check reports it."""
    usage, limits = shutil.disk_usage(settings.home), settings.watch
    least = max(limits.disk_free_gb * 1e9, limits.disk_free_share * usage.total)
    text = f"{usage.free / 1e9:.1f} of {usage.total / 1e9:.0f} GB are free"
    if usage.free < least:
        step = "a larger disk, [archive] keep_days, or archive.folder on another disk"
        yield _bad(text, step)
    else:
        yield _good(text)


async def examine_database(settings: Settings) -> Diagnoses:
    """Whether the database answers, has this version's schema, and agrees about the time."""
    async with open_database(settings) as database, database.begin() as session:
        off = clock_problem(now(), await read_clock(session))
    if off is not None:
        yield _bad(off, "let both machines set their clocks by the network (NTP)")
    elif differences := find_differences(database_url(settings)):
        text = f"{len(differences)} differences between tables and model"
        step = "medlive db check lists them; restore a backup, or upgrade with the version that made the tables"
        yield _bad(text, step)
    else:
        yield _good("it answers, and its tables are this version's")


async def examine_extras(settings: Settings) -> Diagnoses:
    """Whether the optional packages that the settings need are installed."""
    needed = _needed_extras(settings)
    is_complete = True
    for extra in needed:
        absent = [name for name in _EXTRAS[extra] if not _is_installed(name)]
        if absent:
            is_complete = False
            package = "publish" if extra in ("s3", "huggingface") else extra
            text = f"{extra} is configured and {', '.join(absent)} cannot be imported"
            yield _bad(text, f"install medlive[{package}]")
    if is_complete:
        named = ", ".join(needed) or "none needed"
        yield _good(f"all that is configured is installed ({named})")


def _needed_extras(settings: Settings) -> list[str]:
    needed = []
    evidence = settings.evidence
    if evidence.retriever in ("dense", "hybrid") or evidence.reranker:
        needed.append("dense")
    if settings.publish.to in ("s3", "huggingface"):
        needed.append(settings.publish.to)
    return needed


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


async def examine_keys(settings: Settings) -> Diagnoses:
    """Whether the signing key can be read."""
    key = load_signing_key(os.environ)
    if key is None:
        text = "none: snapshots are not signed, so nobody can prove their origin"
        yield _warning(text, "medlive snapshot keygen, and MEDLIVE_SIGNING_KEY_FILE")
    else:
        yield _good(f"key {key.public.id_text()} signs snapshots")


async def examine_roles(settings: Settings) -> Diagnoses:
    """Whether each role's endpoint answers a real call, by the right model, with usage and a price."""
    for name, role in settings.roles:
        if name == "prober" and role.engine == "rules":
            continue  # Another role's model takes its place: `examine_proof`
        finding = await _examine_role(name, role, settings)
        yield replace(finding, subject=f"role {name}")


async def examine_proof(settings: Settings) -> Diagnoses:
    """Whether rubrics are proved, and by models that are not the writer's."""
    roles = proof_roles(settings)
    if not roles:
        text = "rubrics are not proved: [rubric] prove is off, or the rules engine writes them"
        yield Diagnosis(Health.SKIPPED, text)
        return
    is_independent = True
    for warning in find_dependent_judges(settings):
        if warning.startswith("rubrics"):
            is_independent = False
            step = "another model under [roles.prober] or [roles.grader] in models.toml"
            yield _warning(warning, step)
    if settings.roles.grader.engine == "rules":
        text = (
            f"[roles.grader] names no model: {roles['grader'].model} grades the answers"
        )
        yield _warning(text, "a model under [roles.grader] in models.toml")
    elif is_independent:
        yield _good(", ".join(f"{role} {own.model}" for role, own in roles.items()))


async def _examine_role(name: str, role: RoleSettings, settings: Settings) -> Diagnosis:
    if role.engine != "openai":
        step = f"set engine, base_url and model under [roles.{name}] in models.toml"
        text = f"engine {role.engine}: what it decides is not publishable"
        return _warning(text, step)
    price = settings.prices.get(role.model or "")
    try:
        async with aclosing(open_endpoint(role, price)) as engine:
            reply = await engine.answer(_request())
    except MedliveError as exc:
        return _failed(exc, f"see [roles.{name}] in models.toml")
    return _judge_reply(role, reply, priced=bool(role.price or price))


def _request() -> Request:
    instructions = 'This is a test of the connection. Answer with the JSON object {"ready": true} and nothing else.'
    return Request(
        task="doctor.ready",
        prompt=Prompt("doctor.ready", instructions),
        inputs={"asked_at": now().isoformat()},
        schema=_Ready.model_json_schema(),
    )


def _judge_reply(role: RoleSettings, reply: Reply, *, priced: bool) -> Diagnosis:
    if reply.model != role.model and not role.allow_unpinned:
        answered = "an unnamed model" if reply.model == UNNAMED else repr(reply.model)
        step = "name that model, or set allow_unpinned = true in the role's table"
        return _bad(f"{role.model!r} was asked and {answered} answered", step)
    try:
        _Ready.model_validate(read_object(reply.text))
    except (NoObject, ValueError):
        words = " ".join(reply.text.split())[:80]
        step = "another model, or another json_mode in the role's table"
        text = f"the reply is not the JSON object that was asked for: {words!r}"
        return _bad(text, step)
    usage = reply.usage
    if usage.estimated:
        step = "budgets count an upper bound of tokens instead; ask the endpoint to send usage"
        return _warning(f"{reply.model} answers and sends no usage", step)
    if not priced:
        step = f'set a price under [prices."{role.model}"] in models.toml'
        text = f"{reply.model} answers and has no price: its cost is unknown"
        return _warning(text, step)
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    return _good(f"{reply.model} answers: {tokens}, {usage.cost_usd or 0:.6f} USD")


async def examine_evidence(settings: Settings) -> Diagnoses:
    """Whether the index opens, every file has its digest, and a search ends with passages; so for each service."""
    if settings.evidence.online:
        async for finding in _examine_services(settings):
            yield finding
    try:
        async for finding in _examine_index(settings):
            yield finding
    except IndexMissing:
        if not settings.evidence.online:
            raise


async def _examine_services(settings: Settings) -> Diagnoses:
    """Whether each literature service gives passages now, whatever was stored of it."""
    from medlive.service.wiring import open_online

    async with open_database(settings) as database:
        retriever = open_online(settings, database, use_stored=False)
        assert retriever is not None
        async with aclosing(retriever):
            for service in retriever.services:
                search = partial(
                    service.search, "fever treatment", most=3, not_after=None
                )
                finding = await _examine_service(search)
                yield replace(finding, subject=f"evidence {service.name}")


async def _examine_service(
    search: Callable[[], Awaitable[Sequence[object]]],
) -> Diagnosis:
    try:
        hits = await search()
    except LiteratureUnavailable as error:
        step = "medlive doctor again later; [evidence] online in medlive.toml names the services"
        return _bad(error.message, step)
    if not hits:
        step = "[evidence] online_addresses in medlive.toml: does it name the service?"
        return _warning("it answers, and has nothing on fever", step)
    return _good("it answers with passages")


async def _examine_index(settings: Settings) -> Diagnoses:
    from medlive.evidence.passage import Query
    from medlive.instance.opening import open_retriever

    retriever = open_retriever(settings)
    # verifies the files first
    (hits,) = await retriever.search([Query("fever treatment")], k=3)
    passages = retriever.identity.passages
    if not hits:
        step = "medlive evidence list shows what it holds; build it from corpora on the threads' subjects"
        yield _warning(f"{passages:,} passages, and none on fever", step)
        return
    where = index_path(settings)
    yield _good(f"{passages:,} passages at {where}, every file as it was built")
    reranker = settings.evidence.reranker
    if reranker and "reranker" not in (retriever.identity.dense or {}):
        text = f"reranker {reranker} is not used: no build measured that it finds more"
        yield _warning(
            text, "medlive evidence build measures it and says what it found"
        )
    served = {language for side in retriever.dense for language in side.weights}
    lacking = [language for language in LANGUAGES if language not in served]
    if served and lacking:
        step = f"{DOWNLOAD} NAME, then medlive evidence build; docs/evidence.md has a table of encoders"
        text = f"searched by words alone in {', '.join(lacking)}: no encoder reads it"
        yield _warning(text, step)


async def examine_messages(settings: Settings) -> Diagnoses:
    """Whether the webhook and the mail server take a message."""
    section = settings.notify
    named = places(section)
    if not named:
        step = "set webhook or email_to under [notify] in medlive.toml"
        yield _warning("nobody is told when a week fails", step)
        return
    text = "a test message of medlive doctor; nothing has happened"
    for place in named:
        await send(section, place, {"event": "test", "week": "", "text": text})
    yield _good(f"a test message was taken by {' and '.join(named)}")


async def examine_backup(settings: Settings) -> Diagnoses:
    """Whether weekly backups have a folder that can be written, away from the home."""
    folder = settings.backup.folder
    if folder is None:
        step = "set [backup] folder in medlive.toml, on another disk"
        yield _warning("no weekly backup is made", step)
        return
    parent = folder.absolute()
    while not parent.exists():
        parent = parent.parent
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        step = "let this user write there"
        yield _bad(f"{folder} cannot be written by this user", step)
    elif parent.stat().st_dev == settings.home.stat().st_dev:
        step = "name a folder on another disk: one failure would take both"
        yield _warning(f"{folder} is on the same disk as {settings.home}", step)
    else:
        yield _good(f"{folder} can be written")


async def examine_sites(settings: Settings) -> Diagnoses:
    """Whether each community's robots.txt lets its lists be read; no page is fetched."""
    from medlive.service.harvest.sources import fetch_settings, select_sources
    from medlive.sources.fetching.fetch import Fetcher
    from medlive.sources.fetching.policy import FetchPolicy
    from medlive.sources.registry import build_site

    async with Fetcher(fetch_settings(settings)) as fetcher:
        for name, overrides in select_sources(settings, []).items():
            site = build_site(name, overrides)
            base_url = site.settings.base_url
            policy = FetchPolicy.of(site, base_url)
            lists = site.listing_requests(base_url)
            finding = await _examine_site(name, fetcher, lists, policy)
            yield replace(finding, subject=f"site {name}")


async def _examine_site(
    name: str, fetcher: "Fetcher", lists: Sequence["PageRequest"], policy: "FetchPolicy"
) -> Diagnosis:
    if not lists:
        step = f"set boards under [sources.{name}] in sources.toml"
        return _bad("it has no list to read", step)
    try:
        robots = await fetcher.robots_of(lists[0].url, policy)
    except MedliveError as exc:
        return _failed(exc, "medlive source check tries one page")
    denied = [page.url for page in lists if not robots.allows(page.url)]
    if denied:
        why = robots.detail or f"it disallows {denied[0]}"
        step = f"ask the community, or set enabled = false under [sources.{name}] in sources.toml"
        return _bad(f"robots.txt of {robots.host}: {why}", step)
    state = robots.state.value
    return _good(f"robots.txt of {robots.host} allows its lists ({state})")


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
