"""The communities that medlive knows: one line for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from medlive.errors import ConfigError
from medlive.sources.sites import dxy, icliniq, medlive, sdn
from medlive.sources.source import Site, SourceSettings


@dataclass(frozen=True, slots=True)
class KnownSite:
    """An adapter and the settings it has without any configuration."""

    build: Callable[[SourceSettings], Site]
    defaults: SourceSettings


SITES: Mapping[str, KnownSite] = {
    "icliniq": KnownSite(icliniq.Icliniq, icliniq.DEFAULTS),
    "sdn": KnownSite(sdn.Sdn, sdn.DEFAULTS),
    "dxy": KnownSite(dxy.Dxy, dxy.DEFAULTS),
    "medlive": KnownSite(medlive.Medlive, medlive.DEFAULTS),
}


def build_site(name: str, overrides: Mapping[str, Any] | None = None) -> Site:
    """The adapter of a community, its default settings overridden field by field.

    Raises ConfigError for an unknown name or field, or a value that does not fit.
    """
    known = SITES.get(name)
    if known is None:
        raise ConfigError(f"no source is named {name!r}", hint=f"known sources: {', '.join(SITES)}")
    values = {**known.defaults.model_dump(), **(overrides or {})}
    try:
        return known.build(SourceSettings.model_validate(values))
    except ValidationError as error:
        causes = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ConfigError(f"the settings of source {name!r} do not fit: {causes}") from error
