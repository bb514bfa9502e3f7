"""What a call starts with: loaded once, in time, and there for the first word."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, function_tool, llm

from secondcall import Memory, Message, ToolCall
from secondcall.abc import Change, Document, EntryKey, Header, Scope, SessionOutline, StoredEntry
from secondcall.adapters.livekit.chat import is_memory
from secondcall.adapters.livekit.preload import Preloaded, preload
from secondcall.errors import InvalidValue, StoreUnavailable
from secondcall.memory.user import UserMemory
from secondcall.stores.memory import MemoryStore
from secondcall.testing.livekit import ScriptedLLM

pytestmark = pytest.mark.anyio

AT = datetime.now(UTC) - timedelta(days=30)


class _Watched(MemoryStore):
    """A store that counts its reads and can be slow, hang or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()
        self.is_down = False
        self.gate: asyncio.Event | None = None
        self.stuck: Sequence[str] = (
            "header",
            "document",
            "documents",
            "sessions",
            "read",
            "entries",
        )

    async def _reached(self, name: str) -> None:
        self.reads[name] += 1
        if self.gate is not None and name in self.stuck:
            await self.gate.wait()
        if self.is_down:
            raise StoreUnavailable("the store is switched off")

    async def header(self, scope: Scope) -> Header | None:
        """Counted."""
        await self._reached("header")
        return await super().header(scope)

    async def document(self, scope: Scope, kind: str, key: str) -> Document | None:
        """Counted."""
        await self._reached("document")
        return await super().document(scope, kind, key)

    async def documents(
        self, scope: Scope, kind: str, *, prefix: str = "", after: str = "", limit: int
    ) -> Sequence[Document]:
        """Counted."""
        await self._reached("documents")
        return await super().documents(scope, kind, prefix=prefix, after=after, limit=limit)

    async def sessions(
        self, scope: Scope, *, limit: int, after: tuple[int, str] | None = None
    ) -> Sequence[SessionOutline]:
        """Counted."""
        await self._reached("sessions")
        return await super().sessions(scope, limit=limit, after=after)

    async def changes(self, scope: Scope, *, after: int, limit: int) -> Sequence[Change]:
        """Counted."""
        await self._reached("changes")
        return await super().changes(scope, after=after, limit=limit)

    async def read(
        self,
        scope: Scope,
        *,
        session_id: str | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> Sequence[StoredEntry]:
        """Counted."""
        await self._reached("read")
        return await super().read(
            scope,
            session_id=session_id,
            since_us=since_us,
            until_us=until_us,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )

    async def entries(self, scope: Scope, keys: Sequence[EntryKey]) -> Sequence[StoredEntry]:
        """Counted."""
        await self._reached("entries")
        return await super().entries(scope, keys)


@pytest.fixture
def store() -> _Watched:
    """The store behind ``user``."""
    return _Watched()


@pytest.fixture
async def user(store: _Watched) -> AsyncGenerator[UserMemory]:
    """Somebody who called a month ago, about a parcel."""
    async with Memory.open(store) as memory:
        user = memory.user("ann")
        await user.remember("seat preference", "aisle", kind="preference")
        await user.remember("call back", "on Monday", kind="promise")
        session = await user.session("call-1")
        await session.record(
            Message("user", "Where is my parcel?", id="1", at=AT),
            ToolCall("track", {"id": "P-1"}, call_id="t", output="In Lyon.", at=_later(1)),
            Message("assistant", "It is in Lyon.", id="2", at=_later(2)),
            Message("user", "Thanks, and my seat?", id="3", at=_later(3)),
            Message("assistant", "On the aisle, as", id="4", at=_later(4), interrupted=True),
        )
        await memory.flush()
        yield user
        store.gate = None
        store.is_down = False


def _later(minutes: int) -> datetime:
    return AT + timedelta(minutes=minutes)


def _texts(context: llm.ChatContext) -> list[str]:
    return [one.text_content or "" for one in context.messages()]


async def _agent(loaded: Preloaded, *, tools: Sequence[llm.Tool] = ()) -> Agent:
    agent = Agent(instructions="Be brief.", tools=list(tools))
    context = loaded.context(agent.chat_ctx.copy(), tools=[one.id for one in tools])
    await agent.update_chat_ctx(context, exclude_invalid_function_calls=False)
    return agent


async def test_the_first_reply_has_the_brief_and_a_turn_reads_nothing(
    user: UserMemory, store: _Watched
) -> None:
    """Loaded once, before the session; two turns and a greeting that need no lookup make no read
    of the store."""
    loaded = await preload(user, deadline_seconds=10)
    model = ScriptedLLM(["Welcome back.", "Yes.", "Bye."])
    agent = await _agent(loaded)
    session = AgentSession[None](llm=model, vad=None, turn_handling={"turn_detection": None})
    await user.flush()  # until the index, which loads in the background, is there
    assert store.reads["documents"] > 0
    store.reads.clear()
    await session.start(agent)
    await session.generate_reply()
    await session.run(user_input="Do you know me?")
    await session.run(user_input="Thanks.")
    await session.aclose()
    assert store.reads == Counter()
    for request in model.requests:
        texts = _texts(request)
        assert texts[0] == "Be brief."
        assert "aisle" in texts[1]
        assert "on Monday" in texts[1]
        assert "<memory" in texts[1]
        assert sum("<memory" in text for text in texts) == 1
    assert [one for one in session.history.items if is_memory(one)] == []


async def test_a_stranger_gets_nothing(user: UserMemory, store: _Watched) -> None:
    """Without anything known the context is what it was."""
    del user
    async with Memory.open(store) as memory:
        loaded = await preload(memory.user("stranger"), last_turns=3, deadline_seconds=10)
    base = llm.ChatContext.empty()
    base.add_message(role="system", content="Be brief.")
    assert loaded.missing is None
    assert _texts(loaded.context(base)) == ["Be brief."]
    assert _texts(loaded.context(base, plain=True)) == ["Be brief."]
    assert loaded.context().items == []


async def test_everything_loaded_is_older_than_the_call(user: UserMemory) -> None:
    """Instructions first, then the brief, the turns, what the agent came with; what is said now
    comes last, whenever the agent was made."""
    base = llm.ChatContext.empty()
    made_at = time.time() - 3_600
    base.add_message(role="system", content="Be brief.", created_at=made_at - 1)
    base.add_message(role="assistant", content="An example.", created_at=made_at)
    loaded = await preload(user, last_turns=5, deadline_seconds=10)
    context = loaded.context(base)
    context.add_message(role="user", content="Hello.", created_at=time.time())
    texts = _texts(context)
    assert texts[0] == "Be brief."
    assert "aisle" in texts[1]
    assert texts[2] == "Where is my parcel?"
    assert texts[-2:] == ["An example.", "Hello."]
    times = [one.created_at for one in context.items[1:]]
    assert times == sorted(set(times))
    assert times[-3] < made_at
    assert _texts(llm.ChatContext.empty().merge(context))[-2:] == ["An example.", "Hello."]


async def test_the_last_turns_come_whole_and_say_where_they_end(user: UserMemory) -> None:
    """One turn is the last question with its reply; more reach further back, calls included; an
    interrupted reply stays marked."""
    one = await preload(user, last_turns=1, deadline_seconds=10)
    both = await preload(user, last_turns=2, deadline_seconds=10)
    assert [turn.key.id for turn in one.turns] == ["3", "4"]
    assert [turn.key.id for turn in both.turns] == ["1", "t", "2", "3", "4"]
    items = both.context(tools={"track"}).items
    assert [item.type for item in items] == [
        "message", "message", "function_call", "function_call_output",
        "message", "message", "message", "message",
    ]  # fmt: skip
    cut = next(one for one in items if isinstance(one, llm.ChatMessage) and one.interrupted)
    assert cut.text_content == "On the aisle, as"
    end = items[-1]
    assert isinstance(end, llm.ChatMessage)
    assert f"{_later(4):%Y-%m-%d %H:%M} UTC, before this call" in (end.text_content or "")


async def test_an_agent_with_the_tool_gets_the_pair_and_one_without_gets_the_words(
    user: UserMemory,
) -> None:
    """Either way the model sees what the tool found, and no call that nobody answers."""

    @function_tool
    async def track(id: str) -> str:
        """Where a parcel is."""
        return id

    loaded = await preload(user, last_turns=5, deadline_seconds=10)
    pair = (await _agent(loaded, tools=[track])).chat_ctx.items
    words = (await _agent(loaded)).chat_ctx.items
    assert [one.output for one in pair if isinstance(one, llm.FunctionCallOutput)] == ["In Lyon."]
    assert not [one for one in words if isinstance(one, llm.FunctionCall | llm.FunctionCallOutput)]
    told = [one.text_content or "" for one in words if isinstance(one, llm.ChatMessage)]
    assert any('gave "In Lyon."' in text for text in told)


async def test_for_a_realtime_model_all_is_told_in_one_message(user: UserMemory) -> None:
    """Brief and last turns as one piece of data: no restored calls, no words put into anybody's
    mouth."""
    loaded = await preload(user, last_turns=5, deadline_seconds=10)
    context = loaded.context(plain=True)
    (text,) = _texts(context)
    for part in ("aisle", "Where is my parcel?", "In Lyon.", "(interrupted)", "before this call"):
        assert part in text
    assert [one.type for one in context.items] == ["message"]


async def test_giving_it_again_replaces_it(user: UserMemory) -> None:
    """A handoff that passes the context on does not double the memory."""
    loaded = await preload(user, last_turns=5, deadline_seconds=10)
    once = loaded.context()
    twice = loaded.context(once.copy())
    assert [one.id for one in twice.items] == [one.id for one in once.items]


async def test_turns_of_two_conversations_are_not_mixed(user: UserMemory) -> None:
    """Two calls that ran at the same time come one after the other."""
    other = await user.session("call-2")
    await other.record(
        Message("user", "Second line.", id="a", at=AT + timedelta(seconds=30)),
        Message("assistant", "Yes?", id="b", at=_later(3) + timedelta(seconds=30)),
    )
    loaded = await preload(user, last_turns=3, deadline_seconds=10)
    assert [one.key.id for one in loaded.turns] == ["a", "b", "1", "t", "2", "3", "4"]


async def test_long_turns_are_left_out_whole(user: UserMemory) -> None:
    """What is restored stays within its size; the newest turn is there in any case."""
    session = await user.session("call-2")
    for number in range(4):
        await session.record(
            Message("user", "x" * 5_000, id=f"u{number}", at=AT + timedelta(days=1, hours=number)),
            Message("assistant", "ok", id=f"a{number}", at=AT + timedelta(days=1, hours=number)),
        )
    loaded = await preload(user, last_turns=4, deadline_seconds=10)
    assert [one.key.id for one in loaded.turns] == ["u2", "a2", "u3", "a3"]
    await session.record(Message("user", "y" * 50_000, id="huge", at=AT + timedelta(days=2)))
    loaded = await preload(user, last_turns=4, deadline_seconds=10)
    assert [one.key.id for one in loaded.turns] == ["huge"]


async def test_what_a_claimed_caller_may_not_see_is_not_restored(user: UserMemory) -> None:
    """A sensitive fact and the words it comes from stay out of brief and turns."""
    session = await user.session("call-1")
    keys = (await session.record(Message("user", "My PIN is 4711.", id="pin", at=_later(5)))).keys
    await user.remember("pin", "4711", sensitive=True, sources=keys)
    shared = user._place.shared  # pyright: ignore[reportPrivateUsage] - a claimed handle of the same user
    claimed = UserMemory(shared, "default", "ann", trust="claimed")
    for handle, shown in ((user, True), (claimed, False)):
        loaded = await preload(handle, last_turns=5, deadline_seconds=10)
        assert ("4711" in str(loaded.context().to_dict())) is shown


async def test_a_store_that_hangs_costs_the_deadline_and_no_more(
    user: UserMemory, store: _Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The call starts without memory, the log says so, and the read that is left ends by
    itself."""
    store.gate = asyncio.Event()
    with caplog.at_level(logging.WARNING, logger="secondcall"):
        async with asyncio.timeout(10):
            loaded = await preload(user, deadline_seconds=0.02, last_turns=2)
    assert loaded.turns == ()
    assert loaded.missing is not None
    assert "deadline" in loaded.missing
    assert loaded.context().items == []
    (record,) = [one for one in caplog.records if "less memory" in one.getMessage()]
    assert "turns: deadline" in getattr(record, "missing", [])
    store.gate.set()


async def test_a_part_that_is_late_does_not_take_the_rest_with_it(
    user: UserMemory, store: _Watched
) -> None:
    """Facts that came in time are used, though the conversations did not."""
    store.gate, store.stuck = asyncio.Event(), ("sessions",)
    loaded = await preload(user, deadline_seconds=0.3)
    store.gate.set()
    assert loaded.brief is not None
    assert "aisle" in loaded.brief.text
    assert loaded.missing == "sessions: deadline"


async def test_a_store_that_is_down_costs_the_memory_and_not_the_call(
    user: UserMemory, store: _Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing store is named by its error's class alone, in ``missing`` and in the log."""
    store.is_down = True
    with caplog.at_level(logging.WARNING, logger="secondcall"):
        loaded = await preload(user, deadline_seconds=10, last_turns=1)
    assert loaded.brief is None
    assert loaded.missing == "brief: StoreUnavailable, turns: StoreUnavailable"
    assert "switched off" not in str([one.__dict__ for one in caplog.records])


async def test_what_is_late_and_what_fails_is_counted(
    user: UserMemory, store: _Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metrics of late reads name the parts of a preload."""
    late: list[tuple[str, str]] = []

    def count_late(name: str, part: str) -> None:
        late.append((name, part))

    monkeypatch.setattr("secondcall.telemetry.count_late", count_late)
    store.gate = asyncio.Event()
    await preload(user, deadline_seconds=0.02, last_turns=1)
    store.gate.set()
    assert ("preload", "turns") in late
    assert {name for name, _ in late} & {"brief", "preload"}


async def test_a_cancelled_preload_leaves_nothing_behind(user: UserMemory, store: _Watched) -> None:
    """The entrypoint may be cancelled while it loads."""
    store.gate = asyncio.Event()
    task = asyncio.create_task(preload(user, deadline_seconds=60, last_turns=1))
    await until(lambda: store.reads["header"] + store.reads["document"] > 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.gate.set()


@pytest.mark.parametrize(
    "wrong",
    [{"deadline_seconds": -1}, {"max_tokens": 0}, {"last_turns": -1}, {"last_turns": 51}],
)
async def test_wrong_arguments_are_refused(user: UserMemory, wrong: dict[str, int]) -> None:
    """A mistake in the code is told, not logged away."""
    with pytest.raises(InvalidValue):
        await preload(user, **wrong)


async def test_the_brief_keeps_to_its_tokens(user: UserMemory) -> None:
    """``max_tokens`` bounds what is remembered in the context."""
    small = await preload(user, max_tokens=60, deadline_seconds=10)
    assert small.brief is not None
    assert small.brief.tokens <= 60
    assert small.brief.left_out > 0
