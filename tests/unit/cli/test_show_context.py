"""``secondcall show --context`` looks at a buffer as an agent would have it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from secondcall import Memory, Message
from secondcall.cli.app import run
from secondcall.shortterm.summary import SummarizingBuffer


async def _talk(url: str, turns: int) -> tuple[int, int]:
    """Say something, and tell what an agent's buffer then gives: items, and summaries."""
    async with Memory.open(url) as memory:
        session = await memory.user("ada").session("long")
        buffer = await session.buffer(3_000)
        assert isinstance(buffer, SummarizingBuffer)
        for number in range(turns):
            await session.record(
                Message("user", f"I say it {number} times."),
                Message("assistant", f"You said it {number} times."),
            )
        await memory.flush()
        return len(buffer.get()), len(buffer.summaries)


def test_looking_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To look at a session with a small limit summarises nothing: the agent's own buffer gives
    afterwards what it gave before."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    before = asyncio.run(_talk(url, 60))
    assert before == (120, 0)
    command = ["show", "--user", "ada", "--session", "long", "--context", "--url", url, "--json"]
    assert run([*command, "--token-limit", "500"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["token_limit"] == 500
    assert 0 < report["tokens"] <= 500
    assert asyncio.run(_talk(url, 0)) == before
