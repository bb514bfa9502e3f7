#!/usr/bin/env bash
# Remakes requirements/dev.lock, peers.lock, oldest.lock (the oldest frameworks that the extras
# allow) and pydantic-2.13.lock (between the two): exact versions with hashes, for Python 3.11 and
# up on every platform, and no index named.
# What came out in the last seven days is passed over.
# Needs uv; when there is none it is installed into a folder that is thrown away.
#
#   scripts/lock.sh              keep the locked versions, add and drop what pyproject.toml says
#   scripts/lock.sh --upgrade    take newer versions
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if ! uv=$(command -v uv); then
    "${PYTHON:-python3}" -m venv "$scratch/venv"
    "$scratch/venv/bin/python" -m pip --quiet --disable-pip-version-check install uv
    uv="$scratch/venv/bin/uv"
fi

new=requirements/.new.lock
trap 'rm -rf "$scratch" "$new"' EXIT

# lock NAME SOURCE [ARGUMENTS]: make requirements/NAME.lock from SOURCE
lock() {
    local lock=requirements/$1.lock source=$2
    shift 2
    rm -f "$new"
    if [ -f "$lock" ]; then cp "$lock" "$new"; fi
    "$uv" pip compile "$source" \
        --universal --fork-strategy fewest --python-version 3.11 --exclude-newer "7 days" \
        --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet \
        "$@" --output-file "$new"
    {
        echo "# Made by scripts/lock.sh from $source; do not edit. Install it with"
        echo "#   pip install --require-hashes -r $lock"
        cat "$new"
    } >"$scratch/new.lock"
    if grep -nE '://|^ *-(i|f|-index|-extra|-find)' "$scratch/new.lock"; then
        echo "lock.sh: the lines above name a place to download from; $lock was not changed" >&2
        exit 1
    fi
    mv "$scratch/new.lock" "$lock"
}

extras=()
for extra in dynamodb livekit llama-index onnx openai otel phone postgresql redis; do extras+=(--extra "$extra"); done

lock dev pyproject.toml "${extras[@]}" --group dev "$@"
lock oldest pyproject.toml --constraint requirements/oldest.in \
    --extra livekit --extra llama-index --extra redis --extra postgresql --extra dynamodb \
    --group oldest "$@"
lock peers requirements/peers.in "$@"
lock pydantic-2.13 requirements/pydantic-2.13.in "$@"
