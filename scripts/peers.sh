#!/usr/bin/env bash
# Makes the folder $VENV (by default .venv-peers) hold what requirements/peers.lock names: libraries
# of others, which bench/buffers.py and bench/livekit_replies.py measure beside ours.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${VENV:-.venv-peers}
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip -qq --disable-pip-version-check install \
    --require-hashes --no-deps --requirement requirements/peers.lock
