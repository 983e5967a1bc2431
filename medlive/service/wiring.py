"""The only place, with `demo`, that names concrete engines: endpoints, engines, indexes, filters, the pipeline.

Evaluation needs no medlive[service]: functions that need it import it themselves.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medlive.clock import now
from medlive.config import (
    DEFAULT_KEY_VARIABLE,
    RoleSettings,
    Settings,
    validate_section,
)
from medlive.errors import ConfigError, IndexMissing, UsageError
from medlive.evaluation.asking.registry import Candidate, load_registry
from medlive.home import models_file
from medlive.integrity.digest import digest_json
from medlive.llm.budget import Budget
from medlive.llm.circuit import Circuit, CircuitStore, circuit_key, circuit_of
from medlive.llm.engine import Engine, EngineIdentity, endpoint_engine
from medlive.llm.limiter import Limiters
from medlive.llm.prompts import load_prompt
from medlive.llm.recorded import RecordedEngine, RecordingEngine, load_recording
from medlive.llm.recorded import Recording as Recording
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import RulesEngine
from medlive.llm.wire import Price
from medlive.service.paths import encoder_settings, index_path

if TYPE_CHECKING:
    from medlive.curation.chain import CurationSettings
    from medlive.db.session import Database
    from medlive.evaluation.asking.open_book import OpenBook
    from medlive.evidence.online.retriever import OnlineRetriever
    from medlive.evidence.online.service import Literature
    from medlive.evidence.passage import Retriever
    from medlive.evidence.retriever import IndexRetriever
    from medlive.filters.chain import FilterChain
    from medlive.llm.openai import OpenAIEngine
    from medlive.rubric.completion import Library

DEFAULT_INDEX = "default"
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
    "medlive.evaluation": ("grader.answers", "grader.rubric"),
    "medlive.harm": ("grader.harm", "grader.harm_check"),
}
"""The prompts of proofs, which decide where rubrics are proved."""


def open_endpoint(
    settings: RoleSettings, price: Price | None = None, limiters: Limiters | None = None
) -> "OpenAIEngine":
    """Open a model at an OpenAI-compatible endpoint, with its own price or else the one given.

    Engines with the same `limiters`, address and key share a limit. Raises ConfigError if the key is not set.
    """
    # OpenAI's client takes half a second to import.
    from medlive.llm.openai import OpenAIEngine

    if settings.base_url is None or settings.model is None:
        raise ConfigError('engine "openai" needs base_url and model')
    key, price = read_key(settings.api_key_env), settings.price or price
    same = {
        "model",
        "base_url",
        "parameters",
        "timeout_s",
        "max_retries",
        "concurrency",
        "json_mode",
        "query",
        "headers",
        "key_header",
    }
    return OpenAIEngine(
        **settings.model_dump(include=same),
        api_key=key,
        price=price,
        key_variable=settings.api_key_env or DEFAULT_KEY_VARIABLE,
        limiter=limiters.limiter(settings.base_url, key, settings.concurrency)
        if limiters
        else None,
        circuit=limiters.circuit(settings.base_url, key, settings.model)
        if limiters
        else None,
        pinned=not settings.allow_unpinned,
    )


def read_key(variable: str | None) -> str:
    """The key in a variable, which must be set (ConfigError); None reads OPENAI_API_KEY, which may be unset."""
    key = os.environ.get(variable or DEFAULT_KEY_VARIABLE, "")
    if variable and not key:
        raise ConfigError(f"environment variable {variable} is not set")
    return key


_recording = cache(load_recording)  # several roles share a recording


def build_engine(
    settings: RoleSettings,
    prices: Mapping[str, Price] | None = None,
    limiters: Limiters | None = None,
) -> Engine:
    """The engine of a role. Raises ConfigError when its key's variable is not set."""
    if settings.engine == "rules":
        return RulesEngine()
    price = (prices or {}).get(settings.model or "")
    if settings.recording is None or settings.engine != "recorded":
        return open_endpoint(settings, price, limiters)
    otherwise: Engine = RulesEngine()
    if settings.base_url is not None:
        otherwise = open_endpoint(settings, price, limiters)
    return RecordedEngine(_recording(settings.recording), otherwise)


def check_priced(max_usd: float | None, prices: Mapping[str, object]) -> None:
    """Raise ConfigError when a budget is in dollars and a model has no price (None): before the first call, since
    afterwards the money would be spent and unknown."""
    if max_usd is not None and (
        unpriced := [model for model, price in prices.items() if price is None]
    ):
        raise ConfigError(
            f"a budget of {max_usd:g} US dollars (--max-usd or [budget]) cannot be kept: the price of "
            f"{', '.join(unpriced)} is unknown",
            hint=f"set it under [prices] in {models_file(os.environ)} (`medlive eval`: --price IN,OUT), or limit "
            "calls or tokens instead",
        )


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


def choose_candidate(
    settings: Settings,
    name: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> RoleSettings:
    """The endpoint and price of the model of that name; None among `parameters` removes one of the registry's.

    The registry's key variable is used only with the registry's endpoint. Raises UsageError without an endpoint.
    """
    known = load_registry(settings.candidates).find(name) or Candidate()
    address = base_url or known.base_url
    if address is None:
        raise UsageError(
            f"{name} has no endpoint",
            hint=f'give --base-url, or base_url under [candidates."{name}"] in {models_file(os.environ)}',
        )
    model, own = (
        known.model or name,
        known if address == known.base_url else Candidate(),
    )
    price = settings.prices.get(model) or settings.prices.get(name)
    return RoleSettings(
        engine="openai",
        model=model,
        base_url=address,
        api_key_env=api_key_env or own.api_key_env,
        parameters=_merged(known.sent(), parameters),
        price=price,
        query=own.query,
        headers=own.headers,
        key_header=own.key_header,
    )


def _merged(
    own: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        key: value
        for key, value in {**own, **(overrides or {})}.items()
        if value is not None
    }


def grader_identity(settings: RoleSettings, model: str) -> EngineIdentity:
    """The identity of the grader of that name, configured or given by `--grader`."""
    if settings.engine == "openai" and settings.model == model:
        return EngineIdentity("openai", model, settings.parameters)
    return EngineIdentity(endpoint_engine(model), model)


def grader_engine(
    settings: RoleSettings,
    *,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    concurrency: int,
    prices: Mapping[str, Price] | None = None,
    timeout_s: float | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Engine:
    """Build the grader named by `model` and `base_url`, or else the configured one.

    `timeout_s` bounds one attempt; None for the role's, or 120. `parameters` are sent with each call,
    beside those of the role; one that is None is not sent. Raises UsageError if only one of the two is given.
    """
    if (model is None) != (base_url is None):
        raise UsageError(
            "give --grader and --base-url together, or neither to use the configured grader"
        )
    if model is not None:
        settings = RoleSettings(
            engine="openai",
            model=model,
            base_url=base_url,
            api_key_env=api_key_env,
            concurrency=concurrency,
        )
    sent = _merged(settings.parameters, parameters)
    settings = settings.model_copy(
        update={"timeout_s": timeout_s or settings.timeout_s, "parameters": sent}
    )
    return build_engine(settings, prices)


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


def open_retriever(settings: Settings, at: Path | None = None) -> "IndexRetriever":
    """Open the evidence index, or the one at `at`; its files are verified before the first search ends.

    Raises IndexMissing with a hint how to build one.
    """
    from medlive.evidence.open_index import open_index

    return open_index(
        at or index_path(settings),
        settings=encoder_settings(settings),
        retriever=settings.evidence.retriever,
        verify=True,
    )


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
    from medlive.evidence.online.europepmc import EuropePMC
    from medlive.evidence.online.http import HttpClient
    from medlive.evidence.online.pubmed import PubMed
    from medlive.evidence.online.retriever import OnlineRetriever

    section = settings.evidence
    if not section.online:
        return None
    contact = section.online_email or ""
    client = HttpClient(contact)
    store = PostgresAnswers(database, days=section.online_days if use_stored else 0)
    gates = literature_circuits(settings) if circuits is None else circuits
    services: list[Literature] = []
    for name in section.online:
        address = section.online_addresses.get(name)
        at = {} if address is None else {"address": address}
        if name == "pubmed":
            key = read_key(section.online_key_env) if section.online_key_env else ""
            service: Literature = PubMed(
                client.post, store, gates[name], contact=contact, api_key=key, **at
            )
        else:
            service = EuropePMC(client.post, store, gates[name], contact=contact, **at)
        services.append(service)
    local = None
    with suppress(IndexMissing):
        local = open_retriever(settings)

    def may_leave(phrase: str) -> bool:
        return not any(find_identifiers(phrase, language) for language in ("en", "zh"))

    return OnlineRetriever(services, local, may_leave=may_leave, close=client.aclose)


def evidence_folder(settings: Settings, named: str) -> Path:
    """The folder of an index, given by its name under MEDLIVE_HOME or by a path.

    Raises UsageError for an unknown index, listing the known ones.
    """
    place = Path(named)
    if not named or "\0" in named:
        raise UsageError("--evidence needs the name or folder of an index")
    indexes = index_path(settings).parent
    if place.name == named and named != ".." and (indexes / named).is_dir():
        return indexes / named
    if place.is_dir():
        return place
    names = (
        sorted(path.name for path in indexes.iterdir() if path.is_dir())
        if indexes.is_dir()
        else []
    )
    raise UsageError(
        f"unknown evidence index {named!r}"
        + (f"; known indexes: {', '.join(names)}" if names else ""),
        hint="build one with medlive evidence build",
    )


def open_book(
    settings: Settings, named: str, *, top_k: int, undated: bool
) -> "OpenBook":
    """The open book of a run; its index is opened at the first search."""
    from medlive.evaluation.asking.open_book import OpenBook

    async def opened() -> "Retriever":
        return await asyncio.to_thread(
            open_retriever, settings, evidence_folder(settings, named)
        )

    return OpenBook(os.path.basename(os.path.normpath(named)), top_k, undated, opened)


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
        from medlive.rubric.completion import Library

        if not self.settings.rubric.complete:
            return None
        return Library(self.retriever, self.curation.evidence, today)

    async def check_ready(self) -> None:
        """Raise WeekSpent, and CircuitOpen where a thread would meet an open circuit, of whichever role."""
        from medlive.service.week_budget import check_week

        await check_week(self.database, self.settings.budget)
        for circuit in self.circuits:
            opening = await circuit.opening()
            if opening is not None and not opening.is_due(now()):
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
    prices = {
        f"{own.model} ({role})": own.price or settings.prices.get(own.model or "")
        for role, own in used.items()
        if own.engine == "openai"
    }
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
