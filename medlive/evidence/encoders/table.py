"""The encoders that are known by name: those of `models.toml`, and those of `[evidence.own_encoders]`."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from medlive.errors import ConfigError

LANGUAGES = ("en", "zh")
"""The languages of the sources (ISO 639)."""


class EncoderModel(BaseModel, frozen=True, extra="forbid"):
    """How one encoder turns texts into vectors whose inner product says how near they are."""

    query: str
    """A sentence-transformers folder or its name on the hub; with `base_url` the endpoint's name of the model."""
    passage: str = ""  # The same of passages; empty: `query` encodes both
    reranker: str = ""  # A cross-encoder that goes with it; empty: none
    revisions: Mapping[str, str] = Field(default_factory=dict)
    """Name on the hub → the commit that is downloaded; one that is not named: the newest."""
    languages: tuple[str, ...] = ()
    """What it reads (ISO 639); empty: every language."""
    pooling: Literal["", "cls", "mean", "lasttoken"] = ""
    """How tokens become one vector; empty: as the folder's modules.json says."""
    query_prompt: str | None = None
    """Put before each query; None: as the folder says, which an endpoint cannot."""
    passage_prompt: str | None = None  # The same before each passage
    query_tokens: Annotated[int, Field(ge=8)] | None = None
    """The longest query; None: the model's own length."""
    passage_tokens: Annotated[int, Field(ge=8)] | None = None  # The longest passage
    pair: bool = False  # Title and text are the two halves of a pair, and not one text
    base_url: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    """Of an endpoint in OpenAI's form, to which `/embeddings` is added; empty: the model runs here."""
    api_key_env: str = ""  # The environment variable with its key; empty: no key
    timeout_s: Annotated[float, Field(gt=0)] = 60.0  # Seconds for one request
    usd_per_million_tokens: Annotated[float, Field(ge=0)] | None = None
    """The endpoint's price, in US dollars."""
    max_usd: Annotated[float, Field(gt=0)] | None = None
    """What one process may spend at the endpoint; needs the price."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_usd is not None and self.usd_per_million_tokens is None:
            raise ValueError("max_usd needs usd_per_million_tokens")
        return self

    def reads(self, language: str) -> bool:
        """Whether it knows the language (ISO 639; "und" where a text has no words of one)."""
        return not self.languages or language in (*self.languages, "und")

    @property
    def names(self) -> tuple[str, ...]:
        """The models that make its vectors: one, or one for queries and one for passages."""
        return tuple(dict.fromkeys([self.query, self.passage or self.query]))


class EncoderSettings(BaseModel):
    """Where models are looked for and how they are run: the part of `[evidence]` about encoders."""

    # Deferred, so that `--help` is fast.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    models: Path = Path("models")
    """The folder with one folder per model; the default is below MEDLIVE_HOME."""
    encoders: dict[Literal["en", "zh", "all"], str] = {}
    """Language → the encoder that reads its phrases; none: those whose models a build finds (docs/evidence.md)."""
    own_encoders: dict[str, EncoderModel] = {}
    """Name → an encoder that medlive does not know: a folder, a hub's, or an endpoint's (docs/evidence.md)."""
    reranker: str | None = None
    """A cross-encoder that reorders what was found: an encoder that has one, a folder or a name on the hub. It is
    used where the build measured that it finds known items better (docs/evidence.md); None for none."""
    device: str = "cpu"
    """What runs the encoders: `cpu`, `cuda`, `cuda:1`."""
    batch: Annotated[int, Field(ge=1, le=4096)] = 16
    """Texts that are encoded at once."""

    def table(self) -> dict[str, EncoderModel]:
        """Name → encoder, in order of preference: configured ones first."""
        text = files(__package__).joinpath("models.toml").read_text("utf-8")
        table = dict(self.own_encoders)
        for name, entry in tomllib.loads(text).items():
            table.setdefault(name, EncoderModel.model_validate(entry))
        return table

    def find(self, name: str) -> EncoderModel:
        """Return the encoder of that name, or of a folder, or of a name on the hub ("org/model").

        Raises:
            ConfigError: for a name that means nothing.
        """
        table = self.table()
        if name in table:
            return table[name]
        if "/" in name or Path(name).is_dir():
            return EncoderModel(query=name)
        raise ConfigError(
            f"{name!r} is not an encoder: known are {', '.join(table)}",
            hint="name one of these, a sentence-transformers folder, or a name on the hub (org/model);"
            ' or describe it in [evidence.own_encoders]; or do without it: [evidence] retriever = "bm25" to search,'
            " --encoder none to build",
        )
