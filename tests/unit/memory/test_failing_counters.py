"""A token counter of the host's that fails stops nothing."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from secondcall import Memory, Message
from secondcall.abc import TokenCounter


class Failing(TokenCounter):
    """Raises, or gives what is no count."""

    id = "failing"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def count(self, text: str) -> int:
        """No sensible number."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("int", self.answer)


@pytest.mark.parametrize("answer", [RuntimeError("no"), float("nan"), -3, None, True])
async def test_a_failing_counter_stops_no_layer(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Briefs, recall, recaps, buffers and contexts are made with estimates, within their limits,
    and the failure is logged once."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: errors.append(said))
    async with Memory.open("memory://", counter=Failing(answer), extract=False) as memory:
        user = memory.user("ana")
        first = await user.session("call-1")
        await first.record(
            Message("user", "My suitcase with the red ribbon is lost."),
            Message("assistant", "I promise that we will call you by Friday."),
        )
        await user.remember("lost suitcase", "claim opened", kind="issue")
        await first.close()
        await memory.flush()
        session = await user.session("call-2")
        await session.record(Message("user", "What about the ribbon?"))
        context = await session.context(window=2_000, reserve=100, system="Be kind.")
        assert 0 < sum(context.tokens.values()) <= 2_000
        assert context.items
        assert "ribbon" in context.recall + context.state
        brief = await user.brief(max_tokens=400)
        assert [one.session_id for one in brief.recaps] == ["call-1"]
        buffer = await session.buffer(600)
        assert buffer.get()
        assert buffer.explain().counter_failure == _kind(answer)
    warned = [one for one in caplog.records if "token counter failed" in one.message]
    assert len(warned) == 1
    assert errors == []


def _kind(answer: object) -> str:
    return "RuntimeError" if isinstance(answer, Exception) else "TypeError"
