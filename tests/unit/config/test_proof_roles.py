"""Who proves rubrics: another model than the writer's where there is one, nobody where no model writes."""

from pathlib import Path
from typing import Any

import pytest

from medlive.config import RoleSettings, RubricSection, Settings
from medlive.demo.loop import demo_settings
from medlive.service.wiring import find_dependent_judges, proof_roles
from medlive.snapshot.manifest import EngineUse, warnings_of
from tests.support.snapshots import PROVENANCE


def model(name: str) -> dict[str, Any]:
    return {"engine": "openai", "base_url": "http://127.0.0.1:1/v1", "model": name}


def settings(**roles: dict[str, Any]) -> Settings:
    return Settings.model_validate({"home": Path("home"), "roles": roles})


def unproving(found: Settings) -> Settings:
    return found.model_copy(update={"rubric": RubricSection(prove=False)})


def proving(found: Settings) -> dict[str, str | None]:
    return {role: own.model for role, own in proof_roles(found).items()}


@pytest.mark.parametrize(
    ("roles", "prober", "grader"),
    [
        ({"prober": "p", "grader": "g", "reader": "r"}, "p", "g"),
        ({"grader": "g", "reader": "r"}, "r", "g"),
        ({"reader": "r"}, "r", "r"),
        ({"reader": "w", "grader": "g"}, "g", "g"),
        ({"reader": "w", "controller": "c"}, "c", "w"),
        ({}, "w", "w"),
    ],
)
def test_a_role_that_is_not_set_is_taken_by_another_model(
    roles: dict[str, str], prober: str, grader: str
) -> None:
    named = {role: model(name) for role, name in roles.items()}
    found = settings(rubric=model("w"), **named)
    assert proving(found) == {"prober": prober, "grader": grader}


@pytest.mark.parametrize(
    "found",
    [
        settings(),
        settings(rubric=model("rules")),
        settings(rubric=model("rules-0123abcd"), reader=model("r")),
        unproving(settings(rubric=model("w"))),
    ],
)
def test_nobody_proves_what_rules_wrote_or_where_it_is_off(
    found: Settings,
) -> None:
    assert proof_roles(found) == {}


def test_one_model_in_all_parts_is_warned_of() -> None:
    one = settings(rubric=model("w"), reader=model("w"), grader=model("w"))
    assert any("one model, w" in warning for warning in find_dependent_judges(one))
    two = settings(rubric=model("w"), reader=model("r"), grader=model("w"))
    assert find_dependent_judges(two) == []


def test_the_manifest_warns_of_a_model_in_all_parts() -> None:
    def of(**models: str) -> tuple[str, ...]:
        engines = []
        for role, name in models.items():
            engines.append(EngineUse(role=role, engine="openai", model=name))
        return warnings_of(PROVENANCE.model_copy(update={"engines": tuple(engines)}))

    assert of(rubric="w", prober="p", grader="w") == ()
    assert of(rubric="w") == ()
    (warning,) = of(rubric="w", prober="w", grader="w")
    assert warning.startswith("w wrote rubrics")


def test_the_demo_proves_by_its_recording_or_by_a_live_endpoint() -> None:
    found = settings()
    recorded = proof_roles(demo_settings(found, None))
    assert {role: own.engine for role, own in recorded.items()} == {
        "prober": "recorded",
        "grader": "recorded",
    }
    live = RoleSettings(engine="openai", base_url="http://127.0.0.1:1/v1", model="m")
    assert proving(demo_settings(found, live)) == {"prober": "m", "grader": "m"}
