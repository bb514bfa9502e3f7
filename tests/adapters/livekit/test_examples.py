"""The examples run as they are, in text and with models that are driven by code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from adapters.livekit.example_agents import example, in_text
from adapters.livekit.jobs import outputs, texts
from adapters.livekit.realtime_model import ScriptedRealtime
from livekit.agents import AgentServer, AgentSession, CloseReason, llm

from secondcall import Memory
from secondcall.adapters.livekit.chat import is_memory
from secondcall.testing.livekit import Reply, Script, ScriptedLLM
from secondcall.testing.livekit_call import dial, take_call
from secondcall.testing.second_call import HeardCall, second_call

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parent
NAMES = ("receptionist", "table_for_tonight", "front_desk", "realtime")
ANA = "+14155550142"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of the examples in this test."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    monkeypatch.setenv("SECONDCALL_URL", url)
    return url


async def _call(
    module: Any, model: llm.LLM[Any] | ScriptedRealtime, *lines: str, number: str | None = ANA
) -> HeardCall:
    """One call to an example, from its job's start to its end."""
    module.models = lambda: in_text(model)
    server = cast("AgentServer", module.server)
    entrypoint = server._entrypoint_fnc  # pyright: ignore[reportPrivateUsage] - set by rtc_session
    end = server._session_end_fnc  # pyright: ignore[reportPrivateUsage] - set by rtc_session
    assert entrypoint is not None
    return await take_call(entrypoint, lines, number=number, end=end)


async def _typed(module: Any, script: Script, *lines: str) -> tuple[HeardCall, ScriptedLLM]:
    model = ScriptedLLM(script)
    return await _call(module, model, *lines), model


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_program_of_its_own(name: str, store: str) -> None:
    """Started by itself an example offers LiveKit's commands, without a server or a key."""
    path = FOLDER.parents[2] / "examples" / "livekit" / f"{name}.py"
    ran = subprocess.run(
        [sys.executable, str(path), "--help"],
        env={**os.environ, "SECONDCALL_URL": store},
        cwd=Path(store.removeprefix("sqlite:///")).parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert "dev" in ran.stdout


async def test_the_receptionist_knows_who_calls_again(store: str) -> None:
    """Each call in a fresh process: the caller is known by the number, the promise is mentioned,
    the resolved issue is not brought up, and strangers are told nothing."""
    call = dial(
        "quoting_receptionist:server", environment={"SECONDCALL_URL": store}, folder=str(FOLDER)
    )
    async with Memory.open(store) as memory:
        report = await second_call(call, memory)
    report.check()


async def test_the_receptionist_remembers_by_its_tools(store: str) -> None:
    """What the model promises in one call is in the greeting's context of the next."""
    receptionist = example("receptionist")
    promise = Reply(tools=[("promise", {"name": "bell", "promise": "fit a bell on Monday"})])
    await _typed(receptionist, ["Hello.", promise, "On Monday."], "Could you fit a bell?")
    _, model = await _typed(receptionist, ["Welcome back."], "Hello again.")
    assert "fit a bell on Monday" in texts(model.requests[0])


async def test_the_booking_goes_on_where_the_call_dropped(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tools at the same time lose no update, and the next call has the booking though no
    agent kept it."""
    monkeypatch.setattr(AgentSession, "aclose", _drop)
    tables = example("table_for_tonight")
    noted = Reply(
        tools=[
            ("note_guest", {"name": "Ana"}),
            *[("add_people", {"count": 1})] * 3,
            ("note_wish", {"wish": "by the window"}),
        ]
    )
    offered = Reply(tools=[("offer", {})])
    heard, _ = await _typed(
        tables,
        [noted, "For three.", offered, "By the window?"],
        "I am Ana, and we are three.",
        "Which table is there?",
    )
    assert heard.replies[-1].strip() == "By the window?"
    again = example("table_for_tonight")
    _, model = await _typed(
        again, [Reply(tools=[("read_booking", {})]), "It is."], "The line dropped. Is it booked?"
    )
    assert outputs(model.requests[-1])[-1] == "Ana, 3 people, table by the window"
    async with Memory.open(store) as memory:
        (ana,) = await memory.users(limit=10)
        assert len(await memory.user(ana).sessions(limit=10)) == 1


async def test_the_workshop_knows_what_the_front_desk_knew(store: str) -> None:
    """After the handoff the second agent has the brief, the conversation and the note, and what it
    hears is recorded in the same call."""
    first = example("front_desk")
    noted = Reply(
        tools=[("remember", {"name": "bicycle", "value": "a red Peugeot", "kind": "attribute"})]
    )
    await _typed(first, [noted, "Noted."], "Mine is a red Peugeot.")
    over = Reply(tools=[("to_the_workshop", {"trouble": "the chain"})])
    _, model = await _typed(
        example("front_desk"),
        [over, "The chain, I see.", "By Friday."],
        "My chain is broken.",
        "When is it done?",
    )
    entering, last = model.requests[1], model.requests[-1]
    assert "the caller's trouble: the chain" in texts(entering)
    for request in (entering, last):
        assert "red Peugeot" in texts(request)
        assert "My chain is broken." in texts(request)
    async with Memory.open(store) as memory:
        (ana,) = await memory.users(limit=10)
        said = [one.item async for one in memory.user(ana).items()]
    assert "When is it done?" in str(said)
    assert "By Friday." in str(said)


async def test_a_realtime_model_has_the_brief_and_asks_by_a_tool(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model begins with the brief in words and the tool ``recall``, and what is said in the
    call is recorded."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    realtime = example("realtime")
    async with Memory.open(store) as memory:
        ana = memory.user(await memory.identify(phone=ANA))
        await ana.remember("bicycle", "a red Peugeot", kind="attribute")
        model = ScriptedRealtime(_asks_once)
        heard = await _call(realtime, model, "What do you know of my bicycle?")
        said = [one.item async for one in ana.items()]
    begun = model.told[0]
    assert "red Peugeot" in texts(begun)
    assert all(is_memory(one) for one in begun.items if isinstance(one, llm.ChatMessage))
    assert {"recall", "remember", "promise"} <= set(model.offered)
    assert heard.replies[-1].strip() == "A red Peugeot."
    assert "What do you know of my bicycle?" in str(said)
    assert "'recall'" in str(said)


async def _drop(session: AgentSession[Any]) -> None:
    """The caller's line drops: the room closes the session."""
    await session._aclose_impl(reason=CloseReason.PARTICIPANT_DISCONNECTED)  # pyright: ignore[reportPrivateUsage] - a room's own way


def _asks_once(chat_ctx: llm.ChatContext) -> Reply:
    """Asks memory, then answers."""
    if any(isinstance(one, llm.FunctionCallOutput) for one in chat_ctx.items):
        return Reply(text="A red Peugeot.")
    return Reply(tools=[("recall", {"question": "bicycle"})])
