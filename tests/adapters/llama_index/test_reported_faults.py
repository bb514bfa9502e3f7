"""What users of LlamaIndex's memories report, and how this memory behaves instead.

Each report stands here with the tests that prove it: those in this file, or, where the truth was
proved already, those named by their file. ``test_the_table_is_true`` looks all of them up. Files
without a folder are in this one. Numbers are those of run-llama/llama_index, unless another
project is named.

#22701      one block for two sessions       test_blocks.py::test_one_block_serves_sessions_that_are_apart
#23090      the most important goes first    test_blocks.py::test_facts_are_those_that_hold_now test_blocks.py::test_a_block_is_cut_by_whole_lines tests/unit/context/test_render.py::test_fit_never_goes_over_the_budget
#21950      calls and thinking uncounted     test_random_histories test_every_part_of_a_message_is_counted
#22867      a block fails after archiving    test_blocks.py::test_a_store_that_is_down_fails_no_turn test_blocks.py::test_a_message_that_comes_again_is_recorded_once
#23184      first use by several at once     test_a_store_is_made_once
#23183      set deletes, then fails          test_a_history_that_is_refused_leaves_the_old_one test_chat_store.py::test_a_refused_message_leaves_the_list_as_it_was
#23185      an empty batch raises            test_memory.py::test_strange_messages
#22963      deleting by index reverses       test_chat_store.py::test_deleting_by_place_keeps_the_order
#12313      fields of messages are lost      test_messages.py::test_every_field_and_block_comes_back
#19228      a context cannot be restored     test_serialising.py::test_a_context_that_was_written_down test_serialising.py::test_another_process_goes_on
#18628      memory is left out of a context  test_serialising.py::test_a_second_run_on_one_context
agents#709  copying a state crashes          test_serialising.py::test_copies_are_the_same_memory test_serialising.py::test_a_tool_that_edits_the_state
#18416      state piles up in the history    test_memory.py::test_state_is_shown_and_not_stored test_agents_calls.py::test_initial_state_is_not_stored
#21774      a state leaks between runs       test_a_state_of_one_run_is_not_in_the_next
#19050      recall misses the newest words   test_memory.py::test_input_is_the_question test_the_question_is_the_newest
#23179      a window of 1 is ignored         test_memory.py::test_a_limit_of_one_token test_a_window_of_one_is_one
#16214      a history begins with a tool     test_random_histories
#14563      a summary dies of a call         test_tutorial_faults.py::test_a_summary_is_written_from_calls_too
#13325      making a buffer erases           test_tutorial_faults.py::test_opening_changes_nothing
#19487      the newest message is dropped    test_memory.py::test_the_window_is_kept test_memory.py::test_a_question_larger_than_its_share
#11637      what exceeds what is not said    test_running.py::test_a_question_that_does_not_fit test_memory.py::test_a_limit_of_one_token
#14660      the running turn overflows       test_running.py::test_tool_outputs_are_sent_within_the_window
#12264      get is slow on long histories    test_a_get_counts_nothing_again
#18979      states on SQL alone              tests/examples/test_llama_index.py::test_the_state_is_kept_where_its_url_says
#20746      one way of opening forgets       test_each_way_to_name_a_store_leads_to_it
#19026      a loop inside a loop             test_memory.py::test_blocking_calls_inside_a_loop test_memory.py::test_blocking_calls_without_a_loop test_memory.py::test_threads_and_loops
#21103      condensing wipes facts           tests/unit/shortterm/test_summary.py::test_key_facts_stay_whatever_the_model_does
#12858      sessions mixed, reset wipes      test_memory.py::test_users_sessions_and_tenants_are_apart test_memory.py::test_setting_and_resetting
agents#26   states live in the process       tests/examples/test_llama_index.py::test_the_state_is_kept_where_its_url_says test_tutorial_state.py::test_a_turn_saves_no_snapshot
#15963      an item outgrows DynamoDB        src/secondcall/testing/conformance/state_refusals.py::test_states_over_the_declared_size_are_refused tests/unit/memory/test_state.py::test_a_state_of_a_megabyte_is_refused
mastra#16193 recalled calls are orphans      test_recalled_calls_are_text
basic-memory#989 a sibling's rollback        test_a_refused_write_takes_no_other_with_it
mem0#6515   check, then insert               test_blocks.py::test_a_message_that_comes_again_is_recorded_once
"""  # noqa: E501 - a table, one report a line

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from adapters.llama_index.agents import agent_of, contents, memory_of, roles, run, start
from llama_index.core.base.llms import types as llms
from llama_index.core.llms import ChatMessage

import secondcall
from secondcall import Memory, OverBudget, TooLarge
from secondcall.abc import TokenCounter
from secondcall.adapters.llama_index import SecondCallMemory
from secondcall.adapters.llama_index.outputs import tokens_of
from secondcall.registry import default_counter
from secondcall.testing.llama_index import Call, Reply, ScriptedLLM, check_history

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIMIT = 250
_CALLER = ScriptedLLM()


def _said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def _turn(question: str, answer: str = "I see.") -> list[ChatMessage]:
    return [_said("user", question), _said("assistant", answer)]


def _calling(*calls: Call) -> ChatMessage:
    """A message with these calls, as an agent stores it."""
    _CALLER.script([Reply(calls=calls)])
    return _CALLER.chat([]).message


def _result(call_id: str, text: str) -> ChatMessage:
    return ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": call_id})


def test_the_table_is_true() -> None:
    """Every test that stands for a report is there, and every report has one."""
    rows = [line.split() for line in str(__doc__).splitlines() if re.match(r"[\w-]*#\d+ ", line)]
    assert len(rows) == 33
    for row in rows:
        named = [word for word in row if re.search(r"(^|::)test_", word)]
        assert named, row
        for name in named:
            file, _, test = name.rpartition("::")
            path = ROOT / file if "/" in file else HERE / (file or Path(__file__).name)
            assert f"def {test}(" in path.read_text("utf-8"), name


def _history(rolls: random.Random) -> list[ChatMessage]:
    """What an agent could have put: several rounds of calls at once, results in any order."""
    found = [_said("system", "Be polite.")] if rolls.random() < 0.5 else []
    for turn in range(rolls.randint(1, 8)):
        found.append(_said("user", "question " * rolls.randint(1, 12)))
        for round_ in range(rolls.randint(0, 3)):
            made = [
                Call("look_up", {"words": "w " * rolls.randint(0, 9)}, id=f"c{turn}.{round_}.{n}")
                for n in range(rolls.randint(1, 4))
            ]
            found.append(_calling(*made))
            results = [_result(str(one.id), "found " * rolls.randint(0, 25)) for one in made]
            found += rolls.sample(results, len(results))
        found.append(_said("assistant", "answer " * rolls.randint(1, 12)))
    return found


def _size(message: ChatMessage) -> int:
    """The tokens of a message: words, the name and arguments of each call, and its framing."""
    blocks: Sequence[Any] = message.blocks
    named = [one for one in blocks if one.block_type == "tool_call"]
    texts = [message.content or "", *(one.tool_name for one in named)]
    texts += [json.dumps(one.tool_kwargs) for one in named]
    beside: Sequence[Any] = message.additional_kwargs.get("tool_calls") or ()
    if not named:
        texts += [text for one in beside for text in one["function"].values()]
    return 4 + sum(default_counter().count(text) for text in texts)


@pytest.mark.parametrize("ends_with", ["answer", "question"])
async def test_random_histories(url: str, ends_with: str) -> None:
    """Of forty random histories of agents each is got as a list that providers take, within the
    limit when every part is counted, or refused with the part that is too large; with its system
    message and its newest question in it."""
    rolls = random.Random(f"histories that end with {ends_with}")
    refused = cut = 0
    async with Memory.open(url) as opened:
        for number in range(40):
            history = _history(rolls)
            if ends_with == "question":
                history.append(_said("user", "the newest"))
            memory = SecondCallMemory.from_defaults(
                user_id=f"u{number}", session_id="s", memory=opened, token_limit=LIMIT
            )
            await memory.aput_messages(history)
            try:
                shown = await memory.aget()
            except OverBudget:
                refused += 1
                continue
            assert check_history(shown) == []
            assert sum(map(_size, shown)) <= LIMIT
            newest = [one.content for one in history if one.role == "user"][-1]
            assert newest in contents(shown)
            assert roles(shown).count("system") == roles(history).count("system")
            assert await memory.aget_all() == history
            cut += len(shown) < len(history)
    assert refused < 10
    assert cut > 10


async def test_every_part_of_a_message_is_counted(url: str) -> None:
    """Arguments of calls, and thinking where the release has such blocks, take their room."""
    long = "word " * 300
    parts: list[list[ChatMessage]] = [
        [_calling(Call("write", {"text": long}, id="c1")), _result("c1", "ok")]
    ]
    thinking: Any = getattr(llms, "ThinkingBlock", None)
    if thinking is not None:
        blocks = [thinking(content=long), llms.TextBlock(text="so")]
        parts.append([ChatMessage(role="assistant", blocks=blocks)])
    for number, part in enumerate(parts):
        memory = memory_of(url, session_id=f"s{number}", token_limit=400, recall_limit=1)
        await memory.aput_messages([_said("user", "old"), *part, _said("assistant", "done")])
        await memory.aput(_said("user", "new"))
        shown = await memory.aget()
        assert sum(map(tokens_of, shown)) <= 400
        assert not any(one in shown for one in part)


async def test_a_store_is_made_once(url: str) -> None:
    """Of ten openings of a new file that write at once none fails, and nothing is lost."""

    async def first(number: int) -> None:
        async with Memory.open(url) as opened:
            memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
            await memory.aput(_said("user", f"m{number}"))

    await asyncio.gather(*(first(number) for number in range(10)))
    kept = contents(await memory_of(url, user_id="u", session_id="s").aget_all())
    assert sorted(map(str, kept)) == sorted(f"m{number}" for number in range(10))


async def test_a_history_that_is_refused_leaves_the_old_one(url: str) -> None:
    """Setting a history with a message that is too large for the record changes nothing."""
    memory = memory_of(url)
    await memory.aput_messages(_turn("one", "1"))
    with pytest.raises(TooLarge):
        await memory.aset([_said("user", "two"), _said("user", "word " * 2_000_000)])
    assert contents(await memory.aget_all()) == ["one", "1"]


async def test_a_state_of_one_run_is_not_in_the_next(url: str) -> None:
    """What a tool wrote into the state of a run is neither in the next run nor in its messages."""
    agent, llm = agent_of(["yes", "no"], initial_state={"seen": []})
    memory = memory_of(url)
    handler = start(agent, "one", memory=memory)
    await handler
    async with handler.ctx.store.edit_state() as state:
        state["state"]["seen"].append("secret")
    await run(agent, "two", memory=memory)
    assert "secret" not in str(contents(llm.requests[-1]))
    assert "secret" not in str(contents(await memory.aget_all()))


async def test_the_question_is_the_newest(url: str) -> None:
    """What is recalled answers the newest question, and not the one before it."""
    old = memory_of(url, session_id="old")
    await old.aput_messages([*_turn("My cat is Miso."), *_turn("My dentist is Dr Abel.")])
    memory = memory_of(url, shares={"recall": 0.4, "buffer": 0.6}, recall_limit=1)
    await memory.aput_messages(_turn("What is my cat called?", "Miso."))
    await memory.aput(_said("user", "Who is my dentist?"))
    shown = [str(one) for one in contents(await memory.aget())]
    recalled = next(one for one in shown if one.startswith("<memory"))
    assert "Abel" in recalled
    assert shown.index(recalled) == len(shown) - 2


async def test_a_window_of_one_is_one(url: str) -> None:
    """A window of one token is honoured: what does not fit into it is an error."""
    memory = memory_of(url, window=1, reserve=0)
    await memory.aput(_said("user", "hello there"))
    with pytest.raises(OverBudget):
        await memory.aget()


class _Counting(TokenCounter):
    """Counts how often it is asked."""

    id = "counting"
    asked = 0

    def count(self, text: str) -> int:
        """As the default."""
        self.asked += 1
        return default_counter().count(text)


async def test_a_get_counts_nothing_again() -> None:
    """With a thousand messages a get counts the tokens of a few texts, not of all of them."""
    counter = _Counting()
    async with Memory.open("memory://", counter=counter) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
        said = [one for n in range(500) for one in _turn(f"question {n}", f"answer {n}")]
        await memory.aput_messages(said)
        await memory.aget()
        await opened.flush()
        before = counter.asked
        for _ in range(5):
            await memory.aget()
        assert counter.asked - before < 250


@pytest.mark.parametrize("way", ["url", "name", "memory", "environment", "maker"])
async def test_each_way_to_name_a_store_leads_to_it(
    url: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is given by URL, by name, as an open memory, by the environment or by a
    function is the same store."""
    await memory_of(url, user_id="u", session_id="s").aput_messages(_turn("one", "1"))
    scope: dict[str, Any] = {"user_id": "u", "session_id": "s"}
    async with Memory.open(url) as opened:
        if way == "environment":
            monkeypatch.setenv("SECONDCALL_URL", url)
        secondcall.configure(way=url if way == "name" else lambda: Memory.open(url))
        named: dict[str, dict[str, Any]] = {
            "url": {"url": url},
            "memory": {"memory": opened},
            "environment": {},
        }
        memory = SecondCallMemory.from_defaults(**scope, **named.get(way, {"name": "way"}))
        assert contents(await memory.aget_all()) == ["one", "1"]
    secondcall.configure(way=None)


async def test_recalled_calls_are_text(url: str) -> None:
    """Calls of an earlier session that are recalled are words in a user's message, so that
    nothing of them waits for a result."""
    old = memory_of(url, session_id="old")
    call = _calling(Call("look_up", {"number": "A-17"}, id="c1"))
    await old.aput_messages(
        [
            _said("user", "Please look that up."),
            call,
            _result("c1", "parcel A-17 is in Ulm"),
            _said("assistant", "There you are."),
        ]
    )
    memory = memory_of(url)
    await memory.aput(_said("user", "Is parcel A-17 in Ulm?"))
    shown = await memory.aget()
    assert roles(shown) == ["user", "user"]
    assert "A-17 is in Ulm" in str(shown[0].content)
    assert check_history(shown) == []


@pytest.mark.parametrize("where", ["file", "process"])
async def test_a_refused_write_takes_no_other_with_it(url: str, where: str) -> None:
    """Of writes at once those that are refused take nothing of the others with them."""

    async def put(memory: SecondCallMemory, messages: Sequence[ChatMessage]) -> bool:
        try:
            await memory.aput_messages([*messages])
        except TooLarge:
            return False
        return True

    async with Memory.open(url if where == "file" else "memory://") as opened:
        memories = [
            SecondCallMemory.from_defaults(user_id="u", session_id=f"s{n}", memory=opened)
            for n in range(10)
        ]
        large = _said("user", "word " * 2_000_000)
        wanted = [[_said("user", "a"), *([large] if n % 2 else [])] for n in range(10)]
        kept = await asyncio.gather(*map(put, memories, wanted))
        assert kept == [n % 2 == 0 for n in range(10)]
        found = [len(await memory.aget_all()) for memory in memories]
        assert found == [int(one) for one in kept]
