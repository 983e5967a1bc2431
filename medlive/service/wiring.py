"""Build what a curation needs from the settings: its filters, and a pipeline of models, prompts, evidence, thresholds.

`open_pipeline` is where to begin: for each role it opens the model that `proof_roles` or the settings name (engines are
built in `instance.opening`), behind a store of replies and the run's budget; the evidence is the local index, with the
literature services of `open_online` before it. Other modules of the service get all of it from here, so that only this
one (with `opening` and the demo) knows which engine, index or service there is.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from medlive.clock import now, week_bounds
from medlive.config import RoleSettings, Settings
from medlive.curation.chain import CurationSettings
from medlive.curation.model import Thresholds
from medlive.curation.validator import Library
from medlive.db.curation.circuits import PostgresCircuits
from medlive.db.curation.literature import PostgresAnswers
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.session import Database
from medlive.deidentify.detect import find_identifiers
from medlive.errors import DatabaseUnavailable, IndexMissing
from medlive.evidence.passage import Retriever
from medlive.filters.codebooks import load_codebook
from medlive.filters.model import FilterSettings
from medlive.filters.rules import FilterChain
from medlive.guard.circuit import (
    Circuit,
    CircuitStore,
    Opening,
    circuit_key,
    circuit_of,
)
from medlive.instance.loading import validate_section
from medlive.instance.opening import (
    build_engine,
    check_priced,
    open_retriever,
    read_key,
)
from medlive.integrity.digest import digest_json
from medlive.llm.budget import Budget
from medlive.llm.engine import endpoint_engine
from medlive.llm.limiter import Limiters
from medlive.llm.prompts import load_prompt
from medlive.llm.recorded import Recording as Recording
from medlive.llm.recorded import RecordingEngine
from medlive.llm.replay import ReplayEngine

from .database import handle_key
from .week_budget import WeekSpent, read_spending, week_limits

if TYPE_CHECKING:
    from medlive.evidence.online.retriever import OnlineRetriever

# The roles of a curation; proofs have two more (`proof_roles`)
CURATION_ROLES = ("screener", "validator", "controller", "rubric", "reader")
JUDGED_ROLES: Mapping[str, tuple[str, ...]] = {
    "controller": ("screener",),
    "reader": ("screener", "controller", "rubric"),
}
"""Role → the roles whose output it judges."""
# Package → its prompts, which the digest of every pipeline covers
PROMPTS = {
    "medlive.curation": (
        "screener.extract",
        "screener.revise",
        "validator.query",
        "validator.sufficiency",
        "validator.claims",
        "validator.alignment",
        "validator.veto",
        "validator.soundness",
        "controller.support",
        "controller.write",
        "controller.questions",
        "controller.answers",
        "reader.text",
        "reader.case",
        "reader.identifiers",
    ),
    "medlive.harm": ("grader.harm", "grader.harm_check"),
    "medlive.rubric": (
        "rubric.write",
        "reader.rubric",
        "rubric.complete",
        "rubric.match",
        "rubric.classify",
    ),
}
PROOF_PROMPTS = {
    "medlive.rubric": ("rubric.probe", "rubric.defend"),
    "medlive.grader": ("grader.answers", "grader.rubric"),
}
"""Package → its prompts of proofs, which the digest covers where rubrics are proved."""


@dataclass(frozen=True)
class Pipeline:
    """Everything that affects a thread's curation, identified by one digest."""

    database: Database
    settings: Settings
    key: bytes  # This instance's key, from which a case's id is made
    respondents: Mapping[str, ReplayEngine]
    retriever: Retriever
    curation: CurationSettings
    digest: str
    scanner: str  # The digest of the prompt and engine that find identifiers in release texts
    budget: Budget
    # Service → its circuit
    literature: Mapping[str, Circuit] = field(default_factory=dict)

    @property
    def proves(self) -> bool:
        """Whether rubrics are proved, for which there are the roles "prober" and "grader"."""
        return "prober" in self.respondents

    def library(self, today: date) -> Library | None:
        """Where points that the advice lacks are searched; None where rubrics are not completed."""
        if not self.settings.rubric.complete:
            return None
        settings = self.curation
        return Library(self.retriever, settings.top_k, settings.evidence_tokens, today)

    async def openings(self) -> list[Opening]:
        """The open circuits of its engines and literature services."""
        engines = filter(None, map(circuit_of, self.respondents.values()))
        circuits = {*engines, *self.literature.values()}
        return list(filter(None, [await circuit.opening() for circuit in circuits]))

    async def check_ready(self) -> None:
        """Raise WeekSpent once a limit of the week is reached, and CircuitOpen where a thread would meet one."""
        budget, week = self.settings.budget, {}
        # Without a limit nothing is summed for each thread.
        if budget.week_usd is not None or budget.stage_week_usd:
            week = await self.database.ask(read_spending, budget)
        for limit in week_limits(week) if week else ():
            if limit.is_spent:
                # Threads under way are finished, and may exceed it.
                raise WeekSpent(limit.spent_text, week_bounds(limit.week)[1])
        for opening in await self.openings():
            if not opening.is_due(now()):
                raise opening.error()

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """When the block is broken off, wait for replies under way and keep them: another worker would pay again."""
        try:
            yield
        except (asyncio.CancelledError, DatabaseUnavailable):
            await asyncio.gather(*(r.settle() for r in self.respondents.values()))
            raise

    async def aclose(self) -> None:
        """Close connections, all at once; each is closed also when the wait is cancelled."""
        async with asyncio.TaskGroup() as group:
            for respondent in set(self.respondents.values()):
                group.create_task(respondent.aclose())
            from medlive.evidence.online.retriever import OnlineRetriever

            if isinstance(self.retriever, OnlineRetriever):
                group.create_task(self.retriever.aclose())


@asynccontextmanager
async def open_pipeline(
    settings: Settings,
    database: Database,
    *,
    exhaustive: bool = False,
    record: Recording | None = None,
    budget: Budget | None = None,
) -> AsyncIterator[Pipeline]:
    """Build the agents, the index and the thresholds of a run; `record` collects the agents' replies.

    `budget` is one that outlives the pipeline; None: the pipeline has its own.

    Raises ConfigError, also for a budget in dollars and a model without a price.
    """
    proving = proof_roles(settings)
    used = {role: getattr(settings.roles, role) for role in CURATION_ROLES} | proving
    prices = {}
    for role, own in used.items():
        if own.engine == "openai":
            price = own.price or settings.prices.get(own.model or "")
            prices[f"{own.model} ({role})"] = price
    money = settings.budget
    limits_usd = (money.max_usd, money.week_usd, *money.stage_week_usd.values())
    check_priced(next(filter(None, limits_usd), None), prices)
    opened = PostgresCircuits(database)
    store, limiters = PostgresReplyStore(database), Limiters(opened)
    budget = budget or new_budget(settings)
    respondents, engines = {}, {}
    for role, own in used.items():
        engine = build_engine(own, settings.prices, limiters)
        if record is not None:
            engine = RecordingEngine(engine, record)
        respondents[role] = ReplayEngine(engine, store, budget)
        engines[role] = respondents[role].identity.as_json()
    literature = literature_circuits(settings, opened)
    retriever = open_online(settings, database, literature) or open_retriever(settings)
    section = settings.curation
    # Settings that have the same name here and there
    same = {"top_k", "evidence_tokens", "confirm_veto", "cross_questions", "strict"}
    curation = CurationSettings(
        Thresholds(section.sufficiency, section.alignment),
        exhaustive=exhaustive,
        **section.model_dump(include=same),
    )
    prompts = {}
    for packages in (PROMPTS, PROOF_PROMPTS if proving else {}):
        for package, tasks in packages.items():
            for task in tasks:
                prompts[task] = load_prompt(package, task).digest
    identity = {
        "settings": curation.as_json(),
        "rubric": {"complete": settings.rubric.complete},
        "prompts": prompts,
        "index": retriever.identity.index_digest,
        "engines": engines,
    }
    pipeline = Pipeline(
        database=database,
        settings=settings,
        key=handle_key(settings),
        respondents=respondents,
        retriever=retriever,
        curation=curation,
        digest=digest_json(identity),
        scanner=digest_json([prompts["reader.identifiers"], engines["reader"]]),
        budget=budget,
        literature=literature,
    )
    async with aclosing(pipeline):
        yield pipeline


def new_budget(settings: Settings) -> Budget:
    """The budget of a run, or of a worker's life."""
    return Budget(
        **settings.budget.model_dump(include={"max_usd", "max_calls", "max_tokens"})
    )


def proof_roles(settings: Settings) -> dict[str, RoleSettings]:
    """Who writes and grades the answers that rubrics are proved by; empty where none are proved.

    A role that is not set is taken by another: the prober by the first role whose model is not the writer's, the
    grader by the reader. The rules engine's rubrics are not proved, since it makes no clinical judgement.
    """
    roles = settings.roles
    if not settings.rubric.prove or _is_rules(roles.rubric):
        return {}
    prober, grader, different = roles.prober, roles.grader, []
    for other in (roles.reader, roles.grader, roles.validator, roles.controller):
        if not _is_rules(other) and other.model != roles.rubric.model:
            different.append(other)
    if _is_rules(prober):
        prober = different[0] if different else roles.rubric
    if _is_rules(grader):
        grader = roles.rubric if _is_rules(roles.reader) else roles.reader
    return {"prober": prober, "grader": grader}


def _is_rules(role: RoleSettings) -> bool:
    """Whether the rules engine answers for a role, in this process or at an endpoint."""
    return role.engine == "rules" or endpoint_engine(role.model or "") == "rules"


def find_dependent_judges(settings: Settings) -> list[str]:
    """Warnings about roles that judge output of their own model, one sentence each."""
    judges, roles_of = [], dict(settings.roles)
    for judge, writers in JUDGED_ROLES.items():
        own = roles_of[judge]
        same = [writer for writer in writers if roles_of[writer].model == own.model]
        if own.engine == "openai" and same:
            judges.append(
                f"{judge} judges what {', '.join(same)} wrote, and both are {own.model}:"
                " a model is lenient with itself"
            )
    if roles := proof_roles(settings):
        models = {settings.roles.rubric.model, *(own.model for own in roles.values())}
        if len(models) == 1 and (model := models.pop()) is not None:
            judges.append(
                f"rubrics are written, tried and graded by one model, {model}: a proof by who"
                " wrote the rubric finds less; set [roles.prober] to another model"
            )
    return judges


def open_online(
    settings: Settings,
    database: Database,
    circuits: Mapping[str, Circuit] | None = None,
    *,
    use_stored: bool = True,
) -> "OnlineRetriever | None":
    """Open the literature services of the settings over the local index, if there is one.

    Args:
        settings: Name the services.
        database: Keeps their answers, and their turns over all workers.
        circuits: Service → its circuit; None for circuits of this retriever alone.
        use_stored: Whether answers that are stored are used.

    Returns:
        The retriever; None where no service is configured.

    Raises:
        ConfigError: if NCBI's key is named and not set.
        EvidenceUnavailable: if there is a local index that cannot be used.
    """
    section = settings.evidence
    if not section.online:
        return None
    # A worker without curation needs neither these nor the index.
    from medlive.evidence.client import Client
    from medlive.evidence.online.retriever import OnlineRetriever
    from medlive.evidence.online.service import ADDRESSES, Literature

    contact = section.online_email or ""
    client = Client(contact, named=True)
    store = PostgresAnswers(database, days=section.online_days if use_stored else 0)
    services = []
    circuits = circuits or literature_circuits(settings)
    for name in dict.fromkeys(section.online):
        key = ""
        if name == "pubmed" and section.online_key_env:
            key = read_key(section.online_key_env)
        service = Literature(
            name=name,
            client=client,
            store=store,
            gate=circuits[name],
            contact=contact,
            address=section.online_addresses.get(name, ADDRESSES[name]),
            api_key=key,
        )
        services.append(service)
    local = None
    with suppress(IndexMissing):
        local = open_retriever(settings)

    def may_leave(phrase: str) -> bool:
        """Whether a search phrase names nobody, and may be sent to a service."""
        return not any(find_identifiers(phrase, language) for language in ("en", "zh"))

    return OnlineRetriever(services, local, may_leave=may_leave)


def literature_circuits(
    settings: Settings, store: CircuitStore | None = None
) -> dict[str, Circuit]:
    """Return the circuit of each literature service that is configured; without a store each is its own."""
    return {
        name: Circuit(circuit_key("literature", "", name), name, store)
        for name in settings.evidence.online
    }


def build_filters(settings: Settings) -> FilterChain:
    """The filter chain with its code book. Raises ConfigError for a setting it does not know."""
    return FilterChain(
        validate_section(FilterSettings, "filters", settings.filters),
        load_codebook(settings.codebooks.paths),
    )
