#!/usr/bin/env bash
# Makes the folder $VENV (by default .venv) hold exactly what requirements/$LOCK.lock names (by
# default dev), and secondcall itself from this folder. `make` calls it when the lock has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}
lock=${LOCK:-dev}

if ! [ -x "$venv/bin/python" ]; then
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "secondcall needs Python 3.11 or newer; '$python' is not. Try: make PYTHON=python3.12" >&2
        exit 1
    fi
    "$python" -m venv "$venv"
fi

pip=("$venv/bin/python" -m pip -qq --disable-pip-version-check install)
"${pip[@]}" --require-hashes --no-deps --requirement "requirements/$lock.lock"
"${pip[@]}" --no-deps --no-build-isolation --editable .
