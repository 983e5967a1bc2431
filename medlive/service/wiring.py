"""The only place that names implementations: the database, engines, index and filter chain of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from medlive.config import Settings
from medlive.curation.chain import CurationSettings
from medlive.curation.model import Thresholds
from medlive.db.curation.replies import PostgresReplyStore
from medlive.db.session import Database
from medlive.digest import digest_json
from medlive.errors import ConfigError
from medlive.evidence.build import open_index
from medlive.evidence.encoder import EncoderSettings
from medlive.evidence.passage import Retriever
from medlive.filters.chain import FilterChain
from medlive.filters.codebooks import load_codebook
from medlive.filters.settings import FilterSettings
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, ReplyStore
from medlive.llm.limiter import Limiters
from medlive.llm.prompts import load_prompt
from medlive.llm.recorded import Recording, RecordingEngine
from medlive.llm.replay import ReplayEngine
from medlive.service.endpoints import build_engine, check_priced
from medlive.service.paths import index_path

CURATION_ROLES = ("screener", "validator", "controller", "rubric", "reader")
PROMPTS = {
    "medlive.curation": (
        "screener.extract", "screener.revise", "validator.query",
        "validator.sufficiency", "validator.claims", "validator.alignment", "validator.veto",
        "controller.support", "controller.doubt", "controller.write", "controller.questions",
        "controller.answers", "reader.text", "reader.case", "reader.identifiers",
    ),
    "medlive.rubric": ("rubric.write", "reader.rubric"),
}  # fmt: skip


def encoder_settings(settings: Settings) -> EncoderSettings:
    """Where encoder models are searched for, and how they are run."""
    section = settings.evidence
    return EncoderSettings(
        home=settings.home,
        models=section.models,
        backend=section.backend,
        device=section.device,
        batch=section.batch,
        threads=section.threads,
    )


def open_retriever(settings: Settings, at: Path | None = None) -> Retriever:
    """Open the evidence index, or the one at `at`. Raises IndexMissing with a hint how to build one."""
    section = settings.evidence
    return open_index(
        at or index_path(settings),
        settings=encoder_settings(settings),
        reranker=section.reranker,
        retriever=section.retriever,
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that affects a thread's curation, identified by one digest."""

    respondents: Mapping[str, ReplayEngine]
    retriever: Retriever
    curation: CurationSettings
    digest: str
    prompt_digests: Mapping[str, str]
    scanner: str
    """The digest of the prompt and engine that find identifiers in release texts."""
    budget: Budget
    endpoints: Limiters

    async def aclose(self) -> None:
        """Close connections."""
        for respondent in self.respondents.values():
            await respondent.aclose()


def build_pipeline(
    settings: Settings, database: Database, *, exhaustive: bool = False, record: Recording | None = None
) -> Pipeline:
    """Build the agents, the index and the thresholds of a run; `record` collects the agents' replies.

    Raises ConfigError, also for a budget in dollars and a model without a price.
    """
    check_priced(settings, CURATION_ROLES)
    store: ReplyStore = PostgresReplyStore(database)
    budget = Budget(
        max_calls=settings.budget.max_calls, max_usd=settings.budget.max_usd, max_tokens=settings.budget.max_tokens
    )
    limiters = Limiters()
    engines: dict[str, Engine] = {
        role: build_engine(role, getattr(settings.roles, role), settings.prices, limiters)
        for role in CURATION_ROLES
    }
    if record is not None:
        engines = {role: RecordingEngine(engine, record) for role, engine in engines.items()}
    respondents = {role: ReplayEngine(engine, store, budget) for role, engine in engines.items()}
    retriever = open_retriever(settings)
    section = settings.curation
    curation = CurationSettings(
        Thresholds(section.sufficiency, section.alignment),
        section.top_k,
        section.confirm_veto,
        section.cross_questions,
        section.strict,
        exhaustive,
    )
    prompts = {task: load_prompt(package, task).digest for package, tasks in PROMPTS.items() for task in tasks}
    digest = digest_json(
        {
            "settings": curation.as_json(),
            "prompts": prompts,
            "index": retriever.identity.index_digest,
            "engines": {role: r.identity.as_json() for role, r in respondents.items()},
        }
    )
    scanner = digest_json([prompts["reader.identifiers"], respondents["reader"].identity.as_json()])
    return Pipeline(respondents, retriever, curation, digest, prompts, scanner, budget, limiters)


def build_filters(settings: Settings) -> FilterChain:
    """The filter chain with its code book. Raises ConfigError for a setting it does not know."""
    try:
        filters = FilterSettings.model_validate(settings.filters)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"filters.{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
    return FilterChain(filters, load_codebook(settings.codebooks.paths))
