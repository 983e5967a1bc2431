"""A community on another server than its own."""

from typing import Any

from medlive.sources.registry import build_site
from medlive.sources.source import Site


def site_at(base_url: str, **changes: Any) -> Site:
    """A site of which that server alone is asked, without pauses."""
    settings = {"base_url": base_url, "min_interval_s": 0.0, **changes}
    return build_site("icliniq", settings)
