"""``secondcall usage``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from secondcall import InvalidValue, Memory, Message, usage
from secondcall.cli.app import run
from secondcall.cli.usage import (
    _follow,  # pyright: ignore[reportPrivateUsage] - it would not end by itself
    _usages,  # pyright: ignore[reportPrivateUsage] - the same
)
from secondcall.usage import Call


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store that the command finds in the environment."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    monkeypatch.setenv("SECONDCALL_URL", url)
    return url


async def _spend(url: str, user_id: str, **call: Any) -> None:
    async with Memory.open(url) as memory:
        user = memory.user(user_id)
        await (await user.session("call-1")).record(Message("user", "hello"))
        with user._place.metered("buffer", "call-1"):  # pyright: ignore[reportPrivateUsage] - there is no other way in
            usage.report(Call(model="m", operation="complete", **call))


def test_nothing_used_is_said(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the embedder that comes along there is nothing to show, which is said."""
    assert run(["usage"]) == 0
    assert "No model or embedder was called" in capsys.readouterr().out


def test_all_users_are_added_up(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a user it is the tenant's sum, with one only theirs; in words and as JSON."""
    asyncio.run(_spend(url, "ana", input_tokens=1_000, output_tokens=20, cost=0.5))
    asyncio.run(_spend(url, "ben", input_tokens=7))
    assert run(["usage"]) == 0
    said = capsys.readouterr().out
    assert "Total: 2 calls, 1,007 tokens in, 20 out, cost 0.5" in said
    assert "buffer: 2 calls" in said
    assert run(["usage", "--user", "ben", "--json", "--since", "7d"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"] == {"calls": 1, "input_tokens": 7, "output_tokens": 0, "cost": None}
    assert found["recent"][0]["user_id"] == "ben"
    assert run(["usage", "--since", "2200-01-01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["calls"] == 0


def test_wrong_calls_are_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A time that is none is a usage error, an unknown user a failure; each in one line."""
    assert run(["usage", "--since", "tomorrow"]) == 2
    assert "not a time" in capsys.readouterr().err
    assert run(["usage", "--user", "nobody"]) == 1
    assert "nothing is known of user 'nobody'" in capsys.readouterr().err


@pytest.mark.skipif(os.name == "nt", reason="it is interrupted by a signal")
def test_follow_prints_new_calls_once(url: str) -> None:
    """With --follow calls of another process come as they are written, each once, until it is
    interrupted."""
    asyncio.run(_spend(url, "ana", input_tokens=1))
    command = [sys.executable, "-m", "secondcall.cli", "usage", "--follow", "--since", "1d"]
    with subprocess.Popen(
        [*command, "--json"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as follower:
        assert follower.stdout is not None
        first = json.loads(follower.stdout.readline())
        asyncio.run(_spend(url, "ben", input_tokens=2))
        second = json.loads(follower.stdout.readline())
        follower.send_signal(signal.SIGINT)
        rest = follower.stdout.read()
    assert (first["user_id"], first["input_tokens"]) == ("ana", 1)
    assert (second["user_id"], second["input_tokens"]) == ("ben", 2)
    assert rest == ""
    assert follower.returncode == 130


async def test_follow_prints_old_calls_once(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is further back than --follow looks again is not printed anew when no newer one
    comes."""
    await _spend(url, "ana", input_tokens=1)
    monkeypatch.setattr("secondcall.cli.usage._PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("secondcall.cli.usage._OVERLAP", timedelta(microseconds=1))
    looks: list[int] = []

    async def counted(*arguments: Any) -> AsyncIterator[usage.Usage]:
        looks.append(1)
        if len(looks) > 4:
            raise InvalidValue("enough")
        async for one in _usages(*arguments):
            yield one

    monkeypatch.setattr("secondcall.cli.usage._usages", counted)
    async with Memory.open(url) as memory:
        with pytest.raises(InvalidValue, match="enough"):
            await _follow(memory, None, datetime(2026, 1, 1, tzinfo=UTC), as_json=True)
    assert len(capsys.readouterr().out.splitlines()) == 1
