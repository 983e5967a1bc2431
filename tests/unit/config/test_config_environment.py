"""A variable overrides a file's value, and an empty one is an unset one."""

from pathlib import Path

import pytest

from medlive.errors import ConfigError
from medlive.instance.loading import describe, load_settings, read_settings


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
    assert unset[0].curation.concurrency == 7
    settings, origins = load_settings(
        {**environment, "MEDLIVE_CURATION__CONCURRENCY": "9"}
    )
    assert settings.curation.concurrency == 9
    assert origins["curation.concurrency"] == "MEDLIVE_CURATION__CONCURRENCY"


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
        settings, origins = load_settings({**environment, variable: value})
        assert settings.roles.grader.parameters == expected
        assert [
            row for row in describe(settings, origins) if row[0].startswith(name)
        ] == [(*shown, variable)]
    below = read_settings({**environment, f"{variable}__SEED": "3"})
    assert below.roles.grader.parameters == {"temperature": 0.0, "seed": 3}
    with pytest.raises(ConfigError, match="seed"):
        load_settings({**environment, f"{variable}__SEED__X": "3"})


def test_a_limit_of_an_unknown_stage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text("[budget.stage_week_usd]\nscrener = 1.0\n")
    with pytest.raises(
        ConfigError,
        match="screner",
    ):
        load_settings({"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MEDLIVE_CURATION__CONCURENCY", "is concurrency meant?"),
        ("MEDLIVE_CURATON__CONCURRENCY", "is curation meant?"),
        ("MEDLIVE_ROLES__READER__MODLE", "is model meant?"),
        ("MEDLIVE_CANDIDATES__M__MODLE", "is model meant?"),
        ("MEDLIVE_CURATION__QQQ", "`medlive config show`"),
    ],
)
def test_a_misspelt_setting_names_its_variable_and_the_nearest(
    tmp_path: Path, variable: str, meant: str
) -> None:
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match="unknown setting") as refused:
        load_settings({**environment, variable: "3"})
    assert refused.value.message.startswith(f"{variable}: ")
    assert meant in str(refused.value.hint)


def test_a_misspelt_setting_names_its_file_and_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "medlive.toml"
    file.write_text("[curation]\nconcurency = 7\n")
    with pytest.raises(ConfigError) as refused:
        load_settings({"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)})
    assert refused.value.message == f"{file}: curation.concurency: unknown setting"
    assert "is concurrency meant?" in str(refused.value.hint)


def test_a_variable_goes_before_a_files_database(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text('database_url = "postgresql:///file"\n')
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    by_url = {"MEDLIVE_DATABASE_URL": "postgresql:///variable"}
    by_parts = {"MEDLIVE_DATABASE_HOST": "db"}
    for variables, expected in (
        ({}, "postgresql:///file"),
        (by_url, "postgresql:///variable"),
        (by_parts, "postgresql://medlive@db:5432/medlive"),
        ({"MEDLIVE_DATABASE_HOST": "::1"}, "postgresql://medlive@[::1]:5432/medlive"),
    ):
        url = read_settings({**environment, **variables}).database_url
        assert url is not None
        assert url.get_secret_value() == expected
    with pytest.raises(ConfigError, match="not both"):
        load_settings({**environment, **by_url, **by_parts})


def test_a_files_home_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text('home = "/elsewhere"\n')
    with pytest.raises(ConfigError, match=r"medlive\.toml: home") as refused:
        load_settings({"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)})
    assert "MEDLIVE_HOME" in str(refused.value.hint)


def test_a_text_of_digits_stays_a_text(tmp_path: Path) -> None:
    (tmp_path / "medlive.toml").write_text(
        '[web.oidc]\nissuer = "https://id.example"\nclient_secret_env = "S"\n'
    )
    environment = {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    variables = {
        "MEDLIVE_NOTIFY__SMTP_PASSWORD": "12345678",
        "MEDLIVE_PUBLISH__AT": '"2026-11-01"',
        "MEDLIVE_ROLES__GRADER__QUERY__VERSION": "2024-10-21",
        "MEDLIVE_ROLES__GRADER__PARAMETERS__SEED": "3",
        "MEDLIVE_WEB__OIDC__CLIENT_ID": "10000000001",
    }
    settings = read_settings({**environment, **variables})
    assert settings.notify.smtp_password is not None
    assert settings.notify.smtp_password.get_secret_value() == "12345678"
    assert settings.publish.at == "2026-11-01"
    assert settings.roles.grader.query == {"version": "2024-10-21"}
    assert settings.roles.grader.parameters == {"seed": 3}
    assert settings.web.oidc is not None
    assert settings.web.oidc.client_id == "10000000001"


def test_a_misspelt_setting_of_an_optional_table_names_the_nearest(
    tmp_path: Path,
) -> None:
    (tmp_path / "medlive.toml").write_text(
        '[web.oidc]\nissuer = "https://x"\nclient_id = "a"\nclient_secret_env = "S"\nscop = ""\n'
    )
    with pytest.raises(ConfigError) as refused:
        load_settings({"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)})
    assert "is scope meant?" in str(refused.value.hint)


def test_a_header_s_secret_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text(
        "[roles.grader]\nkey_header = 'api-key'\napi_key_env = 'THE_KEY'\n"
        "headers = {Authorization = 'Bearer 0123456789', api-key = 'abcdefgh', X-Team = 'ours'}\n"
    )
    loaded = load_settings(
        {"MEDLIVE_CONFIG": str(tmp_path), "MEDLIVE_HOME": str(tmp_path)}
    )
    shown = {name: value for name, value, _ in describe(*loaded)}
    role = "roles.grader"
    assert shown[f"{role}.headers.Authorization"] == "Bearer ***"
    assert shown[f"{role}.headers.api-key"] == "***"
    assert shown[f"{role}.headers.X-Team"] == "ours"
    assert shown[f"{role}.api_key_env"] == "THE_KEY"
    assert shown[f"{role}.key_header"] == "api-key"
