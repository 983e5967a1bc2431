#!/usr/bin/env bash
# Make the virtual environment $1 and install medlive into it with what $2 needs: "service", "dev", "dense",
# "integrations", "docs" or "bench".
# Uses uv when it is there, else venv and pip; the versions are those of constraints.txt.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 what=$2 python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "medlive needs Python 3.11 or newer; $python is $("$python" --version 2>&1 || echo 'not there')." >&2
  echo "Name another one: make demo PYTHON=/path/to/python3.12" >&2
  exit 2
fi

if command -v uv >/dev/null 2>&1; then
  [ -x "$venv/bin/python" ] || uv venv --quiet --python "$python" "$venv"
  install() { uv pip install --quiet --compile-bytecode --python "$venv/bin/python" "$@"; }
else
  if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || {
      echo "Python's venv module does not work here; on Debian: apt-get install python3-venv" >&2
      exit 2
    }
  fi
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip --upgrade >/dev/null
  install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
fi

echo "Installing medlive[$what] into $venv (a minute or two the first time)…" >&2
case $what in
  service) install -c constraints.txt -e '.[service]' ;;
  dev)
    install -c constraints.txt -e '.[service,publish,dev]'
    # It asks for a numpy before 2 and works with a later one: an outside opinion in tests, which skip without it.
    install --no-deps 'irrCAC==0.4.4' || echo "irrCAC could not be installed: tests against it are skipped" >&2
    ;;
  dense)
    # By pip, which takes a CPU build of torch where the machine's package sources have one; uv takes the one with
    # several GB of CUDA.
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip --upgrade >/dev/null
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[service,publish,dev,dense,encoders]'
    ;;
  docs) install -c constraints.txt -e '.[service,docs]' ;;
  bench) install -c constraints.txt -e '.[service,publish,dev,bench]' ;;
  integrations) install -c constraints.txt -e '.[service,publish,dev,integrations]' ;;
  *) echo "setup.sh: $what is none of service, dev, dense, integrations, docs and bench" >&2; exit 2 ;;
esac
