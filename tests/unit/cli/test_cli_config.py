"""Settings: read from files and the environment, each with its origin, and no secret ever printed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.instance import REPOSITORY, Instance, write_models

pytestmark = pytest.mark.whole

KEY = "sk-this-is-the-key"


def _shown(instance: Instance) -> dict[str, dict[str, Any]]:
    shown: dict[str, dict[str, Any]] = instance.here("config", "show", "--json").json
    return shown


def test_the_password_is_masked_and_keys_are_only_named(tmp_path: Path) -> None:
    config = write_models(
        tmp_path / "config", "https://models.example/v1", api_key_env="MODEL_KEY"
    )
    instance = Instance(
        tmp_path,
        "postgresql://keeper:s3cret-w0rd@db.example:5432/medlive",
        {"MEDLIVE_CONFIG": str(config), "MODEL_KEY": KEY},
    )
    for form in ((), ("--json",)):
        out = instance.here("config", "show", *form).out
        assert "s3cret-w0rd" not in out
        assert KEY not in out
        assert "MODEL_KEY" in out
        assert "db.example" in out
    assert _shown(instance)["database_url"] == {
        "value": "postgresql://keeper:***@db.example:5432/medlive",
        "origin": "MEDLIVE_DATABASE_URL",
    }
    url = instance.here("db", "url")
    assert url.out.strip() == "postgresql://keeper:***@db.example:5432/medlive"
    assert "s3cret-w0rd" in instance.here("db", "url", "--show-password").out


def test_each_value_tells_its_origin(tmp_path: Path) -> None:
    config = write_models(tmp_path / "config", "http://127.0.0.1:1/v1")
    instance = Instance(
        tmp_path,
        None,
        {
            "MEDLIVE_CONFIG": str(config),
            "MEDLIVE_CURATION__CONCURRENCY": "3",
            "MEDLIVE_ROLES__GRADER__MODEL": "another",
            "MEDLIVE_SOURCES__SDN__BOARDS": '["a.1", "b.2"]',
        },
    )
    shown = _shown(instance)
    assert shown["curation.concurrency"] == {
        "value": 3,
        "origin": "MEDLIVE_CURATION__CONCURRENCY",
    }
    assert shown["curation.top_k"] == {
        "value": 6,
        "origin": str(config / "medlive.toml"),
    }
    assert shown["roles.grader.model"] == {
        "value": "another",
        "origin": "MEDLIVE_ROLES__GRADER__MODEL",
    }
    assert shown["roles.screener.model"] == {
        "value": "rules",
        "origin": str(config / "models.toml"),
    }
    assert shown["roles.screener.timeout_s"]["origin"] == "default"
    assert shown["sources.sdn.boards"]["value"] == ["a.1", "b.2"]
    assert shown["home"] == {"value": str(tmp_path), "origin": "MEDLIVE_HOME"}
    assert str(shown["database_url"]["value"]).startswith("embedded")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("medlive.toml", "[curation]\nconcurrency = 0\n", "curation.concurrency"),
        ("medlive.toml", "[curation]\nconcurency = 4\n", "curation.concurency"),
        ("medlive.toml", "[curation]\nsufficiency = 1.0\n", "curation.sufficiency"),
        ("medlive.toml", "[nonsense]\nx = 1\n", "nonsense"),
        (
            "models.toml",
            '[roles.screener]\nengine = "openai"\nmodel = "m"\n',
            "roles.screener",
        ),
        (
            "models.toml",
            '[roles.screener]\nengine = "magic"\n',
            "roles.screener.engine",
        ),
        ("models.toml", "[roles.screener\n", "line 1"),
        ("sources.toml", "[sources]\nicliniq = 4\n", "sources.icliniq"),
    ],
)
def test_a_wrong_file_exits_2_naming_the_file_and_the_key(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / name).write_text(text, encoding="utf-8")
    done = Instance(tmp_path, None, {"MEDLIVE_CONFIG": str(config)}).here(
        "config", "show", status=2
    )
    assert str(config / name) in done.err
    assert told in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("MEDLIVE_CURATION__CONCURRENCY", "many", "curation.concurrency"),
        ("MEDLIVE_CURATION__NONSENSE", "1", "curation.nonsense"),
        ("MEDLIVE_NONSENSE__X", "1", "nonsense"),
        ("MEDLIVE_CONFIG", "/nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_a_wrong_variable_exits_2_and_is_named(
    tmp_path: Path, variable: str, value: str, told: str
) -> None:
    done = Instance(tmp_path, None, {variable: value}).here("config", "show", status=2)
    assert variable in done.err
    assert told in done.err


def test_a_key_in_the_config_itself_is_refused(tmp_path: Path) -> None:
    config = write_models(tmp_path / "config", "https://models.example/v1", api_key=KEY)
    done = Instance(tmp_path, None, {"MEDLIVE_CONFIG": str(config)}).here(
        "config", "show", status=2
    )
    assert "roles.screener.api_key" in done.err
    assert KEY not in done.err


def test_a_key_whose_variable_is_not_set_is_said_by_name(tmp_path: Path) -> None:
    cases = tmp_path / "cases.json"
    case = {
        "case_id": "c1",
        "post_time": "2026-10-01",
        "narrative": "A man of 54 has chest pain.",
        "core_request": "What should he do?",
        "doctor_advice": "An ECG today.",
        "rubric_items": [{"criterion": "Advises an ECG today.", "points": 5}],
    }
    cases.write_text(json.dumps([case]), encoding="utf-8")
    endpoint = (
        "--model",
        "m",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--api-key-env",
        "NO_SUCH_KEY_VARIABLE",
    )
    done = Instance(tmp_path, None).here(
        "eval", "run", "--cases", cases, *endpoint, "--out", tmp_path / "run", status=2
    )
    assert "NO_SUCH_KEY_VARIABLE" in done.err


def test_the_shipped_settings_are_valid_and_hold_no_address_of_a_model(
    tmp_path: Path,
) -> None:
    shown = _shown(
        Instance(tmp_path, None, {"MEDLIVE_CONFIG": str(REPOSITORY / "config")})
    )
    assert {
        shown[f"roles.{role}.engine"]["value"] for role in ("screener", "grader")
    } == {"rules"}
    assert not [
        key
        for key, entry in shown.items()
        if key.endswith("api_key_env") and entry["value"]
    ]
