"""A variable overrides a file's value, and an empty one is an unset one."""

from pathlib import Path

import pytest

from medlive.config import config_folder, describe, load_settings
from medlive.errors import ConfigError


def test_an_empty_variable_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text("[curation]\nconcurrency = 7\n")
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    unset = load_settings(
        {
            **environment,
            "MEDLIVE_CURATION__CONCURRENCY": "",
            "MEDLIVE_HARVEST__CONTACT": "",
        }
    )
    assert unset == load_settings(environment)
    assert unset.settings.curation.concurrency == 7
    changed = load_settings({**environment, "MEDLIVE_CURATION__CONCURRENCY": "9"})
    assert changed.settings.curation.concurrency == 9
    assert changed.origins["curation.concurrency"] == "MEDLIVE_CURATION__CONCURRENCY"


def test_a_variable_replaces_a_table_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(
        "[roles.grader]\nparameters = {temperature = 0.0, seed = 1}\n"
    )
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    variable = "MEDLIVE_ROLES__GRADER__PARAMETERS"
    name = "roles.grader.parameters"
    for value, expected, shown in (
        ("{}", {}, (name, {})),
        ("{seed = 2}", {"seed": 2}, (f"{name}.seed", 2)),
    ):
        changed = load_settings({**environment, variable: value})
        assert changed.settings.roles.grader.parameters == expected
        assert [row for row in describe(changed) if row[0].startswith(name)] == [
            (*shown, variable)
        ]
    below = load_settings({**environment, f"{variable}__SEED": "3"}).settings
    assert below.roles.grader.parameters == {"temperature": 0.0, "seed": 3}
    with pytest.raises(ConfigError, match="seed"):
        load_settings({**environment, f"{variable}__SEED__X": "3"})


def test_a_config_folder_of_models_alone_is_read_and_the_rest_is_as_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"MEDLIVE_HOME": str(tmp_path)}
    shipped = load_settings(environment)
    assert config_folder(environment).is_absolute()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "schedule.toml").write_text(
        "[schedule.freeze]\nweekday = 1\n"
    )
    assert load_settings(environment) == shipped
    (tmp_path / "config" / "schedule.toml").unlink()
    (tmp_path / "config" / "models.toml").write_text(
        '[candidates."m"]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    assert config_folder(environment) == Path("config")
    found = load_settings(environment).settings
    assert found.candidates["m"].base_url == "http://127.0.0.1:9/v1"
    assert (found.sources, found.schedule) == (
        shipped.settings.sources,
        shipped.settings.schedule,
    )
    (tmp_path / "config" / "medlive.toml").write_text("[curation]\nconcurrency = 7\n")
    found = load_settings(environment).settings
    assert (found.curation.concurrency, found.sources) == (7, {})
    assert "m" in found.candidates


def test_a_limit_of_an_unknown_stage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text("[budget.stage_week_usd]\nscrener = 1.0\n")
    with pytest.raises(
        ConfigError,
        match="screner",
    ):
        load_settings({"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)})
