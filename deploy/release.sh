#!/usr/bin/env bash
# Build the wheel and the source archive of this version into dist/, check them, list what they install (an SBOM in
# CycloneDX's form) and what they were built from (provenance), and sign the checksums of all.
#
# The key is that of releases (MEDLIVE_SIGNING_KEY_FILE, docs/signing.md); without one nothing is signed, and this
# says so. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

if [ -n "$(git status --porcelain)" ]; then
  echo "release.sh: there are changes that are not committed" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work" medlive/COMMIT' EXIT
"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check build twine cyclonedx-bom
rm -rf dist
# The same commit makes the same bytes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# Runs and bundles name it (medlive/build.py).
git rev-parse HEAD > medlive/COMMIT
"$work/build/bin/python" -m build --outdir dist .
rm medlive/COMMIT
"$work/build/bin/twine" check --strict dist/*

# A stranger's machine: the wheel alone, in a fresh environment.
"$python" -m venv "$work/try"
"$work/try/bin/pip" install --quiet --disable-pip-version-check dist/*.whl
(cd "$work" && "$work/try/bin/medlive" --version && "$work/try/bin/medlive" eval run --help >/dev/null)

# A maintainer's machine, with the versions that were tested.
"$python" -m venv "$work/service"
"$work/service/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt \
  "$(echo dist/*.whl)[service,publish]"
"$work/build/bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml --output-format JSON \
  --output-file dist/sbom.cdx.json "$work/service/bin/python"
"$python" deploy/provenance.py dist/*.whl dist/*.tar.gz dist/sbom.cdx.json > dist/provenance.intoto.json

(cd dist && sha256sum ./*.whl ./*.tar.gz ./*.json | sed 's# \./# #' > SHA256SUMS)
(cd dist && "$work/try/bin/python" - <<'PY'
import os
from pathlib import Path

from medlive.integrity.signing import load_signing_key, sign

key = load_signing_key(os.environ)
if key is None:
    print("not signed: MEDLIVE_SIGNING_KEY_FILE is not set")
else:
    data = Path("SHA256SUMS").read_bytes()
    Path("SHA256SUMS.minisig").write_text(sign(data, key, "medlive release", "medlive release"), encoding="utf-8")
    print(f"signed by key {key.public.id_text()}: minisign -Vm dist/SHA256SUMS -p medlive.pub")
PY
)
ls -l dist
