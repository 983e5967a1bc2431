"""Kubernetes, systemd and monitoring agree with the program: commands, probes, selectors, metrics."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from medlive.service.watch.checks import CHECKS
from medlive.service.watch.metrics import NAMES
from tests.unit.config.test_compose import COMPOSE, read_command

DEPLOY = Path(__file__).parents[3] / "deploy"
DOCUMENTS: list[dict[str, Any]] = [
    document
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PODS = {
    d["metadata"]["name"]: d["spec"]["template"]
    for d in DOCUMENTS
    if d["kind"] in ("Deployment", "Job")
}
ALERTS = [
    rule
    for group in yaml.safe_load(
        (DEPLOY / "monitoring/alerts.yml").read_text(encoding="utf-8")
    )["groups"]
    for rule in group["rules"]
]
PANELS = json.loads((DEPLOY / "monitoring/dashboard.json").read_text(encoding="utf-8"))[
    "panels"
]
QUERIES = [rule["expr"] for rule in ALERTS] + [
    t["expr"] for panel in PANELS for t in panel["targets"]
]


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    return dict(only)


@pytest.mark.parametrize("name", sorted(PODS))
def test_every_pod_runs_a_command_of_the_program_and_can_do_nothing_else(
    name: str,
) -> None:
    pod, ours = PODS[name], container(PODS[name])
    read_command(ours["args"])
    assert ours["image"] == COMPOSE["services"]["web"]["image"]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert ours["securityContext"]["readOnlyRootFilesystem"]
    assert ours["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {m["name"] for m in ours["volumeMounts"]} == {
        v["name"] for v in pod["spec"]["volumes"]
    }


def test_probes_ask_the_port_on_which_the_command_listens() -> None:
    for name, pod in PODS.items():
        ours = container(pod)
        if name == "medlive-migrate":
            continue
        (port,) = ours["ports"]
        assert str(port["containerPort"]) in ours["args"], name
        for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
            assert ours[kind]["httpGet"]["port"] == port["name"], name
        # A database that is away takes a pod out of service; it does not restart it.
        assert ours["livenessProbe"]["httpGet"]["path"] == "/healthz", name


def selected(document: dict[str, Any]) -> set[str]:
    """The names of the pods that a document's selector picks."""
    spec = document["spec"]
    selector = spec.get("podSelector", spec.get("selector"))
    labels = selector.get(
        "matchLabels", {} if "matchExpressions" in selector else selector
    )
    if document["kind"] == "Service":
        labels = selector

    def picks(own: dict[str, str]) -> bool:
        named = all(
            own.get(e["key"]) in e["values"]
            for e in selector.get("matchExpressions", ())
        )
        return named and labels.items() <= own.items()

    return {name for name, pod in PODS.items() if picks(pod["metadata"]["labels"])}


def test_selectors_pick_pods_that_there_are() -> None:
    for document in DOCUMENTS:
        if document["kind"] in ("Deployment", "Service", "PodDisruptionBudget"):
            assert selected(document) == {document["metadata"]["name"]}
    policies = {
        d["metadata"]["name"]: selected(d)
        for d in DOCUMENTS
        if d["kind"] == "NetworkPolicy"
    }
    assert policies == {
        "medlive-default": set(PODS),
        "medlive-internet": {"medlive-scheduler", "medlive-worker"},
        "medlive-web": {"medlive-web", "medlive-rooms"},
        "medlive-metrics": {"medlive-metrics"},
    }


def test_the_scaler_scales_a_deployment_with_no_number_of_its_own() -> None:
    (scaler,) = (d for d in DOCUMENTS if d["kind"] == "ScaledObject")
    target = scaler["spec"]["scaleTargetRef"]["name"]
    (deployment,) = (
        d
        for d in DOCUMENTS
        if d["kind"] == "Deployment" and d["metadata"]["name"] == target
    )
    assert "replicas" not in deployment["spec"]
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["metadata"]["connectionFromEnv"] in {
        e["name"] for e in container(PODS[target])["env"]
    }


def test_the_kustomization_names_every_manifest() -> None:
    (kustomization,) = (d for d in DOCUMENTS if d["kind"] == "Kustomization")
    manifests = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {
        "kustomization.yaml"
    }
    assert set(kustomization["resources"]) == manifests
    claims = {
        v["configMap"]["name"]
        for pod in PODS.values()
        for v in pod["spec"]["volumes"]
        if "configMap" in v
    }
    assert claims == {
        generator["name"] for generator in kustomization["configMapGenerator"]
    }


@pytest.mark.parametrize(
    "path", sorted((DEPLOY / "systemd").glob("*.env")), ids=lambda path: path.stem
)
def test_every_unit_runs_a_command_of_the_program(path: Path) -> None:
    # As a shell reads it, for deploy/README.md's `run_as`.
    settings = dict(
        word.split("=", 1) for word in shlex.split(path.read_text(), comments=True)
    )
    read_command(settings["COMMAND"].split())


def test_the_embedded_server_has_a_unit_before_all_others() -> None:
    text = (DEPLOY / "systemd" / "medlive-postgres.service").read_text()
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition("=")
        values[name] = value.split()
    program, *command = values["ExecStart"]
    assert program == "/opt/medlive/bin/medlive"
    read_command(command)
    others = []
    for path in sorted((DEPLOY / "systemd").glob("*.env")):
        others.append(f"medlive@{path.stem}.service")
    assert sorted(values["Before"]) == sorted(values["RequiredBy"]) == others


def metrics_of(expression: Any) -> Iterator[tuple[str, set[str]]]:
    """Each metric that a parsed query names, and the labels that it matches."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield (
            expression.name,
            {matcher.name for matcher in expression.matchers.matchers},
        )
    for part in ("expr", "lhs", "rhs", "vector_selector"):
        if (inner := getattr(expression, part, None)) is not None:
            yield from metrics_of(inner)
    for argument in getattr(expression, "args", None) or ():
        yield from metrics_of(argument)


def operators_of(expression: Any) -> Iterator[str]:
    """The operators of a parsed query."""
    if isinstance(expression, promql_parser.BinaryExpr):
        yield str(expression.op)
    for part in ("expr", "lhs", "rhs"):
        if (inner := getattr(expression, part, None)) is not None:
            yield from operators_of(inner)


def matchers_of(expression: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric that a parsed query names, and the labels' values that it asks for."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield (
            expression.name,
            {matcher.name: matcher.value for matcher in expression.matchers.matchers},
        )
    for part in ("expr", "lhs", "rhs"):
        if (inner := getattr(expression, part, None)) is not None:
            yield from matchers_of(inner)


@pytest.mark.parametrize(
    "query", [t["expr"] for panel in PANELS for t in panel["targets"]]
)
def test_no_panel_hides_one_metric_behind_another(query: str) -> None:
    # `a or b` shows b only where a has no sample at all, be it 0.
    assert "or" not in operators_of(promql_parser.parse(query))


@pytest.mark.parametrize("query", QUERIES)
def test_queries_are_of_metrics_that_there_are(query: str) -> None:
    found = list(metrics_of(promql_parser.parse(query)))
    assert found
    for name, labels in found:
        assert labels <= set(NAMES[name][1].split()), name


def test_every_trouble_has_its_alert() -> None:
    selected = set()
    for rule in ALERTS:
        for name, matchers in matchers_of(promql_parser.parse(rule["expr"])):
            if name == "medlive_problem":
                selected |= {
                    value for label, value in matchers.items() if label == "severity"
                }
    # One alert for each severity stands for every check, also those to come.
    assert selected == {severity.value for severity in CHECKS.values()}
    asked = {
        name
        for rule in ALERTS
        for name, _ in metrics_of(promql_parser.parse(rule["expr"]))
    }
    assert asked >= {
        "medlive_info",
        "medlive_recent_threads",
        "medlive_disk_free_bytes",
    }
    for rule in ALERTS:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            asked_labels = {
                label
                for name, _ in metrics_of(promql_parser.parse(rule["expr"]))
                for label in NAMES[name][1].split()
            }
            assert label in asked_labels, rule["alert"]


def test_panels_lie_side_by_side() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in PANELS]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in PANELS})
