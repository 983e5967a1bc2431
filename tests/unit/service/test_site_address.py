"""Links of invitations lead to where the site is served."""

from pathlib import Path

from medlive.config import Settings, WebSection
from medlive.instance.loading import read_settings
from medlive.instance.paths import keep_site_address, site_address
from tests.support.instance import REPOSITORY


def test_a_link_leads_to_where_serve_listened_last(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert site_address(settings) == settings.web.base_url
    keep_site_address(settings, "http://0.0.0.0:9123")
    assert site_address(settings) == "http://127.0.0.1:9123"


def test_a_link_leads_to_base_url_where_it_is_set(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, web=WebSection(base_url="https://medlive.example")
    )
    keep_site_address(settings, "http://127.0.0.1:9123")
    assert site_address(settings) == "https://medlive.example"


def test_the_shipped_settings_leave_the_address_to_serve(tmp_path: Path) -> None:
    shipped = {"MEDLIVE_CONFIG": str(REPOSITORY / "config")}
    settings = read_settings({**shipped, "MEDLIVE_HOME": str(tmp_path)})
    keep_site_address(settings, "http://127.0.0.1:9123")
    assert site_address(settings) == "http://127.0.0.1:9123"
