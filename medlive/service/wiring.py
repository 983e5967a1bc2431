"""The only place that picks implementations: which database, engines, index and filter chain a run uses."""

import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from medlive.config import RoleSettings, Settings
from medlive.curation.chain import CurationSettings
from medlive.curation.model import Thresholds
from medlive.db.migrate import upgrade
from medlive.db.replies import PostgresReplyStore
from medlive.db.session import Database
from medlive.digest import digest_json
from medlive.errors import ConfigError
from medlive.evidence.build import open_index
from medlive.evidence.passage import Retriever
from medlive.filters.chain import FilterChain
from medlive.filters.codebooks import load_codebook
from medlive.filters.rules import FilterSettings
from medlive.llm.budget import Budget
from medlive.llm.engine import Engine, ReplyStore
from medlive.llm.openai import OpenAIEngine
from medlive.llm.prompts import load_prompt
from medlive.llm.replay import ReplayEngine
from medlive.llm.rules.engine import RulesEngine
from medlive.service.paths import index_path

CURATION_ROLES = ("screener", "validator", "controller", "rubric")
PROMPTS = {
    "medlive.curation": (
        "screener.narrative", "screener.query", "screener.advice", "validator.query",
        "validator.sufficiency", "validator.alignment", "validator.veto", "controller.support",
        "controller.write",
    ),
    "medlive.rubric": ("rubric.write",),
}  # fmt: skip


def database_url(settings: Settings) -> str:
    """The configured server's URL, or the embedded one's, started when it is not running."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        if not url.startswith(("postgresql://", "postgresql+psycopg://", "postgres://")):
            raise ConfigError("MEDLIVE_DATABASE_URL is no PostgreSQL URL (postgresql://user@host/name)")
        return "postgresql+psycopg://" + url.split("://", 1)[1]
    from medlive.db import embedded

    return embedded.start(settings.home)


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database, migrated to this version's schema. Raises DatabaseUnavailable."""
    url = database_url(settings)
    upgrade(url)
    database = Database.connect(url)
    try:
        yield database
    finally:
        await database.aclose()


def handle_key(settings: Settings) -> bytes:
    """This instance's key for hashing authors' handles: made once, readable by its owner alone."""
    path = settings.home / "handle.key"
    if not path.exists():
        settings.home.mkdir(parents=True, exist_ok=True)
        descriptor = None
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, secrets.token_hex(32).encode())
        except FileExistsError:
            pass  # another process made it in between: its key is the key
        finally:
            if descriptor is not None:
                os.close(descriptor)
    return path.read_bytes()


def open_retriever(settings: Settings) -> Retriever:
    """The evidence index. Raises a typed error that says how to build one."""
    return open_index(index_path(settings))


def build_engine(role: str, settings: RoleSettings) -> Engine:
    """The engine of a role. Raises ConfigError when its key's variable is not set."""
    if settings.engine == "rules":
        return RulesEngine()
    key = ""
    if settings.api_key_env:
        key = os.environ.get(settings.api_key_env, "")
        if not key:
            raise ConfigError(f"roles.{role}: the variable {settings.api_key_env} is not set")
    assert settings.base_url and settings.model  # the settings' own validator
    price = settings.price
    return OpenAIEngine(
        model=settings.model,
        base_url=settings.base_url,
        api_key=key,
        parameters=settings.parameters,
        timeout_s=settings.timeout_s,
        max_retries=settings.max_retries,
        concurrency=settings.concurrency,
        price=price and (price.input, price.input if price.cached is None else price.cached, price.output),
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What decides a thread's curation, named by one digest."""

    respondents: Mapping[str, ReplayEngine]
    retriever: Retriever
    curation: CurationSettings
    digest: str
    prompt_digests: Mapping[str, str]

    async def aclose(self) -> None:
        """Let go of connections."""
        for respondent in self.respondents.values():
            await respondent.aclose()


def build_pipeline(settings: Settings, database: Database, *, exhaustive: bool = False) -> Pipeline:
    """The agents, the index and the thresholds of a run."""
    store: ReplyStore = PostgresReplyStore(database)
    budget = Budget(
        max_calls=settings.budget.max_calls,
        max_usd=settings.budget.max_usd,
        max_tokens=settings.budget.max_tokens,
    )
    respondents = {
        role: ReplayEngine(build_engine(role, getattr(settings.roles, role)), store, budget)
        for role in CURATION_ROLES
    }
    retriever = open_retriever(settings)
    section = settings.curation
    curation = CurationSettings(
        Thresholds(section.sufficiency, section.alignment), section.top_k, section.confirm_veto, exhaustive
    )
    prompts = {task: load_prompt(package, task).digest for package, tasks in PROMPTS.items() for task in tasks}
    digest = digest_json(
        {
            "settings": curation.as_json(),
            "prompts": prompts,
            "index": retriever.identity.index_digest,
            "engines": {
                role: [r.identity.engine, r.identity.model, dict(r.identity.parameters)]
                for role, r in respondents.items()
            },
        }
    )
    return Pipeline(respondents, retriever, curation, digest, prompts)


def build_filters(settings: Settings) -> FilterChain:
    """The filter chain with its code book."""
    return FilterChain(FilterSettings.model_validate(settings.filters), load_codebook(settings.codebooks.paths))
