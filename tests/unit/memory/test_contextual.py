"""One window for all layers: what goes in, what is left out, and when it is read anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secondcall import (
    Context,
    InvalidValue,
    Item,
    Memory,
    Message,
    OverBudget,
    SessionMemory,
    ToolCall,
    UserMemory,
)
from secondcall.abc import Scope, StoredEntry, TokenCounter
from secondcall.stores.memory import MemoryStore
from secondcall.testing.fakes import FrozenClock


async def _earlier(user: UserMemory) -> None:
    """A first call, with a fact, a promise and two things said."""
    session = await user.session("call-1")
    await session.record(
        Message("user", "My dog is called Rex.", id="dog"),
        Message("assistant", "A fine name.", id="name"),
    )
    await user.remember("seat preference", "aisle", kind="preference")
    await user.remember("voucher", "20 euros by post", kind="promise")


async def _session(memory: Memory, session_id: str = "call-2") -> SessionMemory:
    return await memory.user("ana").session(session_id)


def _ids(context: Context) -> list[str | None]:
    return [item.id if isinstance(item, Message) else item.call_id for item in context.items]


def _fits(context: Context, window: int) -> bool:
    """The sum is within the window, and no part is over its limit."""
    tokens, limits = context.tokens, context.limits
    return (
        sum(tokens.values()) <= window
        and tokens["buffer"] + tokens["summary"] <= limits["buffer"]
        and tokens["recall"] <= limits["recall"]
        and tokens["state"] <= limits["state"]
    )


async def test_all_parts_come_together(memory: Memory) -> None:
    """The brief, what was found for the newest user message, and the turns, each in its part."""
    user = memory.user("ana")
    await _earlier(user)
    await (await user.session("call-0")).record(Message("user", "Where is my red suitcase?"))
    session = await user.session("call-2")
    await session.record(Message("user", "What is my dog called?", id="q"))
    context = await session.context(window=4_000, reserve=500, system="Be short.")
    assert "aisle" in context.state
    assert "voucher" in context.state
    assert _ids(context) == ["q"]
    assert context.tokens["reserve"] == 500
    assert context.tokens["system"] > 0
    assert context.missing == ()
    assert not context.stale
    assert context.brief.text == context.state
    assert context.recalled.text == context.recall
    assert _fits(context, 4_000)


async def test_what_is_in_the_buffer_is_not_recalled(memory: Memory) -> None:
    """Neither the question itself nor a turn that stands in the buffer comes a second time; what
    has fallen out of the buffer is found."""
    session = await _session(memory)
    await session.record(Message("user", "My dog is called Rex.", id="dog"))
    for number in range(40):
        await session.record(
            Message("user", f"Tell me about town {number}, please.", id=f"u{number}"),
            Message("assistant", f"Town {number} has a church and a river.", id=f"a{number}"),
        )
    await session.record(Message("user", "What is my dog called?", id="q"))
    small = await session.context(window=800, reserve=100)
    assert "dog" not in _ids(small)
    assert [one.key.id for one in small.recalled.items][:1] == ["dog"]
    assert not {one.key.id for one in small.recalled.items} & set(_ids(small))
    large = await session.context(window=20_000)
    assert "dog" in _ids(large)
    assert large.recalled.items == ()
    assert large.recall == ""
    assert large.recalled.reason


async def test_what_is_in_the_brief_is_not_recalled(memory: Memory) -> None:
    """A fact that stands in the state part does not stand in the recall part too."""
    user = memory.user("ana")
    await _earlier(user)
    session = await user.session("call-2")
    await session.record(Message("user", "Which seat preference do I have?"))
    context = await session.context(window=4_000)
    assert context.state.count("seat preference") == 1
    assert "seat preference" not in context.recall


async def test_this_session_is_not_in_its_own_brief(memory: Memory) -> None:
    """The brief tells of earlier conversations; this one stands in the buffer."""
    await _earlier(memory.user("ana"))
    session = await _session(memory)
    await session.record(Message("user", "Good morning to you."))
    context = await session.context(window=4_000)
    assert [one.session_id for one in context.brief.sessions] == ["call-1"]
    assert "Good morning" not in context.state


async def test_small_shares_name_what_is_left_out(memory: Memory) -> None:
    """What does not fit is named by kind and id, never by its words, with layer and tokens."""
    user = memory.user("ana")
    await _earlier(user)
    for number in range(30):
        await user.remember(f"note {number}", "word " * 20)
    session = await user.session("call-2")
    for number in range(90):
        await session.record(Message("user", f"Turn {number} " + "and more " * 10))
    context = await session.context("dog", window=1_500, reserve=100)
    assert _fits(context, 1_500)
    layers = {one.layer for one in context.left_out}
    assert {"buffer", "state"} <= layers
    assert all(one.tokens > 0 for one in context.left_out)
    assert "word" not in str(context.left_out)
    assert "Turn" not in str(context.left_out)


async def test_unused_shares_go_to_the_buffer(memory: Memory) -> None:
    """With nothing to recall and no brief the buffer may have all that is left."""
    session = await _session(memory)
    for number in range(60):
        await session.record(Message("user", f"Turn {number} " + "and more " * 10))
    context = await session.context(" ", window=2_000, reserve=200)
    assert context.tokens["recall"] == context.tokens["state"] == 0
    assert context.tokens["buffer"] > 0.6 * 1_800
    assert _fits(context, 2_000)


async def test_shares_are_the_host_s_to_choose(memory: Memory) -> None:
    """A layer without a share gets nothing while the others want everything."""
    user = memory.user("ana")
    await _earlier(user)
    session = await user.session("call-2")
    for number in range(60):
        await session.record(Message("user", f"Turn {number} " + "and more " * 10))
    context = await session.context(window=1_000, reserve=0, shares={"buffer": 1.0})
    assert context.state == context.recall == ""
    assert {"state"} <= {one.layer for one in context.left_out}
    assert _fits(context, 1_000)


async def test_it_goes_on_after_a_restart(url: str, clock: FrozenClock) -> None:
    """A new handle, and with a durable store a new process, has the same turns."""
    async with Memory.open(url, clock=clock) as memory:
        session = await _session(memory)
        for number in range(20):
            await session.record(Message("user", f"Turn {number}", id=f"u{number}"))
        before = await session.context(window=4_000)
        again = await (await _session(memory)).context(window=4_000)
        assert again.items == before.items
    if url != "memory://":
        async with Memory.open(url, clock=clock) as memory:
            assert (await (await _session(memory)).context(window=4_000)).items == before.items


async def test_what_was_recorded_is_there_at_once(memory: Memory) -> None:
    """After each record the next context has the new item, in order, corrections in place."""
    session = await _session(memory)
    expected: list[str] = []
    for number in range(10):
        await session.record(Message("user", f"Turn {number}", id=f"u{number}"))
        expected.append(f"u{number}")
        assert _ids(await session.context("x", window=4_000)) == expected
    await session.record(Message("user", "Corrected", id="u3"))
    context = await session.context("x", window=4_000)
    assert _ids(context) == expected
    assert [item.text for item in context.items if isinstance(item, Message)][3] == "Corrected"


async def test_others_are_seen(memory: Memory) -> None:
    """Another handle's items, facts and removals show in the next context."""
    session, other = await _session(memory), await _session(memory)
    await session.record(Message("user", "one", id="1"))
    assert _ids(await session.context("x", window=4_000)) == ["1"]
    await other.record(Message("user", "two", id="2"))
    assert _ids(await session.context("x", window=4_000)) == ["1", "2"]
    await memory.user("ana").remember("diet", "vegan")
    assert "vegan" in (await session.context("x", window=4_000)).state
    await memory.user("ana").remember("diet", "vegetarian")
    assert "vegan" not in (await session.context("x", window=4_000)).state
    await memory.user("ana").remove([(await session.items())[0].key])
    assert _ids(await session.context("x", window=4_000)) == ["2"]


async def test_another_process_is_seen(tmp_path: Any, clock: FrozenClock) -> None:
    """What another memory over the same file recorded, corrected and removed shows too."""
    url = f"sqlite:///{tmp_path / 'm.db'}"
    async with Memory.open(url, clock=clock) as here, Memory.open(url, clock=clock) as there:
        mine, theirs = await _session(here), await _session(there)
        await mine.record(Message("user", "one", id="1"))
        await mine.context("x", window=4_000)
        await theirs.record(Message("user", "two", id="2"), Message("user", "ONE", id="1"))
        context = await mine.context("x", window=4_000)
        assert [item.text for item in context.items if isinstance(item, Message)] == ["ONE", "two"]
        await (await _session(there, "elsewhere")).record(Message("user", "In another call."))
        assert "In another call." in (await mine.context("x", window=4_000)).state
        await there.user("ana").remove([(await theirs.items())[1].key])
        assert _ids(await mine.context("x", window=4_000)) == ["1"]


class CountingStore(MemoryStore):
    """Counts what is read of items and facts."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.reads = 0

    async def read(self, scope: Scope, **kwargs: Any) -> Sequence[StoredEntry]:
        """As it is, counted."""
        self.reads += 1
        return await super().read(scope, **kwargs)


async def test_own_items_do_not_make_it_read_again(clock: FrozenClock) -> None:
    """As long as only this handle records, neither the conversation nor the brief is read again;
    a fact changed by anybody, or a minute passed, makes the brief be read anew."""
    store = CountingStore()
    async with Memory.open(store, clock=clock) as memory:
        await _earlier(memory.user("ana"))
        session = await _session(memory)
        await session.record(Message("user", "hello"))
        await session.context(" ", window=4_000)
        await memory.flush()
        reads = store.reads
        for number in range(5):
            await session.record(Message("user", f"Turn {number}"))
            context = await session.context(" ", window=4_000)
            assert len(context.items) == number + 2
            assert "aisle" in context.state
        assert store.reads == reads
        await memory.user("ana").remember("seat preference", "window", kind="preference")
        assert "window" in (await session.context(" ", window=4_000)).state
        await memory.flush()
        reads = store.reads
        clock.advance(timedelta(seconds=61))
        await session.context(" ", window=4_000)
        assert store.reads > reads


async def test_a_fact_that_ends_by_time_leaves_the_state(
    memory: Memory, clock: FrozenClock
) -> None:
    """What is to become true later shows once it is, without any write."""
    user = memory.user("ana")
    later = clock.now() + timedelta(hours=1)
    await user.remember("desk", "moves to floor 5", valid_from=later)
    session = await user.session("call-2")
    await session.record(Message("user", "hello"))
    assert "floor 5" not in (await session.context("x", window=4_000)).state
    clock.advance(timedelta(hours=2))
    assert "floor 5" in (await session.context("x", window=4_000)).state


async def test_a_returning_user_starts_anew(memory: Memory) -> None:
    """After an erasure a handle has nothing of before, neither turns nor facts."""
    user = memory.user("ana")
    await _earlier(user)
    session = await user.session("call-2")
    await session.record(Message("user", "secret"))
    assert (await session.context("x", window=4_000)).items
    await memory.user("ana").forget()
    context = await session.context("x", window=4_000)
    assert context.items == ()
    assert context.state == context.recall == ""
    new = await _session(memory, "call-3")
    await new.record(Message("user", "fresh", id="f"))
    assert _ids(await new.context("x", window=4_000)) == ["f"]


async def test_no_other_user_is_in_it(memory: Memory) -> None:
    """The same session id of another user is another conversation."""
    await _earlier(memory.user("ben"))
    await (await memory.user("ben").session("call-2")).record(Message("user", "I am Ben."))
    session = await _session(memory)
    await session.record(Message("user", "What is my dog called?", id="q"))
    context = await session.context(window=4_000)
    assert _ids(context) == ["q"]
    assert context.state == context.recall == ""


async def test_claimed_callers_are_not_shown_what_is_sensitive(memory: Memory) -> None:
    """Sensitive facts and the items they rest on are in no part, in the middle of a call either."""
    caller = await memory.identify(phone="+14155550100")
    verified = memory.user(caller.user_id)
    claimed = await memory.user(caller).session("call-2")
    await claimed.record(Message("user", "I have asthma.", id="a"), Message("user", "ok", id="b"))
    assert _ids(await claimed.context("asthma", window=4_000)) == ["a", "b"]
    key = (await claimed.items())[0].key
    await verified.remember("diagnosis", "asthma", sensitive=True, sources=[key])
    context = await claimed.context("asthma", window=4_000)
    assert _ids(context) == ["b"]
    assert "asthma" not in context.state + context.recall


class SlowStore(MemoryStore):
    """Answers reads of items only when it is let."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self.open_gate = asyncio.Event()
        self.open_gate.set()

    async def read(self, scope: Scope, **kwargs: Any) -> Sequence[StoredEntry]:
        """As it is, once the gate is open."""
        await self.open_gate.wait()
        return await super().read(scope, **kwargs)


async def test_what_is_late_is_named(clock: FrozenClock) -> None:
    """When the deadline comes the parts that are not there are named, and the rest is given; the
    conversation is loaded to its end for the next time."""
    store = SlowStore()
    async with Memory.open(store, clock=clock) as memory:
        await (await _session(memory)).record(Message("user", "What now?", id="q"))
        await memory.flush()
        store.open_gate.clear()
        session = await _session(memory)
        late = await session.context(window=4_000, deadline_seconds=0.05)
        assert "buffer" in late.missing
        assert late.items == ()
        store.open_gate.set()
        found = await session.context(window=4_000, deadline_seconds=60)
        assert found.missing == ()
        assert _ids(found) == ["q"]


async def test_no_time_at_all_is_an_answer(memory: Memory) -> None:
    """With a deadline of nothing the context is empty and says what is missing."""
    session = await _session(memory)
    await session.record(Message("user", "hello"))
    context = await session.context(window=4_000, deadline_seconds=0)
    assert set(context.missing) <= {"buffer", "state", "recall"}
    assert _fits(context, 4_000)


async def test_contexts_at_once_are_the_same(memory: Memory) -> None:
    """Several requests at once, also while recording goes on, each get whole turns in order."""
    session = await _session(memory)
    await session.record(*(Message("user", f"Turn {number}") for number in range(50)))

    async def record() -> None:
        for number in range(50, 60):
            await session.record(Message("user", f"Turn {number}"))

    found = await asyncio.gather(*(session.context("x", window=4_000) for _ in range(5)), record())
    for context in found[:5]:
        assert context is not None
        texts = [item.text for item in context.items if isinstance(item, Message)]
        assert texts == [f"Turn {number}" for number in range(len(texts))]
    assert len((await session.context("x", window=4_000)).items) == 60


async def test_the_host_s_buffer_is_used(memory: Memory) -> None:
    """Where ``session.buffer()`` was asked for, its turns and its summary are the buffer part."""
    session = await _session(memory)
    buffer = await session.buffer(500)
    for number in range(40):
        await session.record(
            Message("user", f"My number {number} is {1_000 + number}."),
            Message("assistant", f"Noted, number {number} it is."),
        )
    await memory.flush()
    context = await session.context("x", window=4_000)
    assert list(context.items) == buffer.get()
    assert context.summary
    assert context.tokens["buffer"] + context.tokens["summary"] == buffer.tokens
    assert _fits(context, 4_000)
    sent = context.messages()
    assert context.summary in str(sent[0]["content"])
    with pytest.raises(OverBudget, match="the buffer's token_limit takes 500 tokens"):
        await session.context("x", window=900, reserve=100)


async def test_messages_stand_where_a_model_expects_them(memory: Memory) -> None:
    """The system text is in front, memory is the user's data before the newest user message, and
    nothing that was said is in the system role."""
    user = memory.user("ana")
    await _earlier(user)
    session = await user.session("call-2")
    await session.record(
        Message("user", "Hello."),
        Message("assistant", "Hello, how can I help?"),
        Message("user", "What is my dog called?"),
        ToolCall("look_up", {"what": "dog"}, call_id="c1", output="Rex"),
    )
    context = await session.context(window=4_000, system="Be short.")
    sent = context.messages(system="Be short.")
    assert [one["role"] for one in sent] == [
        "system",
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
        "tool",
    ]
    assert sent[0]["content"] == "Be short."
    assert str(sent[3]["content"]).startswith("<memory")
    assert sent[4]["content"] == "What is my dog called?"
    blocks = context.messages("anthropic")
    assert [one["role"] for one in blocks] == ["user", "assistant", "user", "assistant", "user"]
    assert "<memory" in json.dumps(blocks[2])
    with pytest.raises(InvalidValue):
        context.messages("anthropic", system="Be short.")


async def test_a_tool_s_output_is_shortened_and_said_so(memory: Memory) -> None:
    """A newest turn that is too long for its tool output is shortened, and that is reported."""
    session = await _session(memory)
    await session.record(
        Message("user", "Look it up."),
        ToolCall("look_up", {}, call_id="c1", output="word " * 5_000),
    )
    context = await session.context(window=1_000, reserve=100)
    assert [one for one in context.left_out if one.shortened]
    assert _fits(context, 1_000)
    call = context.items[-1]
    assert isinstance(call, ToolCall)
    assert "the record has all of it" in str(call.output)


async def test_what_cannot_fit_is_an_error_that_names_it(memory: Memory) -> None:
    """A system text, tools or a newest message larger than their room are named with both numbers;
    afterwards a larger window works."""
    session = await _session(memory)
    await session.record(Message("user", "word " * 3_000, id="q"))
    with pytest.raises(OverBudget, match="the newest user message takes"):
        await session.context("x", window=1_000)
    with pytest.raises(OverBudget, match="the system text takes"):
        await session.context("x", window=1_000, reserve=0, system="word " * 3_000)
    with pytest.raises(OverBudget, match="the description of the tools takes"):
        await session.context("x", window=1_000, reserve=0, tools=[{"a": "word " * 3_000}])
    with pytest.raises(OverBudget, match="the reserve for the answer takes"):
        await session.context("x", window=1_000, reserve=1_001)
    assert _ids(await session.context("x", window=8_000)) == ["q"]


async def test_after_a_turn_that_does_not_fit(memory: Memory) -> None:
    """A newest turn that does not fit is refused each time it is asked for, and never left out for
    an older one; the next that fits is shown."""
    session = await memory.user("ana").session("s")
    await session.record(Message("user", "hello"), Message("assistant", "hi"))
    assert len((await session.context(window=500, reserve=0)).items) == 2
    await session.record(Message("user", "word " * 2_000))
    for _ in range(2):
        with pytest.raises(OverBudget, match="the newest user message"):
            await session.context(window=500, reserve=0)
    await session.record(Message("user", "and now?"))
    (last,) = (await session.context(window=500, reserve=0)).items
    assert isinstance(last, Message)
    assert last.text == "and now?"


async def test_a_full_window_has_no_room_for_the_conversation(memory: Memory) -> None:
    """A window that the fixed parts use up is an error as soon as there is something to show."""
    session = await _session(memory)
    assert (await session.context("x", window=100, reserve=100)).items == ()
    await session.record(Message("user", "hello"))
    with pytest.raises(OverBudget):
        await session.context("x", window=100, reserve=100)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"window": 0}, "window is 0"),
        ({"window": -1}, "window is -1"),
        ({"window": True}, "window must be a whole number, not bool"),
        ({"window": 4_000, "reserve": -1}, "reserve is -1"),
        ({"window": 4_000, "system": None}, "system must be text, not NoneType"),
        ({"window": 4_000, "tools": "a tool"}, "tools must be a list of tools, not str"),
        ({"window": 4_000, "tools": [{"a": float("nan")}]}, r"tools\[0\].a is nan"),
        ({"window": 4_000, "shares": {"buffer": 0.5}}, "shares sum to 0.5"),
        ({"window": 4_000, "shares": {"facts": 1.0}}, "shares names 'facts'"),
        ({"window": 4_000, "limit": 0}, "limit is 0"),
        ({"window": 4_000, "deadline_seconds": -1}, "deadline_seconds is -1"),
        ({"window": 4_000, "question": 5}, "query must be text, not int"),
    ],
)
async def test_wrong_calls_are_refused(
    memory: Memory, arguments: dict[str, Any], said: str
) -> None:
    """Each argument is checked before anything is read, and the error names it."""
    session = await _session(memory)
    with pytest.raises(InvalidValue, match=said):
        await session.context(**arguments)


async def test_only_tool_calls_is_a_conversation_too(memory: Memory) -> None:
    """Without a user message there is nothing to ask, which is said; the items are there."""
    session = await _session(memory)
    await session.record(ToolCall("look_up", {}, call_id="c1", output="x"))
    context = await session.context(window=4_000)
    assert _ids(context) == ["c1"]
    assert context.recalled.reason == "nobody has asked anything in this conversation yet"


async def test_an_empty_session_is_no_error(memory: Memory) -> None:
    """Of somebody unknown, in a session without items, the context is empty."""
    context = await (await _session(memory)).context(window=4_000)
    assert context.items == ()
    assert context.state == context.recall == context.summary == ""
    assert not context.brief.known
    assert await memory.users() == []


class OddCounter(TokenCounter):
    """Lines put together have more tokens than each alone."""

    id = "odd"

    def __init__(self, of: str) -> None:
        self.of = of

    def count(self, text: str) -> int:
        """A token for each of these letters, and three for each line."""
        return text.count(self.of) + text.count("\n") * 3


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lengths=st.lists(st.integers(0, 120), max_size=25),
    facts=st.integers(0, 12),
    window=st.integers(300, 3_000),
    reserve=st.integers(0, 250),
    whole=st.booleans(),
)
async def test_it_is_never_over_the_window(
    lengths: Sequence[int], facts: int, window: int, reserve: int, whole: bool
) -> None:
    """Whatever was said and known, all parts together fit, or the error names what does not."""
    counter = None if whole else OddCounter("o")
    async with Memory.open("memory://", counter=counter) as memory:
        user = memory.user("ana")
        for number in range(facts):
            await user.remember(f"fact {number}", "to go on " * number)
        session = await user.session("s")
        items: list[Item] = []
        for number, length in enumerate(lengths):
            text = "once or more " * length
            if number % 3 == 2:
                items.append(ToolCall("do", {"n": number}, call_id=f"c{number}", output=text))
            else:
                items.append(Message("assistant" if number % 3 else "user", text))
        if items:
            await session.record(*items)
        try:
            context = await session.context("more fact", window=window, reserve=reserve)
        except OverBudget as error:
            over = error
        else:
            assert _fits(context, window)
            return
        assert over.tokens > over.limit
