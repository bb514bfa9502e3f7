"""2,000 random conversations of agents through chat buffers: ours, and LlamaIndex's three.

    bench/buffers.py [COUNT] [--json FILE]

Each history has a limit between 20 and 4,000 words, which is the tokenizer of all four. What comes
back is judged by ``chat_judge``, which knows no memory. A memory may also refuse: ours raises
``OverBudget``, and the judge works out whether system text and newest turn truly do not fit. The
others need llama-index-core in ``.venv-peers`` (``make peers``), or in the Python that
``SECONDCALL_PEERS_PYTHON`` names; without it their rows say so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from chat_histories import History, make, words
from chat_judge import judge, least_words

from secondcall import ChatBuffer, OverBudget, items_from_messages, messages_from_items
from secondcall.abc import TokenCounter

_HERE = Path(__file__).parent
_PEERS_PYTHON = Path(
    os.environ.get("SECONDCALL_PEERS_PYTHON", str(_HERE.parent / ".venv-peers" / "bin" / "python"))
)
_PEERS = ("ChatMemoryBuffer", "ChatSummaryMemoryBuffer", "Memory")
_COLUMNS = {
    "right": "right",
    "refused": "refused, cannot fit",
    "wrongly_refused": "refused, could fit",
    "invalid": "invalid list",
    "over": "over the limit",
    "lost_system": "system message lost",
    "lost_newest_user": "newest user message lost",
}


class _Words(TokenCounter):
    id = "words"

    def count(self, text: str) -> int:
        return len(words(text))


def _ours(history: History) -> Sequence[dict[str, Any]] | None:
    buffer = ChatBuffer(history.token_limit, counter=_Words(), framing_tokens=0)
    buffer.put(*items_from_messages(history.messages))
    try:
        return messages_from_items(buffer.get())
    except OverBudget:
        return None


def _count(tally: Counter[str], history: History, given: Sequence[dict[str, Any]] | None) -> None:
    tally["histories"] += 1
    tally["with_system"] += any(one["role"] == "system" for one in history.messages)
    if given is None:
        fits = least_words(history) <= history.token_limit
        tally["wrongly_refused" if fits else "refused"] += 1
        return
    verdict = judge(history, given)
    tally["right"] += verdict.right
    tally["invalid"] += bool(verdict.invalid)
    tally["over"] += verdict.over
    tally["lost_system"] += verdict.lost_system
    tally["lost_newest_user"] += verdict.lost_newest_user


def _peers(count: int) -> Iterator[dict[str, Any]]:
    command = [str(_PEERS_PYTHON), "-W", "ignore", str(_HERE / "chat_peers.py"), str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"chat_peers.py ended with exit code {process.returncode}")


def run(count: int) -> tuple[dict[str, Counter[str]], str | None]:
    """The tallies by memory, and the version of llama-index-core (``None``: not installed)."""
    tallies: dict[str, Counter[str]] = {"secondcall ChatBuffer": Counter()}
    for seed in range(count):
        history = make(seed)
        _count(tallies["secondcall ChatBuffer"], history, _ours(history))
    if not _PEERS_PYTHON.exists():
        return tallies, None
    peers = _peers(count)
    version = str(next(peers)["version"])
    tallies |= {f"LlamaIndex {name}": Counter() for name in _PEERS}
    for line in peers:
        _count(tallies[f"LlamaIndex {line['name']}"], make(line["seed"]), line.get("given"))
    return tallies, version


def table(tallies: dict[str, Counter[str]]) -> str:
    """The tallies as a Markdown table."""
    lines = [
        f"| memory | {' | '.join(_COLUMNS.values())} |",
        f"| --- |{' --- |' * len(_COLUMNS)}",
    ]
    for name, tally in tallies.items():
        shown = " | ".join(f"{tally[column]:,}" for column in _COLUMNS)
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table; with ``--json`` write the tallies too. The exit code judges ours."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("count", type=int, nargs="?", default=2_000)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    tallies, version = run(given.count)
    ours = tallies["secondcall ChatBuffer"]
    print(f"{given.count:,} histories, {ours['with_system']:,} of them with system messages")
    print(table(tallies))
    if version is None:
        print("LlamaIndex: not installed: make peers, or pip install llama-index-core")
    else:
        print(f"llama-index-core {version}")
    if given.json is not None:
        report = {"count": given.count, "llama-index-core": version, "memories": tallies}
        given.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0 if ours["right"] + ours["refused"] == given.count else 1


if __name__ == "__main__":
    sys.exit(main())
