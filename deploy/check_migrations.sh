#!/usr/bin/env bash
# Upgrade an empty database of its own to the newest schema and compare it with the model.
set -euo pipefail
medlive=$1
unset MEDLIVE_DATABASE_URL
MEDLIVE_HOME=$(mktemp -d)
export MEDLIVE_HOME
trap '"$medlive" db stop >/dev/null 2>&1 || true; rm -rf "$MEDLIVE_HOME"' EXIT
"$medlive" db start >/dev/null
"$medlive" db check
