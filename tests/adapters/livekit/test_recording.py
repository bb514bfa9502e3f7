"""What a session commits is recorded while the call runs, and nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import recording, said, talking
from adapters.livekit.waiting import until
from livekit.agents import Agent, RunContext, function_tool, llm

from secondcall.adapters.livekit.chat import chat_items_of
from secondcall.testing.livekit import Reply, ScriptedLLM
from secondcall.types import Message, ToolCall

pytestmark = pytest.mark.anyio


class _Shop(Agent):
    """An agent with tools that work, fail, and hand over."""

    def __init__(self) -> None:
        super().__init__(instructions="Be brief.")

    @function_tool
    async def stock(self, size: int) -> str:
        """How many are there."""
        return f"{size + 1} left"

    @function_tool
    async def broken(self) -> str:
        """Fails."""
        raise RuntimeError("password=hunter2")

    @function_tool
    async def transfer(self, context: RunContext[None]) -> Agent:
        """Hands over."""
        del context
        return Agent(instructions="Billing.")


async def test_a_typed_call_is_recorded_as_it_runs(tmp_path: Path) -> None:
    """Each turn is in the store before the next, word for word, with its own ids and times."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["Hello.", "Yes."])) as session:
        call.recorder.attach(session)
        await session.run(user_input="I am Ana")
        await until(lambda: call.recorder.progress.store == 2)
        assert said(await call.items()) == [("user", "I am Ana"), ("assistant", "Hello.")]
        await session.run(user_input="Are you there?")
        await until(lambda: call.recorder.progress.store == 4)
        history = {one.id: one.created_at for one in session.history.messages()}
        found = await call.items()
    assert {one.key.id: one.at.timestamp() for one in found} == pytest.approx(history)


async def test_tools_are_recorded_with_outputs(tmp_path: Path) -> None:
    """Parallel calls stand in the record with arguments and outputs; an error without its text."""
    script = ScriptedLLM([Reply(tools=[("stock", {"size": 4}), ("broken", {})]), "Done."])
    async with recording(tmp_path) as call, talking(script, _Shop()) as session:
        call.recorder.attach(session)
        await session.run(user_input="How many?")
        finished = await call.recorder.finish()
        found = [one.item for one in await call.items()]
    calls = {one.name: one for one in found if isinstance(one, ToolCall)}
    assert finished.complete
    assert finished.found == 0
    assert (calls["stock"].arguments, calls["stock"].output) == ({"size": 4}, "5 left")
    assert calls["broken"].is_error
    assert "hunter2" not in str(found)
    assert [type(one).__name__ for one in found] == ["Message", "ToolCall", "ToolCall", "Message"]


async def test_a_tool_that_reports_is_one_call(tmp_path: Path) -> None:
    """A tool that lets the conversation go on and ends later is one call, with its last output."""
    if not hasattr(RunContext, "update"):
        pytest.skip("this release has no tools that report while they run (RunContext.update)")
    go = asyncio.Event()

    class _Slow(Agent):
        @function_tool
        async def search(self, context: RunContext[None]) -> str:
            """Searches."""
            await context.update("searching")
            await go.wait()
            return "found 3 flights"

    script = ScriptedLLM([Reply(tools=[("search", {})]), "A moment.", "Three flights.", "Yes."])
    async with recording(tmp_path) as call:
        async with talking(script, _Slow(instructions="Be brief.")) as session:
            call.recorder.attach(session)
            await session.run(user_input="find flights")
            await call.recorder.finish()
            begun = [one.item for one in await call.items() if isinstance(one.item, ToolCall)]
            go.set()
            await until(lambda: "Three flights." in str(session.history.to_dict()))
            await call.recorder.finish()
            calls = [one.item for one in await call.items() if isinstance(one.item, ToolCall)]
    assert len(begun) == 1
    assert begun[0].output is not None
    assert "searching" in begun[0].output
    assert [(one.name, one.output) for one in calls] == [("search", "found 3 flights")]


async def test_a_handoff_is_recorded_without_words(tmp_path: Path) -> None:
    """A handoff stands between the turns with both agents in its metadata, and no question finds
    it; the second agent's words are recorded too."""
    script = ScriptedLLM([Reply(tools=[("transfer", {})]), "Billing here."])
    async with recording(tmp_path) as call, talking(script, _Shop()) as session:
        call.recorder.attach(session)
        await session.run(user_input="A question about my bill")
        await session.run(user_input="Hello billing")
        await call.recorder.finish()
        turns = await call.items()
        found = [one.item for one in turns]
        user = call.memory.user("ana")
        recalled = await user.recall("session handoff from agent to agent", small_talk=True)
    events = [one for one in found if "livekit_event" in one.metadata]
    assert [one.metadata["livekit_event"] for one in events] == ["handoff"]
    assert {"from_agent", "to_agent"} <= set(events[0].metadata)
    assert ("assistant", "Billing here.") in said(found)
    assert all("livekit_event" not in one.item.metadata for one in recalled.items)
    restored = chat_items_of(turns, before=1e9)
    assert {one.name for one in restored if one.type == "function_call"} == {"transfer"}


async def test_errors_are_recorded_without_text(tmp_path: Path) -> None:
    """An error of the model is recorded by class and source; the caller's words are kept."""
    script = ScriptedLLM([Reply(error=RuntimeError("the key is sk-secret"))])
    async with recording(tmp_path) as call, talking(script) as session:
        call.recorder.attach(session)
        session.generate_reply(user_input="Hello?")
        await until(lambda: call.recorder.progress.store >= 2)
        found = [one.item for one in await call.items()]
    errors = [one for one in found if one.metadata.get("livekit_event") == "error"]
    assert ("user", "Hello?") in said(found)
    assert errors[0].metadata["source"] == "ScriptedLLM"
    assert "sk-secret" not in str(found)


async def test_memory_and_instructions_are_not_recorded(tmp_path: Path) -> None:
    """What memory or the application put into the context is nobody's words."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["Hello."])) as session:
        call.recorder.attach(session)
        history = session.history
        history.add_message(role="system", content="Be nice.")
        history.add_message(role="user", content="known: vegan", extra={"secondcall": "brief"})
        await session.run(user_input="Hi")
        await call.recorder.finish()
        found = await call.items()
    assert said(found) == [("user", "Hi"), ("assistant", "Hello.")]


async def test_the_history_completes_what_no_event_told(tmp_path: Path) -> None:
    """What was said before the recorder listened, and calls that only the history has, are
    recorded at the end, once."""
    script = ScriptedLLM([Reply(tools=[("stock", {"size": 1})]), "Two.", "Bye."])
    async with recording(tmp_path) as call, talking(script, _Shop()) as session:
        await session.run(user_input="How many?")
        call.recorder.attach(session)
        await session.run(user_input="Thanks")
        first = await call.recorder.finish()
        again = await call.recorder.finish()
        found = await call.items()
    assert (first.found, again.found) == (3, 3)
    assert said(found) == [
        ("user", "How many?"), ("assistant", "Two."), ("user", "Thanks"), ("assistant", "Bye.")
    ]  # fmt: skip
    assert [one.item.output for one in found if isinstance(one.item, ToolCall)] == ["2 left"]


@pytest.mark.parametrize("event", ["conversation_item_added", "error", "function_tools_executed"])
async def test_handlers_raise_nothing(tmp_path: Path, event: Any) -> None:
    """An event of any shape is survived: nothing reaches LiveKit, also no ``TypeError``."""
    async with recording(tmp_path) as call, talking(ScriptedLLM(["Fine."])) as session:
        call.recorder.attach(session)
        odds: list[Any] = [None, 3, object(), {"item": 1}]
        for odd in odds:
            session.emit(event, odd)
        await session.run(user_input="Still there?")
        await call.recorder.finish()
        assert len(said(await call.items())) == 2


async def test_odd_items_do_not_stop_the_others(tmp_path: Path) -> None:
    """Items with impossible ids, times and arguments are recorded as well as they can be, or left
    out alone; nothing raises."""
    async with recording(tmp_path) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        history = llm.ChatContext.empty()
        history.add_message(role="user", content="far", created_at=1e17)
        history.add_message(role="user", content="before", created_at=-1e17)
        history.add_message(role="user", content="nowhere", created_at=float("nan"))
        history.add_message(role="user", content="long", id="x" * 2_000)
        history.add_message(role="user", content="\ud800 torn")
        history.add_message(role="assistant", content="big" * 300_000)
        deep = "[" * 60 + "]" * 60
        for number, arguments in enumerate(("{", deep, '{"n": NaN}', "", json.dumps({"a": 1}))):
            history.insert(llm.FunctionCall(call_id=f"c{number}", name="tool", arguments=arguments))
        finished = await call.recorder.finish(history)
        found = await call.items()
    texts = {one.item.text[:6] for one in found if isinstance(one.item, Message)}
    assert {"far", "before", "nowher", "bigbig"} <= texts
    assert "long" not in texts
    assert sum(isinstance(one.item, ToolCall) for one in found) == 5
    assert (finished.progress.waiting, finished.progress.lost) == (0, 1)


async def test_the_same_id_is_one_item(tmp_path: Path) -> None:
    """An item that comes again with other words is corrected in its place; a history that holds it
    twice, as realtime models leave it, changes nothing."""
    async with recording(tmp_path) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        first = llm.ChatMessage(id="item_1", role="user", content=["I want"], created_at=100.0)
        whole = first.model_copy(update={"content": ["I want tea"]})
        for one in (first, whole, whole):
            session._conversation_item_added(one)  # pyright: ignore[reportPrivateUsage] - as a realtime model's activity does
            await until(lambda: not call.recorder.progress.waiting)
        await call.recorder.finish()
        found = await call.items()
    assert said(found) == [("user", "I want tea")]


async def test_items_stand_in_the_order_of_their_times(tmp_path: Path) -> None:
    """A question that is told after its answer stands before it in the record."""
    async with recording(tmp_path) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        answer = llm.ChatMessage(role="assistant", content=["Tea it is."], created_at=20.0)
        question = llm.ChatMessage(role="user", content=["Tea please"], created_at=10.0)
        for message in (answer, question):
            session._conversation_item_added(message)  # pyright: ignore[reportPrivateUsage] - as a realtime model's activity does
        await call.recorder.finish()
        found = await call.items()
    assert said(found) == [("user", "Tea please"), ("assistant", "Tea it is.")]


async def test_a_reused_call_id_is_another_call(tmp_path: Path) -> None:
    """A provider that numbers its calls anew in each turn overwrites none of the earlier ones."""
    script = ScriptedLLM([])
    async with recording(tmp_path) as call, talking(script) as session:
        call.recorder.attach(session)
        history = llm.ChatContext.empty()
        for turn in range(3):
            history.insert(
                llm.FunctionCall(
                    call_id="call_0", name="stock", arguments=json.dumps({"turn": turn})
                )
            )
            history.insert(
                llm.FunctionCallOutput(call_id="call_0", output=str(turn), is_error=False)
            )
            await call.recorder.finish(history)
        found = await call.items()
    calls = [one.item for one in found if isinstance(one.item, ToolCall)]
    assert [one.arguments for one in calls] == [{"turn": turn} for turn in range(3)]
    assert len({one.call_id for one in calls}) == 3


async def test_the_application_can_record_too(tmp_path: Path) -> None:
    """What no event tells goes the same way, and gets an id where it has none."""
    async with recording(tmp_path) as call:
        call.recorder.record(Message("user", "pressed 1"), Message("user", "pressed 2"))
        await call.recorder.finish()
        assert said(await call.items()) == [("user", "pressed 1"), ("user", "pressed 2")]


async def test_five_thousand_items_are_recorded(tmp_path: Path) -> None:
    """A call of three hours and 5,000 items is complete in the store, and leaves no journal."""
    async with recording(tmp_path) as call, talking(ScriptedLLM([])) as session:
        call.recorder.attach(session)
        for number in range(5_000):
            role = "assistant" if number % 2 else "user"
            message = llm.ChatMessage(role=role, content=[f"line {number}"], created_at=number + 1)
            session._conversation_item_added(message)  # pyright: ignore[reportPrivateUsage] - as the session's own activity does
            if number % 50 == 0:
                await asyncio.sleep(0)
        finished = await call.recorder.finish(deadline_seconds=60.0)
        items = [one async for one in call.memory.user("ana").items(session_id="call")]
        files = call.files()
    assert finished.complete
    assert [one.item.text for one in items if isinstance(one.item, Message)] == [
        f"line {number}" for number in range(5_000)
    ]
    assert files == []
