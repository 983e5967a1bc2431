"""Wires the service: filters, literature services and the pipeline, with the engines that `opening` opens."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING

from medlive.clock import now
from medlive.config import RoleSettings, Settings
from medlive.errors import IndexMissing
from medlive.instance.loading import validate_section
from medlive.instance.opening import (
    build_engine,
    check_priced,
    open_retriever,
    read_key,
)
from medlive.instance.paths import index_path
from medlive.integrity.digest import digest_json
from medlive.llm.budget import Budget
from medlive.llm.circuit import (
    Circuit,
    CircuitStore,
    Opening,
    circuit_key,
    circuit_of,
)
from medlive.llm.engine import endpoint_engine
from medlive.llm.limiter import Limiters
from medlive.llm.prompts import load_prompt
from medlive.llm.recorded import Recording as Recording
from medlive.llm.recorded import RecordingEngine
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import RulesEngine

if TYPE_CHECKING:
    from medlive.curation.chain import CurationSettings
    from medlive.curation.validator import Library
    from medlive.db.session import Database
    from medlive.evidence.online.retriever import OnlineRetriever
    from medlive.evidence.online.service import Literature
    from medlive.evidence.passage import Retriever
    from medlive.filters.chain import FilterChain

CURATION_ROLES = ("screener", "validator", "controller", "rubric", "reader")
JUDGED_ROLES: Mapping[str, tuple[str, ...]] = {
    "controller": ("screener",),
    "reader": ("screener", "controller", "rubric"),
}
"""Role → the roles whose output it judges."""
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
    "medlive.harm": ("grader.harm", "grader.harm_check"),
}
"""The prompts of proofs, which decide where rubrics are proved."""


def find_dependent_judges(settings: Settings) -> list[str]:
    """The roles that judge output of their own model, one sentence each."""
    judges = []
    for judge, writers in JUDGED_ROLES.items():
        own: RoleSettings = getattr(settings.roles, judge)
        same = [w for w in writers if getattr(settings.roles, w).model == own.model]
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


def proof_roles(settings: Settings) -> dict[str, RoleSettings]:
    """Who writes and grades the answers that rubrics are proved by; empty where none are proved.

    A role that is not set is taken by another: the prober by the first role whose model is not the writer's, the
    grader by the reader. The rules engine's rubrics are not proved, since it makes no clinical judgement.
    """
    roles = settings.roles
    if not settings.rubric.prove or _is_rules(roles.rubric):
        return {}
    others = (roles.reader, roles.grader, roles.validator, roles.controller)
    models = [role for role in others if not _is_rules(role)]
    different = [role for role in models if role.model != roles.rubric.model]
    prober, grader = roles.prober, roles.grader
    if _is_rules(prober):
        prober = next(iter(different), roles.rubric)
    if _is_rules(grader):
        grader = roles.rubric if _is_rules(roles.reader) else roles.reader
    return {"prober": prober, "grader": grader}


def prober_role(settings: Settings) -> RoleSettings:
    """Who writes answers of known quality, whether or not rubrics are proved before they are released."""
    return proof_roles(settings).get("prober", settings.roles.prober)


def _is_rules(role: RoleSettings) -> bool:
    """Whether the rules engine answers for a role, in this process or at an endpoint."""
    return role.engine == "rules" or endpoint_engine(role.model or "") == "rules"


@asynccontextmanager
async def serve_rules(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    latency_ms: float = 0.0,
    warn: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[str]:
    """Serve the rules engine and the sample models until the block ends; yields the base URL.

    `sample-evidence` searches the evidence index; `warn` is called if there is none.
    """
    from medlive.llm.rules.server import serve

    retriever = None
    with suppress(IndexMissing):
        if index_path(settings).exists():
            retriever = await asyncio.to_thread(open_retriever, settings)
    if retriever is None:
        warn(
            f"no evidence index at {index_path(settings)}: sample-evidence answers like sample-generic"
        )

    async def search(question: str) -> list[str]:
        from medlive.evidence.passage import Query

        assert retriever is not None
        (hits,) = await retriever.search([Query(question)], k=5)
        return [hit.passage.text for hit in hits]

    retriever_search = search if retriever else None
    async with serve(
        RulesEngine,
        host=host,
        port=port,
        latency_ms=latency_ms,
        search=retriever_search,
    ) as url:
        yield url


def literature_circuits(
    settings: Settings, store: CircuitStore | None = None
) -> dict[str, Circuit]:
    """Return the circuit of each literature service that is configured; without a store each is its own."""
    circuits: dict[str, Circuit] = {}
    for name in settings.evidence.online:
        circuits[name] = Circuit(circuit_key("literature", "", name), name, store)
    return circuits


def check_local_evidence(settings: Settings) -> None:
    """Open the local index, if a service does not stand in for a missing one. Raises EvidenceUnavailable."""
    try:
        open_retriever(settings)
    except IndexMissing:
        if not settings.evidence.online:
            raise


def open_online(
    settings: Settings,
    database: "Database",
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
    from medlive.db.curation.literature import PostgresAnswers
    from medlive.deidentify.detect import find_identifiers
    from medlive.evidence.client import Client
    from medlive.evidence.online.europepmc import EuropePMC
    from medlive.evidence.online.pubmed import PubMed
    from medlive.evidence.online.retriever import OnlineRetriever

    section = settings.evidence
    if not section.online:
        return None
    contact = section.online_email or ""
    client = Client(contact, named=True)
    store = PostgresAnswers(database, days=section.online_days if use_stored else 0)
    gates = literature_circuits(settings) if circuits is None else circuits
    services: list[Literature] = []
    for name in section.online:
        address = section.online_addresses.get(name)
        at = {} if address is None else {"address": address}
        if name == "pubmed":
            key = read_key(section.online_key_env) if section.online_key_env else ""
            service: Literature = PubMed(
                client, store, gates[name], contact=contact, api_key=key, **at
            )
        else:
            service = EuropePMC(client, store, gates[name], contact=contact, **at)
        services.append(service)
    local = None
    with suppress(IndexMissing):
        local = open_retriever(settings)

    def may_leave(phrase: str) -> bool:
        return not any(find_identifiers(phrase, language) for language in ("en", "zh"))

    return OnlineRetriever(services, local, may_leave=may_leave, close=client.aclose)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that affects a thread's curation, identified by one digest."""

    database: "Database"
    settings: Settings
    key: bytes  # This instance's key, from which a case's id is made
    respondents: Mapping[str, ReplayEngine]
    retriever: "Retriever"
    curation: "CurationSettings"
    digest: str
    scanner: str  # The digest of the prompt and engine that find identifiers in release texts
    budget: Budget
    endpoints: Limiters
    # The retriever, where it asks literature services
    online: "OnlineRetriever | None" = None
    # Service → its circuit
    literature: Mapping[str, Circuit] = field(default_factory=dict)

    @property
    def circuits(self) -> set[Circuit]:
        """The circuits that its engines and literature services are asked through."""
        return {
            *filter(None, map(circuit_of, self.respondents.values())),
            *self.literature.values(),
        }

    @property
    def proves(self) -> bool:
        """Whether rubrics are proved, for which there are the roles "prober" and "grader"."""
        return "prober" in self.respondents

    def library(self, today: date) -> "Library | None":
        """Where the points are searched that an advice lacks; None where rubrics are not completed."""
        from medlive.curation.validator import Library

        if not self.settings.rubric.complete:
            return None
        settings = self.curation
        return Library(self.retriever, settings.top_k, settings.evidence_tokens, today)

    async def openings(self) -> list[Opening]:
        """Its circuits that are open."""
        openings = [await circuit.opening() for circuit in self.circuits]
        return [opening for opening in openings if opening is not None]

    async def check_ready(self) -> None:
        """Raise WeekSpent, and CircuitOpen where a thread would meet an open circuit, of whichever role."""
        from medlive.service.week_budget import check_week

        await check_week(self.database, self.settings.budget)
        for opening in await self.openings():
            if not opening.is_due(now()):
                raise opening.error()

    async def aclose(self) -> None:
        """Close connections, all at once; each is closed also when the wait is cancelled."""
        async with asyncio.TaskGroup() as group:
            for respondent in set(self.respondents.values()):
                group.create_task(respondent.aclose())
            if self.online is not None:
                group.create_task(self.online.aclose())


def build_pipeline(
    settings: Settings,
    database: "Database",
    *,
    exhaustive: bool = False,
    record: Recording | None = None,
) -> Pipeline:
    """Build the agents, the index and the thresholds of a run; `record` collects the agents' replies.

    Raises ConfigError, also for a budget in dollars and a model without a price.
    """
    from medlive.curation.chain import CurationSettings
    from medlive.curation.model import Thresholds
    from medlive.db.curation.circuits import PostgresCircuits
    from medlive.db.curation.replies import PostgresReplyStore
    from medlive.service.database import handle_key

    proving = proof_roles(settings)
    used = {role: getattr(settings.roles, role) for role in CURATION_ROLES} | proving
    prices = {}
    for role, own in used.items():
        if own.engine == "openai":
            price = own.price or settings.prices.get(own.model or "")
            prices[f"{own.model} ({role})"] = price
    check_priced(settings.budget.max_usd or settings.budget.week_usd, prices)
    opened = PostgresCircuits(database)
    store, limiters = PostgresReplyStore(database), Limiters(opened)
    budget = Budget(
        **settings.budget.model_dump(include={"max_usd", "max_calls", "max_tokens"})
    )
    respondents = {}
    for role, own in used.items():
        engine = build_engine(own, settings.prices, limiters)
        engine = engine if record is None else RecordingEngine(engine, record)
        respondents[role] = ReplayEngine(engine, store, budget)
    literature = literature_circuits(settings, opened)
    online = open_online(settings, database, literature)
    retriever = online or open_retriever(settings)
    section = settings.curation
    same = {"top_k", "evidence_tokens", "confirm_veto", "cross_questions", "strict"}
    curation = CurationSettings(
        Thresholds(section.sufficiency, section.alignment),
        exhaustive=exhaustive,
        **section.model_dump(include=same),
    )
    prompts = _prompt_digests(PROMPTS)
    if proving:
        prompts |= _prompt_digests(PROOF_PROMPTS)
    engines = {
        role: respondent.identity.as_json() for role, respondent in respondents.items()
    }
    index = retriever.identity.index_digest
    digest = digest_json(
        {
            "settings": curation.as_json(),
            "rubric": {"complete": settings.rubric.complete},
            "prompts": prompts,
            "index": index,
            "engines": engines,
        }
    )
    scanner = digest_json([prompts["reader.identifiers"], engines["reader"]])
    return Pipeline(
        database=database,
        settings=settings,
        key=handle_key(settings),
        respondents=respondents,
        retriever=retriever,
        curation=curation,
        digest=digest,
        scanner=scanner,
        budget=budget,
        endpoints=limiters,
        online=online,
        literature=literature,
    )


def _prompt_digests(prompts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    digests = {}
    for package, tasks in prompts.items():
        for task in tasks:
            digests[task] = load_prompt(package, task).digest
    return digests


def build_filters(settings: Settings) -> "FilterChain":
    """The filter chain with its code book. Raises ConfigError for a setting it does not know."""
    from medlive.filters.chain import FilterChain
    from medlive.filters.codebooks import load_codebook
    from medlive.filters.model import FilterSettings

    filters = validate_section(FilterSettings, "filters", settings.filters)
    return FilterChain(filters, load_codebook(settings.codebooks.paths))
