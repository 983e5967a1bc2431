"""Which sources are harvested, and how pages are fetched: the settings of a harvest."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from medlive.config import Settings
from medlive.errors import ConfigError, UsageError
from medlive.sources.fetching.page import FetchSettings
from medlive.sources.registry import SITES


def fetch_settings(settings: Settings) -> FetchSettings:
    """The fetcher's settings. Raises ConfigError."""
    try:
        return FetchSettings.model_validate(settings.harvest)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"harvest.{'.'.join(map(str, first['loc']))}: {first['msg']}") from exc


def select_sources(settings: Settings, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Source → its configured settings, for those named or for all. Raises UsageError for an unknown name."""
    for name in names:
        if name not in SITES:
            raise UsageError(f"unknown source {name!r}", hint=f"known sources: {', '.join(SITES)}")
    return {name: settings.sources.get(name, {}) for name in names or SITES}
