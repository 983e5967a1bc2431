"""Plan an index's vectors: `plan_index` chooses the encoders that are requested, configured, known or found here."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from medlive.errors import ConfigError, EvidenceUnavailable

from .encoders.folders import DOWNLOAD, find_problem
from .encoders.model import Encoder, Reranker
from .encoders.opening import open_encoder, open_reranker
from .encoders.table import LANGUAGES, EncoderSettings
from .manifest import read_manifest

Routes = dict[str, tuple[str, ...]]
"""Encoder → the languages (ISO 639) whose phrases it reads."""


class IndexPlan(NamedTuple):
    """The encoders that an index gets beside its search by words, and the reason."""

    sides: tuple[tuple[Encoder, tuple[str, ...]], ...]
    """Each encoder whose vectors are to be built, and the languages (ISO 639) whose phrases it reads."""
    reason: str
    reranker: Reranker | None = None  # To be measured; None: none is configured


WORDS_ALONE = IndexPlan((), "no encoder was given")


def plan_index(
    out: Path,
    requested: Sequence[str],
    settings: EncoderSettings,
) -> IndexPlan:
    """Choose the encoders of the index at `out`.

    Args:
        out: The index's folder.
        requested: Only "none"; or encoders as in `open_encoder`, each for every language that it reads. Empty: the
            configured encoders, else the index's own, else those whose models are found.
        settings: Where models are looked for, and what `[evidence.encoders]` says.

    Raises:
        As `open_encoder` and `open_reranker` do.
    """
    if tuple(requested) == ("none",):
        return IndexPlan((), "no encoder was wanted")
    known = {}
    with suppress(EvidenceUnavailable):
        known = {entry.encoder.where: entry for entry in read_manifest(out).dense}
    if requested:
        routes = _named([("all", name) for name in requested], settings)
        why = "it was asked for"
    elif settings.encoders:
        routes = _named(settings.encoders.items(), settings)
        why = "[evidence.encoders] names it"
    elif known:
        routes = {where: entry.languages for where, entry in known.items()}
        why = "the index has vectors of it"
    else:
        routes = _at_hand(settings)
        why = "its models are at hand"
    sides = []
    for where, languages in routes.items():
        identity = known[where].encoder if where in known else None
        encoder = open_encoder(where, settings=settings, known=identity)
        sides.append((encoder, languages))
    name = settings.reranker
    reranker = open_reranker(name, settings=settings) if name else None
    return IndexPlan(tuple(sides), _reason(routes, why, settings), reranker)


def _reason(routes: Routes, why: str, settings: EncoderSettings) -> str:
    """Why the index gets these encoders, and how to download one for each language that has none."""
    parts = []
    for where, languages in routes.items():
        parts.append(f"{where} for {', '.join(languages)}: {why}")
    for language in LANGUAGES:
        if not any(language in languages for languages in routes.values()):
            names = [n for n, m in settings.table().items() if m.reads(language)]
            parts.append(f"no encoder for {language}: {DOWNLOAD} {names[0]}")
    return "; ".join(parts)


def _named(named: Iterable[tuple[str, str]], settings: EncoderSettings) -> Routes:
    """The routes of pairs: a language or "all", and the name of an encoder."""
    routes: Routes = defaultdict(tuple)
    for language, name in named:
        if (folder := Path(name).expanduser()).is_dir():
            name = str(folder.resolve())
        readable = tuple(filter(settings.find(name).reads, LANGUAGES))
        if language == "all":
            routes[name] = readable
        elif language in readable:
            routes[name] += (language,)
        else:
            raise ConfigError(
                f"[evidence.encoders]: {name} does not read {language!r}, but {', '.join(readable)}",
                hint="name an encoder of that language; docs/evidence.md has a table",
            )
    return routes


def _at_hand(settings: EncoderSettings) -> Routes:
    """For each language the first encoder of the table whose models are here."""
    routes: Routes = defaultdict(tuple)
    for language in LANGUAGES:
        for name, model in settings.table().items():
            # An endpoint may cost money: it is asked where it is named.
            local = not model.base_url and model.reads(language)
            if local and find_problem(model, settings) is None:
                routes[name] += (language,)
                break
    return routes
