"""The second call to a LiveKit agent, each call in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall import Memory
from secondcall.testing.livekit_call import CallFailed, dial
from secondcall.testing.second_call import Dial, SecondCall, second_call

pytestmark = pytest.mark.anyio

FOLDER = str(Path(__file__).parent)


def _dial(name: str, url: str) -> Dial:
    return dial(f"demo_agents:{name}", environment={"AGENT_URL": url}, folder=FOLDER)


async def _judged(name: str, folder: Path) -> SecondCall:
    url = f"sqlite:///{folder / 'memory.db'}"
    async with Memory.open(url) as memory:
        return await second_call(_dial(name, url), memory)


async def test_an_agent_with_memory_passes(tmp_path: Path) -> None:
    """A model that can only quote the memory it was given knows the caller, the promise and that
    the issue is resolved, and tells a stranger nothing."""
    report = await _judged("server", tmp_path)
    report.check()
    assert report.stranger.user_id not in (None, report.second.user_id)


async def test_an_agent_without_its_memory_fails(tmp_path: Path) -> None:
    """With the memory detached nothing is recorded, and the checker says so."""
    report = await _judged("detached", tmp_path)
    assert [(one.passed, one.cause) for one in report.judgements[:2]] == [
        (False, "not recorded"),
        (False, "not recorded"),
    ]


async def test_an_agent_that_mistakes_the_caller_fails(tmp_path: Path) -> None:
    """An agent that takes the caller for somebody else each time is told both ids."""
    report = await _judged("by_call_id", tmp_path)
    first = report.judgements[0]
    assert (first.passed, first.cause) == (False, "wrong id")
    assert report.first.user_id is not None
    assert report.second.user_id is not None
    assert report.first.user_id in first.detail
    assert report.second.user_id in first.detail


async def test_a_call_that_nobody_takes_fails(tmp_path: Path) -> None:
    """An entrypoint that starts no session is said."""
    with pytest.raises(CallFailed, match="without starting an AgentSession"):
        await _dial("silent", f"sqlite:///{tmp_path / 'memory.db'}")(None, ["Hello."])
