"""A variable overrides a file's value, and an empty one is an unset one."""

from pathlib import Path

from medlive.config import load_settings


def test_an_empty_variable_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text("[curation]\nconcurrency = 7\n")
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    unset = load_settings({**environment, "MEDLIVE_CURATION__CONCURRENCY": "", "MEDLIVE_HARVEST__CONTACT": ""})
    assert unset == load_settings(environment)
    assert unset.settings.curation.concurrency == 7
    changed = load_settings({**environment, "MEDLIVE_CURATION__CONCURRENCY": "9"})
    assert changed.settings.curation.concurrency == 9
    assert changed.origins["curation.concurrency"] == "MEDLIVE_CURATION__CONCURRENCY"
