"""Which sources are harvested, as the settings say."""

from pathlib import Path
from typing import Any

import pytest

from medlive.config import Settings
from medlive.errors import ConfigError, UsageError
from medlive.service.harvest.sources import check_page, select_sources
from medlive.sources.registry import SITES
from tests.support.site_pages import SAMPLES


def settings(tmp_path: Path, **sources: dict[str, Any]) -> Settings:
    return Settings(home=tmp_path, sources=sources)


@pytest.mark.parametrize(
    ("sources", "match"),
    [
        (
            {"SDN": {"base_url": "http://127.0.0.1:1"}},
            r"\[sources.SDN\]: unknown source",
        ),
        (
            {"sdn": {"base_ulr": "http://127.0.0.1:1"}},
            r"\[sources.sdn\] base_ulr: Extra inputs",
        ),
    ],
)
def test_a_misspelt_source_or_setting_is_an_error(
    tmp_path: Path, sources: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        select_sources(settings(tmp_path, **sources), [])


def test_a_source_can_be_switched_off(tmp_path: Path) -> None:
    off = settings(tmp_path, dxy={"enabled": False})
    assert set(SITES) - set(select_sources(off, [])) == {"dxy"}
    assert list(select_sources(off, ["dxy"])) == ["dxy"]
    with pytest.raises(UsageError):
        select_sources(off, ["DXY"])


async def test_the_first_page_of_a_long_thread_shows_what_it_holds(
    tmp_path: Path,
) -> None:
    first, _ = SAMPLES[2].pages()
    found = await check_page(settings(tmp_path), "sdn", first.url, first.body)
    assert found["fields"]["messages"] == 3
    assert found["fields"]["next page"].endswith("/page-2")
