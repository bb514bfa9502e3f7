"""The faults of the tutorial's state, none of which ours has.

``test_tutorial_faults.py`` has the table of all of them.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from adapters.llama_index.agents import contents, memory_of, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage

import secondcall
from secondcall import (
    InvalidValue,
    Memory,
    Slot,
    StateTools,
    Step,
    To,
    VersionConflict,
    Workflow,
)
from secondcall.abc_state import StateStore
from secondcall.adapters.llama_index import (
    SecondCallMemory,
    StateToolRetriever,
    function_tools,
)
from secondcall.testing.fakes import FrozenClock
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM

pytestmark = pytest.mark.anyio

SQL = Path(str(secondcall.__file__)).parent / "stores" / "sql"
REFUND = Workflow(
    "refund",
    steps={
        "details": Step(description="which order"),
        "review": Step(requires=["order"]),
        "paid": Step(terminal=True),
    },
    transitions={"details": "review", "review": To("paid", needs_confirmation=True)},
    slots={"order": Slot(str, description="the order's number"), "day": date, "amount": Decimal},
)


@dataclass(frozen=True)
class Case:
    """Fields of an application."""

    count: int = 0
    due: date | None = None


async def test_ids_that_look_alike_are_apart(url: str) -> None:
    """User a_b in session c and user a in session b_c have a conversation and a state each, with
    other separators too."""
    for mark in ("_", "/", ":", "|", "\\", "."):
        scopes = [(f"a{mark}b", "c"), ("a", f"b{mark}c"), (f"a{mark}b{mark}c", "c"), ("a", "c")]
        memories = [memory_of(url, user_id=user, session_id=session) for user, session in scopes]
        for number, memory in enumerate(memories):
            await memory.aput(ChatMessage(role="user", content=f"{mark}{number}"))
        for number, memory in enumerate(memories):
            assert contents(await memory.aget_all())[-1] == f"{mark}{number}"
        async with Memory.open(url) as store:
            for number, (user_id, session_id) in enumerate(scopes):
                session = await store.user(user_id).session(session_id)
                await session.state.update(lambda state, n=number: state.with_fields(n=n))
            for number, (user_id, session_id) in enumerate(scopes):
                state = await (await store.user(user_id).session(session_id)).state.load()
                assert state is not None
                assert state.fields["n"] == number


async def test_ids_are_no_paths(tmp_path: Path) -> None:
    """Ids with dots and separators, and long ones, name a conversation and a state, and no file."""
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"sqlite:///{folder / 'memory.db'}"
    for name in ("../evil", "org/alice", "..\\evil", "x" * 300, "~", "C:\\x"):
        memory = memory_of(url, user_id=name, session_id=name)
        await memory.aput(ChatMessage(role="user", content="hello"))
        assert contents(await memory.aget_all()) == ["hello"]
        async with Memory.open(url) as store:
            session = await store.user(name).session(name)
            await session.state.update(lambda state: state.with_fields(here=True))
    assert os.listdir(tmp_path) == ["data"]
    assert {name.partition(".db")[0] for name in os.listdir(folder)} == {"memory"}


async def test_no_update_is_lost(url: str) -> None:
    """Of forty updates through two openings at once each counts, and fields that two of them
    changed are both there."""
    async with Memory.open(url) as one, Memory.open(url) as other:
        states = [(await store.user("ana").session("s")).state.of(Case) for store in (one, other)]

        def count(state: Any) -> Any:
            return state.with_fields(count=state.fields.count + 1)

        await asyncio.gather(*(state.update(count) for state in states * 20))
        await asyncio.gather(
            states[0].update(lambda state: state.with_fields(due=date(2026, 1, 2))),
            states[1].update(count),
        )
        found = await states[0].load()
        assert found is not None
        assert (found.fields, found.version) == (Case(41, date(2026, 1, 2)), 42)


async def test_reading_is_no_update() -> None:
    """``updated_at`` is the time of the last save, with its zone, however often and whenever the
    state is loaded."""
    clock = FrozenClock(datetime(2026, 3, 1, tzinfo=UTC))
    async with Memory.open("memory://", clock=clock) as store:
        state = store.user("ana").state
        await state.update(lambda one: one.with_fields(x=1))
        saved = clock.now()
        for _ in range(3):
            clock.advance(timedelta(hours=1))
            found = await state.load()
            assert found is not None
            assert (found.updated_at, found.version) == (saved, 1)


async def test_values_keep_their_types(url: str) -> None:
    """Dates, decimals and keys that are numbers come back as they were, and NaN is refused by the
    name of its slot or field."""
    async with Memory.open(url, workflows=[REFUND]) as store:
        state = store.user("ana").state
        day = date(2026, 12, 1)
        await state.update(
            lambda one: one.start(REFUND, day=day, amount=Decimal("1.10")).with_fields(by={1: day})
        )
    async with Memory.open(url, workflows=[REFUND]) as store:
        state = store.user("ana").state
        found = await state.load()
        assert found is not None
        assert dict(found.slots) == {"day": day, "amount": Decimal("1.10")}
        assert found.fields["by"] == {1: day}
        with pytest.raises(InvalidValue, match="amount"):
            await state.update(lambda one: one.fill(amount="NaN"))
        with pytest.raises(InvalidValue, match="odds"):
            await state.update(lambda one: one.with_fields(odds=float("nan")))


async def test_a_model_is_told_what_is_possible() -> None:
    """The tools of a state name each slot with its type and each step that is allowed; nothing
    defaults to null, and a step that is not allowed, -3 too, changes nothing."""
    async with Memory.open("memory://", workflows=[REFUND]) as store:
        session = await store.user("ana").session("s")
        await session.state.update(lambda state: state.start(REFUND))
        tools = {
            one.metadata.name: one for one in function_tools(await StateTools(session).tools())
        }
        update: Any = tools["update_workflow_state"]
        schema: dict[str, Any] = update.metadata.get_parameters_dict()
        assert schema["properties"]["step"] == {"type": "string", "enum": ["review"]}
        slots: dict[str, Any] = schema["properties"]["slots"]["properties"]
        assert set(slots) == {"order", "day", "amount"}
        assert slots["order"]["description"] == "the order's number"
        assert all("type" in one for one in slots.values())
        assert "default" not in str(schema)
        for step in (-3, "-3", "paid", None, ["review"]):
            answer = str(await update.acall(step=step, slots={"order": "A-17"}))
            assert '"changed": false' in answer
        state = await session.state.load()
        assert state is not None
        assert (state.step, state.version) == ("details", 1)


async def test_a_turn_saves_no_snapshot(url: str) -> None:
    """What tools, and others meanwhile, wrote into the state in the middle of a turn is the state
    after it, and the next turn is shown it."""
    async with Memory.open(url, workflows=[REFUND]) as store:
        session = await store.user("ana").session("s")
        await session.state.update(lambda state: state.start(REFUND))

        async def note(number: int) -> str:
            """Note a number, as another process would."""
            await session.state.update(lambda state: state.with_fields(noted=number))
            return "noted"

        llm = ScriptedLLM(
            [
                Reply(calls=[Call("fill_slots", {"order": "A-17"}), Call("note", {"number": 7})]),
                Reply(calls=[Call("update_workflow_state", {"step": "review"})]),
                "in review",
                "still",
            ]
        )
        tools = StateToolRetriever(StateTools(session))
        agent = FunctionAgent(llm=llm, tools=[note], tool_retriever=tools)
        memory = SecondCallMemory.from_defaults(user_id="ana", session_id="s", memory=store)
        await run(agent, "refund A-17", memory=memory)
        state = await session.state.load()
        assert state is not None
        assert (state.step, state.slots["order"], state.fields["noted"]) == ("review", "A-17", 7)
        await run(agent, "and now?", memory=memory)
        assert '"review"' in str(contents(llm.requests[-1]))


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "postgresql", "redis", "dynamodb"])
def test_stores_are_what_they_say(scheme: str) -> None:
    """Every store of states is a ``StateStore``: abstract where nobody may forget a method, with
    versions, deletion and erasure, and asynchronous throughout."""
    module = import_module(f"secondcall.stores.{scheme}")
    made = inspect.get_annotations(module.state_store, eval_str=True)["return"]
    assert issubclass(made, StateStore)
    assert not inspect.isabstract(made) or made is StateStore
    assert inspect.isabstract(StateStore)
    for name in ("load", "save", "delete", "history", "erase"):
        assert inspect.iscoroutinefunction(getattr(StateStore, name))
    for name in ("save", "delete"):
        assert "expected_version" in inspect.signature(getattr(StateStore, name)).parameters


async def test_a_conflict_is_raised_and_not_skipped(url: str) -> None:
    """Who saves over what another one saved is told so with both versions, and the other one's
    stays. Rows that are locked are skipped where timers are given out, and nowhere else."""
    async with Memory.open(url) as store:
        state = store.user("ana").state
        await state.update(lambda one: one.with_fields(x=1))
        mine = await state.load()
        assert mine is not None
        await state.update(lambda one: one.with_fields(y=2))
        with pytest.raises(VersionConflict) as caught:
            await state.save(mine.with_fields(x=3))
        assert (caught.value.expected, caught.value.found) == (1, 2)
        found = await state.load()
        assert found is not None
        assert dict(found.fields) == {"x": 1, "y": 2}
    queries = re.split(r"-- name: ", (SQL / "postgresql" / "queries.sql").read_text("utf-8"))
    skipping = [query.split()[0] for query in queries if "SKIP LOCKED" in query]
    assert skipping == ["hold_due_states"]


async def test_states_expire_and_users_are_erased() -> None:
    """A state is absent once its time has passed, and erasing one user takes messages and state of
    that one alone, with a receipt that says so."""
    clock = FrozenClock()
    async with Memory.open("memory://", clock=clock) as store:
        for user_id in ("ana", "bob"):
            memory = SecondCallMemory.from_defaults(user_id=user_id, session_id="s", memory=store)
            await memory.aput(ChatMessage(role="user", content=f"I am {user_id}"))
            state = (await store.user(user_id).session("s")).state
            end = clock.now() + timedelta(hours=1)
            await state.update(lambda one, end=end: one.with_fields(x=1).expiring(end))
        receipt = await store.user("ana").forget()
        assert receipt.complete
        gone = await (await store.user("ana").session("s")).state.load()
        kept = await (await store.user("bob").session("s")).state.load()
        assert (gone, kept is None) == (None, False)
        clock.advance(timedelta(hours=2))
        assert await (await store.user("bob").session("s")).state.load() is None
        left = SecondCallMemory.from_defaults(user_id="ana", session_id="s", memory=store)
        other = SecondCallMemory.from_defaults(user_id="bob", session_id="s", memory=store)
        assert contents(await left.aget_all()) == []
        assert contents(await other.aget_all()) == ["I am bob"]
