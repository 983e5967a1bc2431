"""What Kubernetes runs is what Compose runs: commands, settings, probes, rights, volumes, grace."""

import re
from typing import Any

import pytest

from tests.unit.config.test_compose import OURS, ROOT
from tests.unit.config.test_deployments import DOCUMENTS, PODS, container

PREFIX = "medlive-"
SERVICES = sorted(OURS)
UNITS = {"Mi": 2**20, "Gi": 2**30, "m": 0.001}
USUAL_GRACE_S = 60
"""Of `medlive worker` without --grace."""
EVIDENCE = "/data/evidence"


def pod_of(service: str) -> dict[str, Any]:
    return dict(PODS[PREFIX + service]["spec"])


def container_of(service: str) -> dict[str, Any]:
    return container(PODS[PREFIX + service])


def variables(service: str) -> dict[str, dict[str, Any]]:
    """The variables of a container by name."""
    return {entry["name"]: entry for entry in container_of(service)["env"]}


def test_every_service_has_a_pod_and_every_pod_a_service() -> None:
    assert {PREFIX + service for service in SERVICES} == set(PODS)


@pytest.mark.parametrize("service", SERVICES)
def test_the_command_is_the_same(service: str) -> None:
    assert container_of(service)["args"] == OURS[service]["command"]


@pytest.mark.parametrize("service", SERVICES)
def test_the_settings_and_the_user_of_the_database_are_the_same(service: str) -> None:
    compose, ours = OURS[service]["environment"], variables(service)
    url = ours.pop("MEDLIVE_DATABASE_URL")["valueFrom"]["secretKeyRef"]
    key = ours.pop("MEDLIVE_SIGNING_KEY", None)
    assert url["name"] == "medlive-database"
    assert url["key"] == compose.get("MEDLIVE_DATABASE_USER", "owner")
    assert (key is not None) == ("MEDLIVE_SIGNING_KEY_FILE" in compose)
    plain = {name: entry["value"] for name, entry in ours.items()}
    others = ("MEDLIVE_DATABASE_", "MEDLIVE_SIGNING_KEY")
    expected = {}
    for name, value in compose.items():
        if not name.startswith(others):
            expected[name] = value
    assert plain == expected
    secrets = container_of(service).get("envFrom", [])
    assert bool(secrets) == ("env_file" in OURS[service])


@pytest.mark.parametrize("service", SERVICES)
def test_health_is_asked_at_the_same_address(service: str) -> None:
    ours, health = container_of(service), OURS[service].get("healthcheck", {})
    if health.get("disable"):
        assert "readinessProbe" not in ours
        assert PODS[PREFIX + service]["spec"]["restartPolicy"] == "Never"
        return
    address = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", " ".join(health["test"]))
    assert address is not None
    (port,) = ours["ports"]
    assert port["containerPort"] == int(address[1])
    assert ours["readinessProbe"]["httpGet"]["path"] == address[2]


@pytest.mark.parametrize("service", SERVICES)
def test_nothing_may_be_written_that_compose_does_not_let_write(service: str) -> None:
    compose = {"/tmp": "rw"}
    for volume in OURS[service]["volumes"]:
        _, path, *mode = volume.split(":")
        compose[path] = mode[0] if mode else "rw"
    ours = {}
    for mount in container_of(service)["volumeMounts"]:
        ours[mount["mountPath"]] = "ro" if mount.get("readOnly") else "rw"
    for path, mode in ours.items():
        # Evidence that is read is not always mounted in Compose.
        assert mode == "ro" if path not in compose else compose[path] in (mode, "rw")
    missing = compose.keys() - ours.keys()
    assert missing <= ({EVIDENCE} if service == "migrate" else set())


@pytest.mark.parametrize("service", SERVICES)
def test_the_container_is_as_confined(service: str) -> None:
    compose, ours = OURS[service], container_of(service)["securityContext"]
    assert ours["readOnlyRootFilesystem"] is compose["read_only"]
    assert ours["capabilities"]["drop"] == compose["cap_drop"]
    assert compose["security_opt"] == ["no-new-privileges:true"]
    assert ours["allowPrivilegeEscalation"] is False
    pod = pod_of(service)
    assert pod["automountServiceAccountToken"] is False
    user = re.search(r"^USER (\d+)", (ROOT / "deploy/Dockerfile").read_text(), re.M)
    assert user is not None
    context = pod["securityContext"]
    assert context["runAsUser"] == context["fsGroup"] == int(user[1])


@pytest.mark.parametrize("service", SERVICES)
def test_it_is_given_what_it_needs_and_no_more(service: str) -> None:
    resources = container_of(service)["resources"]
    requested, limited = resources["requests"], resources["limits"]
    assert size_of(requested["cpu"]) > 0
    # An idle service takes about 120 MB (docs/builders/measurements/growth.md).
    assert 120 * 10**6 < size_of(requested["memory"]) <= size_of(limited["memory"])


def size_of(quantity: object) -> float:
    """A quantity of Kubernetes as a number: of bytes, or of processors."""
    parts = re.fullmatch(r"([\d.]+)([A-Za-z]*)", str(quantity))
    assert parts is not None, quantity
    return float(parts[1]) * UNITS.get(parts[2], 1)


@pytest.mark.parametrize("service", SERVICES)
def test_a_worker_has_time_to_finish(service: str) -> None:
    args = container_of(service)["args"]
    if args[0] != "worker":
        return
    grace = USUAL_GRACE_S
    if "--grace" in args:
        grace = int(args[args.index("--grace") + 1])
    assert pod_of(service)["terminationGracePeriodSeconds"] > grace
    stop = OURS[service].get("stop_grace_period")
    if stop is not None:
        assert f"{pod_of(service)['terminationGracePeriodSeconds']}s" == stop


def test_what_has_several_pods_keeps_some_and_no_budget_blocks_a_drain() -> None:
    budgets, several = {}, set()
    for document in DOCUMENTS:
        kind, spec = document["kind"], document.get("spec", {})
        if kind == "PodDisruptionBudget":
            budgets[document["metadata"]["name"]] = spec
        # Without a number of its own it is scaled by the queue.
        if kind == "Deployment" and spec.get("replicas", 2) > 1:
            several.add(document["metadata"]["name"])
    assert budgets.keys() == several
    for spec in budgets.values():
        assert spec["maxUnavailable"] == 1
        assert "minAvailable" not in spec
