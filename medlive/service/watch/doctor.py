"""`medlive doctor`: tries for real what a week needs, before the week does.

Each examination asks one thing of the set-up and yields findings, one line each: what was tried, what came out, and
what to do. An error that it raises is a finding too, and the next examination runs in any case.
"""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Literal

from medlive.clock import now
from medlive.config import RoleSettings, Settings
from medlive.db.schema.differences import find_differences
from medlive.db.session import read_clock
from medlive.errors import IndexMissing, LiteratureUnavailable, MedliveError
from medlive.evidence.encoders.folders import DOWNLOAD
from medlive.evidence.encoders.table import LANGUAGES
from medlive.instance.opening import open_endpoint, open_retriever
from medlive.integrity.paths import PRIVATE_FOLDER
from medlive.integrity.signing import load_signing_key
from medlive.llm.engine import UNNAMED, Prompt, Reply, Request
from medlive.llm.reading import NoObject, read_object
from medlive.service.database import database_url, open_database
from medlive.service.wiring import find_dependent_judges, open_online

from .facts import clock_problem
from .notify import places, send


@dataclass(frozen=True)
class Diagnosis:
    """One line of the report."""

    # good; warning: the week runs, and somebody should know; bad: it fails or is spoilt
    health: Literal["good", "warning", "bad"]
    text: str
    next_step: str = ""
    subject: str = ""  # "" for the examination's name


_SUBJECT = "fever treatment"
"""What is searched for."""
# Lines of the report, and what yields them
Diagnoses = AsyncIterator[Diagnosis]
Examination = Callable[[Settings], Diagnoses]


async def examine(settings: Settings) -> Diagnoses:
    """Yield the findings of every examination, in the order in which a week needs things."""
    for subject, examination in EXAMINATIONS.items():
        try:
            async for finding in examination(settings):
                yield replace(finding, subject=finding.subject or subject)
        except MedliveError as exc:
            yield Diagnosis("bad", exc.message, exc.hint or "", subject)
        except OSError as exc:
            step = "let this user read and write there, or name another place"
            yield Diagnosis("bad", f"it cannot be examined: {exc}", step, subject)


async def examine_home(settings: Settings) -> Diagnoses:
    """Whether the home can be written, and has the room below which a check reports it."""
    home = settings.home
    home.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
    tempfile.TemporaryFile(dir=home).close()
    usage = shutil.disk_usage(home)
    text = f"{usage.free / 1e9:.1f} of {usage.total / 1e9:.0f} GB are free at {home}"
    if usage.free < settings.watch.disk_free_gb * 1e9:
        step = "a larger disk, [archive] keep_days, or archive.folder on another disk"
        yield Diagnosis("bad", text, step)
    else:
        yield Diagnosis("good", text)


async def examine_database(settings: Settings) -> Diagnoses:
    """Whether the database answers, has this version's schema, and agrees about the time."""
    async with open_database(settings) as database, database.begin() as session:
        off = clock_problem(await read_clock(session))
    if off:
        yield Diagnosis(
            "bad", off, "let both machines set their clocks by the network (NTP)"
        )
    elif differences := find_differences(database_url(settings)):
        yield Diagnosis(
            "bad",
            f"{len(differences)} differences between tables and model",
            "medlive db check lists them; restore a backup, or upgrade with the version that made the tables",
        )
    else:
        yield Diagnosis("good", "it answers, and its tables are this version's")


async def examine_keys(settings: Settings) -> Diagnoses:
    """Whether the signing key can be read."""
    key = load_signing_key(os.environ)
    if key is None:
        yield Diagnosis(
            "warning",
            "none: snapshots are not signed, so nobody can prove their origin",
            "medlive snapshot keygen, and MEDLIVE_SIGNING_KEY_FILE",
        )
    else:
        yield Diagnosis("good", f"key {key.public.id_text()} signs snapshots")


async def examine_roles(settings: Settings) -> Diagnoses:
    """Whether each role's endpoint answers a real call, by the right model, with usage and a price."""
    instructions = 'This is a test of the connection. Answer with the JSON object {"ready": true} and nothing else.'
    schema = {
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
    }
    for name, role in settings.roles:
        subject = f"role {name}"
        if role.engine != "openai":
            # Another role's model takes the place of a prober that is not set
            if name != "prober":
                yield Diagnosis(
                    "warning",
                    f"engine {role.engine}: what it decides is not publishable",
                    f"set engine, base_url and model under [roles.{name}] in models.toml",
                    subject,
                )
            continue
        price = settings.prices.get(role.model or "")
        request = Request(
            task="doctor.ready",
            prompt=Prompt("doctor.ready", instructions),
            inputs={"asked_at": now().isoformat()},
            schema=schema,
        )
        try:
            async with aclosing(open_endpoint(role, price)) as engine:
                reply = await engine.answer(request)
        except MedliveError as exc:
            step = exc.hint or f"see [roles.{name}] in models.toml"
            yield Diagnosis("bad", exc.message, step, subject)
            continue
        yield replace(
            _judge_reply(role, reply, priced=bool(role.price or price)), subject=subject
        )
    for warning in find_dependent_judges(settings):
        yield Diagnosis("warning", warning, "another model in models.toml")


def _judge_reply(role: RoleSettings, reply: Reply, *, priced: bool) -> Diagnosis:
    """Whether a role's reply to the test is by its model, as asked for, and with usage and a price."""
    if reply.model != role.model and not role.allow_unpinned:
        answered = "an unnamed model" if reply.model == UNNAMED else repr(reply.model)
        return Diagnosis(
            "bad",
            f"{role.model!r} was asked and {answered} answered",
            "name that model, or set allow_unpinned = true in the role's table",
        )
    try:
        is_ready = isinstance(read_object(reply.text).get("ready"), bool)
    except NoObject:
        is_ready = False
    if not is_ready:
        words = " ".join(reply.text.split())[:80]
        return Diagnosis(
            "bad",
            f"the reply is not the JSON object that was asked for: {words!r}",
            "another model, or another json_mode in the role's table",
        )
    usage = reply.usage
    if usage.estimated:
        return Diagnosis(
            "warning",
            f"{reply.model} answers and sends no usage",
            "budgets count an upper bound of tokens instead; ask the endpoint to send usage",
        )
    if not priced:
        return Diagnosis(
            "warning",
            f"{reply.model} answers and has no price: its cost is unknown",
            f'set a price under [prices."{role.model}"] in models.toml',
        )
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    return Diagnosis(
        "good", f"{reply.model} answers: {tokens}, {usage.cost_usd or 0:.6f} USD"
    )


async def examine_evidence(settings: Settings) -> Diagnoses:
    """Whether the index opens, each file has its digest, and a search there and by each service ends with passages."""

    if settings.evidence.online:
        async with open_database(settings) as database:
            # They are asked, even where their answers are stored
            retriever = open_online(settings, database, use_stored=False)
            assert retriever
            async with aclosing(retriever):
                for service in retriever.services:
                    subject = f"evidence {service.name}"
                    try:
                        passages = await service.search(
                            _SUBJECT, most=3, not_after=None
                        )
                        step = "[evidence] online_addresses in medlive.toml: does it name the service?"
                        yield _judge_search(len(passages), step, subject)
                    except LiteratureUnavailable as error:
                        step = "medlive doctor again later; [evidence] online in medlive.toml names the services"
                        yield Diagnosis("bad", error.message, step, subject)
    try:
        index = open_retriever(settings)  # verifies the files
        (hits,) = await index.search([(_SUBJECT,)], k=3)
        step = "medlive evidence list shows what it holds; build it from corpora on the threads' subjects"
        yield _judge_search(len(hits), step, "evidence")
        read = {language for encoder in index.dense for language in encoder.weights}
        if read and (lacking := [name for name in LANGUAGES if name not in read]):
            text = (
                f"searched by words alone in {', '.join(lacking)}: no encoder reads it"
            )
            step = f"{DOWNLOAD} NAME, then medlive evidence build; docs/evidence.md has a table of encoders"
            yield Diagnosis("warning", text, step)
    except IndexMissing:
        if not settings.evidence.online:
            raise


def _judge_search(passages: int, step: str, subject: str) -> Diagnosis:
    """Whether a search found passages; `step` is what to do without."""
    if not passages:
        return Diagnosis("warning", f"no passage on {_SUBJECT}", step, subject)
    return Diagnosis("good", "it answers with passages", subject=subject)


async def examine_messages(settings: Settings) -> Diagnoses:
    """Whether the webhook and the mail server take a message."""
    section = settings.notify
    named = places(section)
    if not named:
        yield Diagnosis(
            "warning",
            "nobody is told when a week fails",
            "set webhook or email_to under [notify] in medlive.toml",
        )
        return
    text = "a test message of medlive doctor; nothing has happened"
    for place in named:
        await send(section, place, {"event": "test", "week": "", "text": text})
    yield Diagnosis("good", f"a test message was taken by {' and '.join(named)}")


async def examine_backup(settings: Settings) -> Diagnoses:
    """Whether weekly backups have a folder that can be written."""
    folder = settings.backup.folder
    if folder is None:
        yield Diagnosis(
            "warning",
            "no weekly backup is made",
            "set [backup] folder in medlive.toml, on another disk",
        )
        return
    parent = folder.absolute()
    while not parent.exists():  # It may lie on a disk that is not mounted now
        parent = parent.parent
    tempfile.TemporaryFile(dir=parent).close()
    yield Diagnosis("good", f"{folder} can be written")


async def examine_sites(settings: Settings) -> Diagnoses:
    """Whether each community's robots.txt lets its lists be read; no page is fetched."""
    from medlive.service.harvest.sources import fetch_settings, select_sources
    from medlive.sources.fetching.fetch import Fetcher

    async with Fetcher(fetch_settings(settings)) as fetcher:
        for name, site in select_sources(settings, []).items():
            subject = f"site {name}"
            table = f"[sources.{name}] in sources.toml"
            lists = site.listing_requests()
            if not lists:
                yield Diagnosis(
                    "bad",
                    "it has no list to read",
                    f"set boards under {table}",
                    subject,
                )
                continue
            try:
                robots = await fetcher.robots_of(lists[0].url, site)
            except MedliveError as exc:
                step = exc.hint or "medlive source check tries one page"
                yield Diagnosis("bad", exc.message, step, subject)
                continue
            denied = [page.url for page in lists if not robots.allows(page.url)]
            if denied:
                why = robots.detail or f"it disallows {denied[0]}"
                yield Diagnosis(
                    "bad",
                    f"robots.txt of {robots.host}: {why}",
                    f"ask the community, or set enabled = false under {table}",
                    subject,
                )
            else:
                text = f"robots.txt of {robots.host} allows its lists ({robots.state})"
                yield Diagnosis("good", text, subject=subject)


EXAMINATIONS: Mapping[str, Examination] = {
    "home": examine_home,
    "database": examine_database,
    "signing key": examine_keys,
    "roles": examine_roles,
    "evidence": examine_evidence,
    "backup": examine_backup,
    "messages": examine_messages,
    "sites": examine_sites,
}
"""Every examination, in the order in which a week needs things."""
