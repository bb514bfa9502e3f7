"""What memory adds to a voice agent's reply, side by side in one run of real LiveKit sessions.

    bench/livekit_replies.py [--turns N] [--speech N] [--messages N] [--facts N]

An agent without memory, ours with the lookup in ``llm_node`` (the default) and in the hook, and
other libraries (``make peers``) take turns: turn by turn, the same question to each, typed and then
spoken, each next to an agent without memory in the same process. Typed, the time is from
``session.run`` to the answer's being in the conversation, with a model that answers at once.
Spoken, it is from the words that the recogniser gives, with 0.2 s of endpointing and a model that
takes 0.1 s; preemptive generation is on. What a hook adds to its turn costs the reply that was
begun early, whoever adds it: beside the agent without memory stands the same one with every reply
begun at the end of the turn, and "+late" is what a row adds to that.

Libraries whose service is not here have one that answers in 0 ms: what they show is the least that
they can add. A library's row says why it is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from measure import machine, percentile
from texts import conversation, questions

from secondcall import Memory

_HERE = Path(__file__).parent
_PEERS_PYTHON = Path(
    os.environ.get("SECONDCALL_PEERS_PYTHON", str(_HERE.parent / ".venv-peers" / "bin" / "python"))
)
_OURS = ("llm_node", "hook")
_REAL = ("recall-livekit",)
_STUBBED = ("hindsight-livekit", "zep-livekit", "livekit-memorysync")
_NOT_HERE = {
    "livekit-plugins-voicemem": "needs livekit-agents<1.8, PostgreSQL with pgvector, and an "
    "embedding model of 118 MB that it downloads",
    "maximem-synap-livekit-agents": "needs its cloud, and takes no other client",
    "memoair-livekit": "needs its cloud",
    "livekit-plugins-engram": "needs its service, and has no agent",
}
_LATE = "none, late"
_IN_LLM_NODE = ("llm_node", "hook", "hindsight-livekit")
"""These look up typed words too; LiveKit calls the others' hook for speech alone."""
_WARM_TURNS = 3


@dataclass
class _Arm:
    """The figures of one arm, and those of the agent without memory beside it."""

    seconds: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    requests: int = 0
    told: int = 0

    def take(self, turn: dict[str, Any]) -> None:
        self.seconds.append(turn["seconds"])
        self.cpu.append(turn["cpu"])
        self.requests += turn["requests"]
        self.told += turn["told"]


class _Host:
    """A process in which arms run."""

    def __init__(self, python: Path) -> None:
        env = {**os.environ, "PYTHONPATH": str(_HERE.parent / "src")}
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(_HERE / "livekit_arms.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )

    def ask(self, **command: Any) -> dict[str, Any]:
        """The answer to a command; ``error`` in it says what went wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": "its process has ended"}

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(timeout=60)


async def _fill(url: str, messages: int) -> dict[str, str]:
    """A user for each of our arms, with the same past; user ids by arm."""
    users = {name: f"bench-{name}" for name in _OURS}
    async with Memory.open(url) as memory:
        for subject in users.values():
            user = memory.user(await memory.identify(subject=subject))
            for session_id, said in conversation(0, messages):
                await (await user.session(session_id)).record(*said)
            await user.remember("seat preference", "aisle", kind="preference")
            await user.remember("voucher", "send the voucher by Friday", kind="promise")
            await user.flush()
    return users


def _facts(count: int) -> list[str]:
    found: list[str] = []
    for _, messages in conversation(0, count):
        found.extend(message.text[:120] for message in messages)
    return found


def _measure(
    hosts: dict[str, _Host], *, speech: bool, turns: int, place: dict[str, Any]
) -> tuple[dict[str, _Arm], dict[str, str]]:
    """The figures by arm (``none:HOST`` is the one without memory), and the versions."""
    open_arms: list[tuple[str, _Host, str]] = []
    about: dict[str, str] = {}
    for name, host in hosts.items():
        bare = ("none", _LATE) if speech else ("none",)
        for arm in (*bare, *(_OURS if name == "ours" else (*_REAL, *_STUBBED))):
            if not (speech or arm in bare or arm in _IN_LLM_NODE):
                continue
            given: dict[str, Any] = {**place, "facts": place["facts"] if arm in _REAL else []}
            answer = host.ask(do="open", arm=arm, speech=speech, place=given)
            if "error" in answer:
                print(f"  {arm} is left out: {answer['error'][:200]}", flush=True)
                continue
            about[arm] = answer["version"]
            about[f"livekit-agents:{name}"] = answer["livekit-agents"]
            open_arms.append((f"{arm}:{name}" if arm in bare else arm, host, arm))
    figures: defaultdict[str, _Arm] = defaultdict(_Arm)
    for number, question in enumerate(questions(0, turns + _WARM_TURNS)):
        shift = number % len(open_arms)
        for key, host, arm in open_arms[shift:] + open_arms[:shift]:
            turn = host.ask(do="turn", arm=arm, text=question)
            if "error" in turn:
                raise SystemExit(f"{arm}: {turn['error']}")
            if number >= _WARM_TURNS:
                figures[key].take(turn)
    for host in hosts.values():
        host.ask(do="close")
    return dict(figures), about


def _rows(figures: dict[str, _Arm], names: Sequence[str], host: str) -> list[str]:
    base, late = figures[f"none:{host}"], figures.get(f"{_LATE}:{host}")
    rows = [_row("without memory", base, None, None)] if names else []
    if names and late is not None:
        rows.append(_row("the same, never early", late, base, None))
    return rows + [_row(name, figures[name], base, late) for name in names]


def _row(name: str, arm: _Arm, base: _Arm | None, late: _Arm | None) -> str:
    half, most = _half_and_most(arm)
    count = len(arm.seconds)
    row = f"{name:<22} {half:8.1f} {most:8.1f}"
    for other in (base, late):
        if other is None:
            row += f" {'':>8} {'':>8}"
        else:
            least, worst = _half_and_most(other)
            row += f" {half - least:+8.1f} {most - worst:+8.1f}"
    cpu = 1e3 * statistics.median(arm.cpu)
    return f"{row} {cpu:8.1f} {arm.requests / count:8.2f} {arm.told / count:8.2f}"


def _half_and_most(arm: _Arm) -> tuple[float, float]:
    """The median and the 99th percentile, in milliseconds."""
    return 1e3 * percentile(arm.seconds, 0.5), 1e3 * percentile(arm.seconds, 0.99)


def _print(title: str, figures: dict[str, _Arm], about: dict[str, str]) -> None:
    print(f"\n{title}")
    print(
        f"{'milliseconds':<22} {'p50':>8} {'p99':>8} {'+p50':>8} {'+p99':>8} {'+late':>8} "
        f"{'+late99':>8} {'CPU p50':>8} {'calls':>8} {'told':>8}"
    )
    for row in _rows(figures, [one for one in _OURS if one in figures], "ours"):
        print(row)
    for names, what in ((_REAL, "another library"), (_STUBBED, "their service stubbed at 0 ms")):
        shown = [one for one in names if one in figures]
        if shown:
            print(f"{what} (livekit-agents {about['livekit-agents:peers']}):")
            for row in _rows(figures, shown, "peers"):
                print(row)
    sys.stdout.flush()


def run(turns: int, speech: int, messages: int, facts: int) -> None:
    """Fill a store in a temporary folder, measure, print."""
    hosts = {"ours": _Host(Path(sys.executable))}
    peers = _Host(_PEERS_PYTHON) if _PEERS_PYTHON.exists() else None
    if peers is not None and "error" not in peers.ask(do="close"):
        hosts["peers"] = peers
    else:
        print("the other libraries are left out: not installed (make peers)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place: dict[str, Any] = {
            "url": f"sqlite:///{Path(folder) / 'bench.db'}",
            "folder": folder,
            "journal": str(Path(folder) / "journal"),
            "facts": [],
            "endpointing_seconds": 0.2,
            "llm_seconds": 0.1,
        }
        place["users"] = asyncio.run(_fill(cast("str", place["url"]), messages))
        print(f"{messages:,} remembered messages; p50 and p99 of {turns} typed turns", flush=True)
        figures, about = _measure(hosts, speech=False, turns=turns, place=place)
        _print("Typed turns (promised: +p50 < 5 ms, +p99 < 20 ms, 1 model call)", figures, about)
        place["facts"] = _facts(facts)
        figures, about = _measure(hosts, speech=True, turns=speech, place=place)
        _print(f"Spoken turns ({speech})", figures, about)
        loaded = hosts["ours"].ask(do="preload", place=place, rounds=100)
        print("\nPreload, memory just opened (promised: p99 < 50 ms)")
        for name, seconds in loaded.items():
            half, most = (1e3 * percentile(seconds, share) for share in (0.5, 0.99))
            print(f"{name:<22} {half:8.1f} {most:8.1f}")
        for host in hosts.values():
            host.close()
    print(", ".join(f"{name} {one}" for name, one in about.items() if name in (*_REAL, *_STUBBED)))
    for name, why in _NOT_HERE.items():
        print(f"{name} is left out: it {why}")


def main() -> None:
    """Read the arguments and run."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=300)
    arguments.add_argument("--speech", type=int, default=60)
    arguments.add_argument("--messages", type=int, default=10_000)
    arguments.add_argument("--facts", type=int, default=200)
    given = arguments.parse_args()
    print(f"machine: {machine()}")
    run(given.turns, given.speech, given.messages, given.facts)


if __name__ == "__main__":
    main()
