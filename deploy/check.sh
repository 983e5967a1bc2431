#!/usr/bin/env bash
# Every file of a deployment by its own linter; $1 is the folder with the linters' programs.
# What needs a server, a cluster or a Docker engine is not tried. tests/unit/config compares the files with medlive.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1
"$bin/hadolint" deploy/Dockerfile
"$bin/check-jsonschema" --quiet --builtin-schema vendor.compose-spec docker-compose.yml
# Kustomize's and KEDA's own kinds are in no schema of Kubernetes: a warning each.
"$bin/kubernetes-validate" --strict --quiet --no-warn deploy/kubernetes/*.yaml
# As `kubectl apply -k` would send them, with this repository's settings; that needs no cluster.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if command -v kubectl >/dev/null; then
  cp config/*.toml deploy/kubernetes/*.yaml "$scratch"
  kubectl kustomize "$scratch" > "$scratch/rendered"
  "$bin/kubernetes-validate" --strict --quiet --no-warn "$scratch/rendered"
else
  echo "kubectl is not here: the manifests are checked one by one, not as Kustomize renders them" >&2
fi
# crossplane 0.5.8 does not know nginx 1.19.4's directive.
"$bin/crossplane" parse --strict --ignore ssl_reject_handshake deploy/nginx.conf | "$bin/python" -c '
import json, sys
found = json.load(sys.stdin)
sys.exit("\n".join(str(error) for error in found["errors"]) if found["status"] != "ok" else 0)'
for script in deploy/*.sh; do bash -n "$script"; done
if command -v systemd-analyze >/dev/null; then
  # medlive is not installed where the checks run.
  sed 's#/opt/medlive/bin/medlive#/bin/true#' 'deploy/systemd/medlive@.service' > "$scratch/medlive@.service"
  sed 's#/opt/medlive/bin/medlive#/bin/true#' deploy/systemd/medlive-postgres.service > "$scratch/medlive-postgres.service"
  systemd-analyze verify "$scratch/medlive-postgres.service" "$scratch/medlive@worker.service"
else
  echo "systemd-analyze is not here: the units are not checked" >&2
fi
