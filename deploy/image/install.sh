#!/bin/sh
# Installs Muster into a folder, with the packages of requirements.lock and compiled kernels. Called by
# deploy/Containerfile; run it where pyproject.toml is: sh deploy/image/install.sh FOLDER
set -eu
folder=$1
here=$(dirname "$0")
python=${PYTHON:-python3}

# what builds the wheel stays outside
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
"$tools/venv/bin/pip" install --quiet --no-cache-dir --require-hashes --only-binary :all: -r "$here/build.lock"
"$tools/venv/bin/python" -m hatchling build -t wheel -d "$tools/dist" >/dev/null

"$python" -m venv "$folder"
"$folder/bin/pip" install --quiet --no-cache-dir --require-hashes --only-binary :all: -r "$here/requirements.lock"
"$folder/bin/pip" install --quiet --no-cache-dir --no-deps --no-index "$tools"/dist/*.whl
"$folder/bin/pip" uninstall --quiet --yes pip

# an image keeps whole seconds only, and both bytecode and kernels go by the time of their source
find "$folder" -name '*.py' -exec touch -d '2020-01-01 00:00:00 UTC' {} +
"$folder/bin/python" -m compileall -q --invalidation-mode timestamp "$folder/lib" || true

# kernels for any CPU of this architecture, as the image runs them
export MUSTER_CACHE_DIR="$folder/cache" NUMBA_CPU_NAME=generic
mkdir -p "$MUSTER_CACHE_DIR"
"$folder/bin/muster" simulate "$here/warm.yaml" --no-timings >/dev/null
chmod -R a+rX "$folder"
