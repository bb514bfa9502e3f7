"""Every benchmark, one after another: ``make bench``, or ``make bench ARGS="record recall"``.

Names: import, record, state, state-postgresql, state-redis, state-dynamodb, retention, recall,
context, buffers, agents, agents-locomo, livekit, keyfacts, locomo, longmemeval.
``buffers`` and ``livekit`` measure others' libraries too, when ``make peers`` has installed them.
``agents-locomo`` and the last two need the public data sets, in the folder that
``SECONDCALL_EVAL_DATA`` names (default ``../shared/data``); without it they are left out, and said
so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_DATA = Path(os.environ.get("SECONDCALL_EVAL_DATA", str(_HERE.parents[1] / "shared" / "data")))
_EVALUATE = [sys.executable, "-m", "secondcall.cli", "eval"]


def _commands() -> dict[str, list[str]]:
    return {
        "import": [sys.executable, str(_HERE / "import_cost.py")],
        "record": [sys.executable, str(_HERE / "record_latency.py")],
        "state": [sys.executable, str(_HERE / "state_latency.py")],
        "state-postgresql": [sys.executable, str(_HERE / "state_postgresql.py")],
        "state-redis": [sys.executable, str(_HERE / "state_redis.py")],
        "state-dynamodb": [sys.executable, str(_HERE / "state_dynamodb.py")],
        "retention": [sys.executable, str(_HERE / "retention.py"), "--check"],
        "recall": [sys.executable, str(_HERE / "recall_latency.py")],
        "context": [sys.executable, str(_HERE / "context_latency.py")],
        "buffers": [sys.executable, str(_HERE / "buffers.py")],
        "agents": [sys.executable, "-W", "ignore", str(_HERE / "agent_memories.py")],
        "agents-locomo": [sys.executable, "-W", "ignore", str(_HERE / "agent_recall.py")],
        "livekit": [sys.executable, str(_HERE / "livekit_replies.py")],
        "keyfacts": [sys.executable, str(_HERE / "keyfact_rates.py")],
        "locomo": [*_EVALUATE, "locomo", str(_DATA / "locomo_dev.json")],
        "longmemeval": [*_EVALUATE, "longmemeval", str(_DATA / "longmemeval_s_dev.json.gz")],
    }


def main() -> int:
    """Run those named, or all; the exit code says whether every one of them ran."""
    commands = _commands()
    names = sys.argv[1:] or list(commands)
    unknown = [name for name in names if name not in commands]
    if unknown:
        print(f"no benchmark is named {unknown[0]!r}; known are {', '.join(commands)}")
        return 2
    failed = 0
    for name in names:
        command = commands[name]
        print(f"\n== {name}", flush=True)
        if name in ("locomo", "longmemeval") and not Path(command[-1]).exists():
            print(f"left out: {Path(command[-1]).name} is not in the folder SECONDCALL_EVAL_DATA")
            continue
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
