"""The communities that medlive knows: one line for each."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from medlive.errors import ConfigError
from medlive.sources.sites.dxy import Dxy
from medlive.sources.sites.icliniq import Icliniq
from medlive.sources.sites.medlive import Medlive
from medlive.sources.sites.sdn import Sdn
from medlive.sources.source import Site, SourceSettings

SITES: Mapping[str, type[Site]] = {
    site.name: site for site in (Icliniq, Sdn, Dxy, Medlive)
}


def build_site(name: str, overrides: Mapping[str, Any] | None = None) -> Site:
    """The adapter of a community, its default settings overridden field by field. Raises ConfigError."""
    site = SITES.get(name)
    if site is None:
        raise ConfigError(
            f"no source is named {name!r}", hint=f"known sources: {', '.join(SITES)}"
        )
    try:
        return site(
            SourceSettings.model_validate(
                {**site.defaults.model_dump(), **(overrides or {})}
            )
        )
    except ValidationError as error:
        causes = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()
        )
        raise ConfigError(f"[sources.{name}] {causes}") from error
