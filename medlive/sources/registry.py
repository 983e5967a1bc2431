"""The communities that medlive knows: one line for each of its own, and those that plugins add."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from medlive.errors import ConfigError, first_fault
from medlive.plugins import load_plugins

from .sites.dxy import Dxy
from .sites.icliniq import Icliniq
from .sites.medlive import Medlive
from .sites.sdn import Sdn
from .source import Site, SourceSettings

SITES: Mapping[str, type[Site]] = {
    site.name: site for site in (Icliniq, Sdn, Dxy, Medlive)
}


def known_sites() -> Mapping[str, type[Site]]:
    """Name → adapter. Raises ConfigError for a plugin that is not an adapter, or that takes a known name."""
    sites = dict(SITES)
    for site in load_plugins("sites"):
        if not (isinstance(site, type) and issubclass(site, Site)):
            raise ConfigError(f"expected a class of Site, not {site!r}")
        if site.name in sites:
            raise ConfigError(f"there are two adapters named {site.name!r}")
        sites[site.name] = site
    return sites


def build_site(
    name: str,
    overrides: Mapping[str, Any] | None = None,
) -> Site:
    """The adapter of a community, its default settings overridden field by field. Raises ConfigError."""
    sites = known_sites()
    site = sites.get(name)
    if site is None:
        raise ConfigError(
            f"no source is named {name!r}", hint=f"known sources: {', '.join(sites)}"
        )
    try:
        return site(
            SourceSettings.model_validate(
                {**site.defaults.model_dump(), **(overrides or {})}
            )
        )
    except ValidationError as error:
        raise ConfigError(f"[sources.{name}] {first_fault(error)}") from error
