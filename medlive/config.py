"""The settings, section by section, frozen; `medlive.instance.loading` reads them from files and the environment."""

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    model_validator,
)

from .evidence.encoders.table import EncoderSettings
from .guard.trust import is_loopback
from .llm.registry import Amount, Calls, Candidate, Positive, Price, RoleEndpoint

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Part = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    # Deferred, so that `--help` is fast.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class RoleSettings(RoleEndpoint):
    """The engine of a role."""

    engine: Literal["rules", "recorded", "openai"] = "rules"
    """An OpenAI-compatible endpoint, a file of recorded replies, or rules in code, whose cases are not publishable."""
    recording: Path | None = None  # The file of recorded replies, for engine "recorded"
    # Whether replies that name another model than `model` are accepted
    allow_unpinned: bool = False
    # None for the model's price under `prices`; unknown without either
    price: Price | None = None

    @model_validator(mode="after")
    def _complete(self) -> "RoleSettings":
        if self.engine == "openai" and not (self.base_url and self.model):
            raise ValueError('engine "openai" needs base_url and model')
        if self.engine == "recorded" and self.recording is None:
            raise ValueError('engine "recorded" needs recording, a file of replies')
        return self


class Roles(_Section):
    """The engines of the roles."""

    screener: RoleSettings = RoleSettings()
    validator: RoleSettings = RoleSettings()
    controller: RoleSettings = RoleSettings()
    rubric: RoleSettings = RoleSettings()
    # Reads what the others wrote; preferably a different model
    reader: RoleSettings = RoleSettings()
    grader: RoleSettings = RoleSettings()
    prober: RoleSettings = RoleSettings()
    """Writes the answers that rubrics are proved by; where it is not set, a model that another role names."""
    checker: RoleSettings = RoleSettings()
    """Confirms or clears what the grader calls harmful; where it is not set, the grader does."""


class CurationSection(_Section):
    """How threads are curated (docs/method.md §1)."""

    concurrency: Calls = 16
    """Threads that are curated at once."""
    sufficiency: Part = 0.5
    """S_inf above which a history is sufficient."""
    alignment: Part = 0.5
    """S_align above which advice is in line with the evidence."""
    top_k: Annotated[int, Field(ge=1, le=50)] = 6
    """Passages that are looked at for each claim."""
    evidence_tokens: Annotated[int, Field(ge=200, le=1_000_000)] = 4000
    """The most tokens, by estimate, that all passages of a case may cost the alignment."""
    confirm_veto: bool = True
    """Whether a second check must confirm a contradiction."""
    veto_people: Literal[1, 2] = 2
    """How many people it takes to overrule a confirmed contradiction: 1 for an installation of one person."""
    cross_questions: Annotated[int, Field(ge=0, le=20)] = 5
    """Questions of each cross-examination; 0 for none."""
    # Whether an unsupported element rejects the case, as in the paper
    strict: bool = False
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Runs in which a failed thread is tried; then `jobs retry` must ask for it."""
    thread_timeout_s: Positive = 7200.0
    """The longest that one thread may take; it fails then, and what was paid is replayed at the next attempt."""


class RubricSection(_Section):
    """How rubrics are made complete (docs/curation.md)."""

    complete: bool = True  # Whether decisive points that the advice lacks are added
    prove: bool = True
    """Whether a rubric is released only once six answers of known quality prove it. The rules engine's never is."""


class EvidenceSection(_Section, EncoderSettings):
    """How evidence is searched (docs/evidence.md)."""

    # None for what the index was built for
    retriever: Literal["bm25", "dense", "hybrid"] | None = None
    online: tuple[Literal["pubmed", "europepmc"], ...] = ()
    """Literature services that are asked for each claim's phrases, besides the index or instead of one."""
    online_email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$")] | None = None
    """The operator's address, which the services ask for; needed with `online`."""
    # The environment variable with NCBI's API key; None for none
    online_key_env: str | None = None
    park_weeks: Annotated[int, Field(ge=1, le=520)] = 8
    """How long a thread waits for evidence on its subject; then it is rejected (docs/method.md §1)."""
    # The age in days from which on a stored answer of a service is asked for again
    online_days: Positive = 30.0
    online_addresses: dict[
        Literal["pubmed", "europepmc"], Annotated[str, Field(pattern=r"^https?://")]
    ] = {}
    """Service → its address where it is not the public one, as of a mirror."""
    mirrors: dict[str, str] = {}
    """Corpus of `evidence fetch` → the address of a copy that is arranged as the publisher's."""

    @model_validator(mode="after")
    def _reachable(self) -> "EvidenceSection":
        if self.online and not self.online_email:
            raise ValueError(
                "online needs online_email, the address that the services may write to"
            )
        return self


class BudgetSection(_Section):
    """The budget of one run, and of a week; None for no limit."""

    max_usd: Positive | None = None
    """US dollars that a run may cost; needs a price for each model."""
    max_calls: Annotated[int, Field(gt=0)] | None = None
    """Requests that a run may send."""
    max_tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens of requests and replies that a run may take."""
    # US dollars that an ISO week may cost, over all runs and workers
    week_usd: Positive | None = None
    stage_week_usd: dict[
        Literal["screener", "validator", "controller", "rubric", "reader", "grader"],
        Positive,
    ] = {}
    """Stage → US dollars that its replies alone may cost in an ISO week."""


class CodebookSection(_Section):
    """Code lists in addition to the shipped terms."""

    paths: tuple[Path, ...] = ()
    """Official code lists in CSV or TSV: WHO ICD, ICF, ICHI."""


class ReleaseSection(_Section):
    """The conditions of a release, and its held-out cases."""

    minimum_cases: Natural = 1
    """A release with fewer cases is not publishable."""
    publishable_only: bool = False
    """Whether unpublishable cases, such as those of the rules engine, are kept out; otherwise one makes the whole
    release unpublishable."""
    unproved: Literal["mark", "hold"] = "mark"
    """A case whose rubric is not proved, as after an edit: mark (its figures are null) or hold (kept out)."""
    hold_out: Part = 0.0
    """The share of the cases never published before that is held out."""
    # Weeks after which a held-out case is published
    hold_out_weeks: Count = 8


class PublishSection(_Section):
    """Where snapshots are published (docs/publishing.md). Keys and tokens come from the environment alone."""

    to: Literal["folder", "s3", "huggingface"] = "folder"
    """The kind of place."""
    # A folder, `s3://bucket/prefix` or `organisation/name`; None if the command gives it
    at: str | None = None
    # The address of an S3-compatible store or a hub; None for the client's default
    endpoint_url: str | None = None
    # The public address of the target; None for relative links
    base_url: str | None = None
    weekly: bool = False  # Whether the scheduler publishes each week that its gates let pass, and announces it


class NotifySection(_Section):
    """Who is sent messages about problems and releases; nobody unless named."""

    # An address that takes JSON by POST: "event", "week", "text", maybe "code"
    webhook: SecretStr | None = None
    heartbeat_url: SecretStr | None = None
    """A dead man's switch: POSTed to once a minute while all vital checks pass."""
    email_to: tuple[str, ...] = ()
    """Addresses that are sent mail."""
    email_from: str = "medlive@localhost"
    """The address that mail is sent from."""
    smtp_host: str = "localhost"
    """The mail server."""
    smtp_port: Annotated[int, Field(ge=1, le=65535)] = 25
    """The mail server's port."""
    smtp_starttls: bool = False
    """Whether the connection is encrypted before anything is sent."""
    smtp_user: str | None = None
    """The account at the mail server; None for none."""
    smtp_password: SecretStr | None = None  # From MEDLIVE_NOTIFY__SMTP_PASSWORD

    @model_validator(mode="after")
    def _sends_no_password_in_the_clear(self) -> "NotifySection":
        if (
            self.smtp_user is not None
            and not self.smtp_starttls
            and not is_loopback(self.smtp_host)
        ):
            raise ValueError(
                f"the password for {self.smtp_host} would be readable: set smtp_starttls = true"
            )
        return self


class TlsSection(_Section):
    """Whose certificates are believed, by every connection that medlive makes."""

    authority: Path | None = None
    """A PEM file with authorities that are believed besides the system's; None for the system's alone."""


class WatchSection(_Section):
    """From when on checks report a problem (docs/operations.md#what-is-checked)."""

    disk_free_gb: Amount = 2.0
    """A disk with less room is nearly full."""
    # The age in days from which on the weekly backup is too old
    backup_days: Count = 8


class ArchiveSection(_Section):
    """Where raw pages are kept, and for how long."""

    folder: Path | None = None  # None for `archive` under `home`
    keep_days: Count | None = None
    """Days after which a file of raw pages is removed; None for never. Threads stay."""


class BackupSection(_Section):
    """The weekly backup."""

    folder: Path | None = None  # None for no weekly backup
    keep: Count = 4  # Weekly backups that stay
    check: bool = True  # Whether each one is restored into a scratch database, compared, and dropped again
    # The secret key that signs backups; None for `backup.key` under `home`
    key_file: Path | None = None


class WeeklyTime(_Section):
    """A time of each ISO week, in UTC."""

    weekday: Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    """The day."""
    hour: Annotated[int, Field(ge=0, le=23)]
    """The hour, in UTC."""
    minute: Annotated[int, Field(ge=0, le=59)] = 0
    """The minute."""


class ScheduleSection(_Section):
    """When the scheduler runs each weekly step."""

    harvest: WeeklyTime = WeeklyTime(weekday="mon", hour=3)
    harvest_sources: dict[str, WeeklyTime] = {}
    """Source → its own time instead of `harvest`."""
    queue: WeeklyTime = WeeklyTime(weekday="tue", hour=3)
    """Filters new threads, queues them with earlier failures, and curates the queue unless workers do."""
    freeze: WeeklyTime = WeeklyTime(weekday="sun", hour=18)
    freeze_wait_hours: Annotated[float, Field(ge=0, le=24 * 6)] = 24.0
    """How long a freeze waits for threads that were queued for its week; then the week is partial."""
    failure_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The queueing has failed, and is done again, where more than this share of its threads failed."""
    # Removes raw pages older than `archive.keep_days`
    retention: WeeklyTime = WeeklyTime(weekday="sun", hour=22)
    backup: WeeklyTime = WeeklyTime(weekday="sun", hour=23)  # With `backup.folder`


class OidcSection(_Section):
    """The identity provider by which people sign in."""

    issuer: Annotated[str, Field(pattern=r"^https?://")]
    """The address of the provider."""
    client_id: str
    """The name that the provider knows medlive by."""
    client_secret_env: str  # The environment variable with the client's secret
    scope: str = "openid profile email"  # What is asked of the provider
    name_claim: str = "preferred_username"
    """The claim that holds the account's name."""
    # A claim's name, or a path into it, as `realm_access.roles`
    role_claim: str = "roles"
    roles: dict[str, Literal["viewer", "reviewer", "publisher", "admin"]] = {}
    """Value of the claim → the role it gives; nobody without one gets in."""

    @model_validator(mode="after")
    def _proves_who_it_is(self) -> "OidcSection":
        host = urlsplit(self.issuer).hostname or ""
        if not self.issuer.startswith("https:") and not is_loopback(host):
            raise ValueError(
                "anybody could answer for an issuer without https: expected https://…"
            )
        return self


class WebSection(_Section):
    """How people reach the private pages (docs/accounts.md)."""

    base_url: Annotated[str, Field(pattern=r"^https?://[^/?#]+$")] = (
        "http://127.0.0.1:8080"
    )
    """The address as browsers see it: links of invitations begin with it, and https makes cookies secure."""
    hosts: tuple[
        Annotated[
            str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$")
        ],
        ...,
    ] = ()
    """Further names by which people reach the site, as `medlive.example`; requests for others are refused."""
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    """Addresses of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed; none unless named."""
    oidc: OidcSection | None = None  # None where people sign in here alone


class Settings(_Section):
    """All settings. `home` is the folder of the state: database, indexes, snapshots, runs."""

    home: Path
    """The folder of the state; MEDLIVE_HOME."""
    plugins: Path | None = None
    """A folder of modules with adapters, readers and protocols of your own, besides installed entry points."""
    # None for the embedded PostgreSQL under `home`
    database_url: SecretStr | None = None
    # Fields of `medlive.filters.FilterSettings`
    filters: dict[str, Any] = {}
    curation: CurationSection = CurationSection()
    rubric: RubricSection = RubricSection()
    evidence: EvidenceSection = EvidenceSection()
    budget: BudgetSection = BudgetSection()
    codebooks: CodebookSection = CodebookSection()
    release: ReleaseSection = ReleaseSection()
    publish: PublishSection = PublishSection()
    notify: NotifySection = NotifySection()
    tls: TlsSection = TlsSection()
    watch: WatchSection = WatchSection()
    archive: ArchiveSection = ArchiveSection()
    backup: BackupSection = BackupSection()
    harvest: dict[str, Any] = {}
    """Fields of `medlive.sources.fetching.policy.FetchSettings`."""
    sources: dict[str, dict[str, Any]] = {}
    """Community → fields of `medlive.sources.source.SourceSettings` that override its adapter's."""
    roles: Roles = Roles()
    # Model id → its price, for every role with that model
    prices: dict[str, Price] = {}
    candidates: dict[str, Candidate] = {}
    """Name → a model under evaluation: its endpoint and training cutoff (docs/evaluating.md)."""
    schedule: ScheduleSection = ScheduleSection()
    web: WebSection = WebSection()
