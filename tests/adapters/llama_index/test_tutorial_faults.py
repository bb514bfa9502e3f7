"""The faults of the usual tutorial, none of which this memory has.

Each fault stands here with the tests that prove the opposite: those in this file, or, where the
truth was proved already, those named by their file. ``test_the_table_is_true`` looks all of them
up. Files without a folder are in this one.

T1   a class that is gone              test_no_removed_name_is_used
T2   memory= where nobody reads it     test_memory_is_given_to_run test_agents_calls.py::test_a_run_without_tools
T3   agent.chat(), a run without loop  test_no_removed_name_is_used test_memory.py::test_blocking_calls_without_a_loop
T4   plain attributes on a model       test_settings_are_given_once_and_by_name
T5   from_defaults with unknown names  test_settings_are_given_once_and_by_name test_memory.py::test_wrong_settings
T6   chat_history read and written     test_settings_are_given_once_and_by_name test_memory.py::test_setting_and_resetting
T7   put is skipped by agents          test_agents_calls.py::test_several_rounds_and_a_tool_that_fails test_agents_calls.py::test_tools_in_parallel
T8   cut inside a tool loop            test_a_tool_loop_is_never_cut_in_two tests/unit/shortterm/test_summary.py::test_every_so_many_turns_but_never_inside_a_tool_loop
T9   calls summarised as "None"        test_a_summary_is_written_from_calls_too
T10  the wrong messages are kept       test_system_text_and_the_newest_question_stay
T11  summaries of summaries            tests/unit/shortterm/test_summary.py::test_no_text_is_summarised_more_often_than_its_logarithm
T12  originals gone, a model in put    test_nobody_waits_for_a_summary tests/unit/shortterm/test_summary.py::test_a_failing_model_loses_nothing
T13  opening erases                    test_opening_changes_nothing
T14  the store that was given is idle  test_the_embedder_that_was_given_is_used
T15  an empty store is saved           test_the_embedder_that_was_given_is_used
T16  nothing survives a restart        test_the_embedder_that_was_given_is_used test_serialising.py::test_another_process_goes_on
T17  a folder for a file               test_a_folder_is_no_file
T18  no user scope                     test_memory.py::test_users_sessions_and_tenants_are_apart
T19  twice is two, nothing superseded  test_what_was_said_twice_is_told_once test_what_changed_is_told_as_it_is_now
T20  no score floor                    test_what_has_nothing_to_do_with_it_is_not_told
T21  an empty query                    test_retriever.py::test_an_empty_query_finds_nothing test_strange_questions_are_answered
T22  a request for each turn           test_texts_are_embedded_many_at_once test_retriever.py::test_filters_narrow_what_is_found
T23  recall stored as the user's words test_memory.py::test_what_earlier_sessions_said_is_recalled
T24  a_b, c is a, b_c                  test_tutorial_state.py::test_ids_that_look_alike_are_apart
T25  ids as paths                      test_tutorial_state.py::test_ids_are_no_paths tests/unit/memory/test_state.py::test_ids_of_any_characters_have_states
T26  lost updates                      test_tutorial_state.py::test_no_update_is_lost tests/acceptance/test_state_processes.py::test_no_update_of_any_process_is_lost
T27  half a file                       tests/acceptance/test_state_processes.py::test_a_state_outlives_its_process tests/acceptance/test_kill.py::test_nothing_acknowledged_is_lost
T28  last_updated set by load          test_tutorial_state.py::test_reading_is_no_update
T29  unknown keys end a rollback       tests/unit/state/test_body.py::test_what_a_newer_release_wrote_survives test_serialising.py::test_what_a_later_release_wrote
T30  dates, int keys, NaN              test_tutorial_state.py::test_values_keep_their_types tests/unit/state/test_codec.py::test_values_come_back_as_they_were
T31  ids filled in by the model        test_tools.py::test_no_tool_takes_an_identity test_tools.py::test_a_call_with_a_made_up_identity_is_refused
T32  slots: dict = None, any step      test_tutorial_state.py::test_a_model_is_told_what_is_possible
T33  a stale snapshot is saved         test_tutorial_state.py::test_a_turn_saves_no_snapshot tests/examples/test_llama_index.py::test_what_a_tool_changed_stays
T34  update_state takes anything       tests/examples/test_llama_index.py::test_update_state_refuses tests/unit/state/test_body.py::test_a_field_that_does_not_exist_is_refused
T35  the buffer is in the process      test_serialising.py::test_another_process_goes_on test_serialising.py::test_a_memory_that_is_no_longer_there
T36  no shared budget                  test_reported_faults.py::test_random_histories test_memory.py::test_the_window_is_the_models
T37  protocols that nobody keeps       test_tutorial_state.py::test_stores_are_what_they_say
T38  a lock that skips is no lock      test_tutorial_state.py::test_a_conflict_is_raised_and_not_skipped
T39  tests that rest on an embedder    test_a_useless_embedder_does_no_harm test_tests_share_no_place
T40  an interface of half a life       test_tutorial_state.py::test_states_expire_and_users_are_erased test_memory.py::test_a_store_that_is_down tests/unit/memory/test_state.py::test_a_state_of_a_newer_release_is_refused
"""  # noqa: E501 - a table, one fault a line

from __future__ import annotations

import ast
import asyncio
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from adapters.livekit.waiting import until
from adapters.llama_index.agents import agent_of, calls, contents, memory_of, roles, run, user_of
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import ChatMessage

import secondcall
from secondcall import InvalidValue, Memory, ModelError
from secondcall.adapters.llama_index import (
    FactsMemoryBlock,
    LlamaIndexEmbedder,
    RecallMemoryBlock,
    SecondCallChatStore,
    SecondCallMemory,
    SecondCallRetriever,
    StateMemoryBlock,
    close_places,
)
from secondcall.testing.fakes import WordAxisEmbedder
from secondcall.testing.llama_index import check_history
from secondcall.testing.models import ScriptedModel

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
EXAMPLES = ROOT / "examples" / "llama_index"
PAGES = ("docs/from-the-tutorial.md", "docs/how-to/llama-index.md")
SHARED = "gettempdir"
REMOVED = {"FunctionCallingAgentWorker", "FunctionCallingAgent", "AgentRunner", "from_tools"}


def _said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


def _turn(question: str, answer: str = "I see.") -> list[ChatMessage]:
    return [_said("user", question), _said("assistant", answer)]


def _code() -> Iterator[tuple[str, ast.Module]]:
    """What users read: the examples, and the Python of the pages."""
    for path in sorted(EXAMPLES.glob("*.py")):
        yield path.name, ast.parse(path.read_text("utf-8"))
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
            yield page, compile(block, page, "exec", flags=flags)


def _calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _named(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def test_the_table_is_true() -> None:
    """Every test that stands for a fault is there, and every fault has one."""
    rows = [line.split() for line in str(__doc__).splitlines() if re.match(r"T\d+ ", line)]
    assert [row[0] for row in rows] == [f"T{number}" for number in range(1, 41)]
    for row in rows:
        named = [word for word in row if re.search(r"(^|::)test_", word)]
        assert named, row
        for name in named:
            file, _, test = name.rpartition("::")
            path = HERE / (file or Path(__file__).name)
            path = ROOT / file if file.startswith("tests/") else path
            assert f"def {test}(" in path.read_text("utf-8"), name


def test_no_removed_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples can be imported with the installed release, neither they nor the pages use a
    name that is gone, and what they call ``chat`` is awaited."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    for path in EXAMPLES.glob("*.py"):
        __import__(path.stem)
        assert path.stem in sys.modules
    for name, tree in _code():
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not used & REMOVED, name
        awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}
        assert {one for one in _calls_in(tree) if _named(one) == "chat"} <= awaited, name


def test_memory_is_given_to_run() -> None:
    """In examples and pages ``memory=`` goes to each run, and to no agent's constructor, which
    would drop it."""
    runs = 0
    for name, tree in _code():
        for call in _calls_in(tree):
            given = {keyword.arg for keyword in call.keywords}
            if _named(call).endswith(("Agent", "AgentWorkflow")):
                assert "memory" not in given, name
            if ast.unparse(call.func).endswith("agent.run"):
                runs += 1
                assert given & {"memory", "ctx"}, name
    assert runs >= 4


async def test_settings_are_given_once_and_by_name(url: str) -> None:
    """A setting that does not exist is refused by its name, none can be changed behind the back
    of a running conversation, and the conversation is read and set by methods."""
    with pytest.raises(InvalidValue, match="summarizer_llm"):
        memory_of(url, summarizer_llm=object())
    memory = memory_of(url)
    for name in ("summarizer_llm", "chat_history", "window"):
        with pytest.raises(ValueError, match=name):
            setattr(memory, name, [])
    await memory.aset(_turn("one", "1"))
    assert contents(await memory.aget_all()) == ["one", "1"]


async def test_a_tool_loop_is_never_cut_in_two(url: str) -> None:
    """In a window that overflows again and again, turns of several rounds of tools are sent and
    kept whole: each request is one that a provider takes."""
    agent, llm = agent_of([])
    memory = memory_of(url, token_limit=700)
    sent = 0
    for number in range(12):
        llm.script([calls(1, 2), calls(3), f"answer {number} " + "word " * 30])
        await run(agent, f"question {number} " + "word " * 20, memory=memory)
        assert [check_history(request) for request in llm.requests] == [[]] * 3
        sent = len(llm.requests[0])
    assert len(await memory.aget_all()) == 12 * 7
    assert sent < 40


async def test_a_summary_is_written_from_calls_too(url: str) -> None:
    """The model that summarises is shown which tool was called with what, and what came of it."""
    model = ScriptedModel(lambda _: "- The user asked for numbers.")
    secondcall.configure(summarised=lambda: Memory.open(url, model=model, extract=False))
    agent, llm = agent_of([])
    memory = SecondCallMemory.from_defaults(
        user_id="u", session_id="s", name="summarised", token_limit=900
    )
    for number in range(12):
        llm.script([calls(number % 5), "done " + "word " * 30])
        await run(agent, f"please look number {number} up " + "word " * 20, memory=memory)
    close_places()
    secondcall.configure(summarised=None)
    shown = "\n".join(prompt.user for prompt in model.prompts)
    assert "look_up" in shown
    assert "found 1" in shown
    assert "None" not in shown


async def test_system_text_and_the_newest_question_stay(url: str) -> None:
    """However much is cut, what is sent begins with every system message and ends with the
    question that is being answered."""
    memory = memory_of(url, token_limit=600)
    await memory.aput(_said("system", "Be polite."))
    for number in range(30):
        await memory.aput_messages(_turn(f"question {number} " * 10, "answer " * 10))
    await memory.aput_messages([_said("system", "Speak German."), _said("user", "the newest")])
    shown = await memory.aget()
    assert contents(shown)[:2] == ["Be polite.", "Speak German."]
    assert roles(shown).count("system") == 2
    assert contents(shown)[-1] == "the newest"


async def test_nobody_waits_for_a_summary(url: str) -> None:
    """While the model that summarises does not answer, and after it has failed, messages are
    taken, lists are within the limit, and all that was said is kept."""
    gate = asyncio.Event()

    async def stuck(_: Any) -> ModelError:
        await gate.wait()
        return ModelError("no model")

    model = ScriptedModel(stuck)
    async with Memory.open(url, model=model, extract=False) as opened:
        memory = SecondCallMemory.from_defaults(
            user_id="u", session_id="s", memory=opened, token_limit=900
        )
        await memory.aput_messages(_turn("My order number is A-17."))
        for number in range(30):
            await memory.aput_messages(_turn(f"question {number} " * 8, "word " * 20))
            await memory.aget()
        await until(lambda: bool(model.prompts))
        assert len(await memory.aget_all()) == 62
        gate.set()
        await memory.aput(_said("user", "What is my order number?"))
        assert "A-17" in str(contents(await memory.aget()))
        assert len(await memory.aget_all()) == 63


async def test_opening_changes_nothing(url: str) -> None:
    """Making every object of this package over a store, and closing it, writes nothing."""
    memory = memory_of(url)
    await memory.aput_messages(_turn("My cat is Miso."))

    async def number(user: Any) -> str:
        return str(await (await user.session("s-1")).items())

    before = await user_of(memory, number)
    for _ in range(3):
        close_places()
        made: dict[str, Any] = {"user_id": "u-1", "url": url}
        SecondCallChatStore(**made)
        SecondCallRetriever(**made)
        for block in (RecallMemoryBlock, FactsMemoryBlock, StateMemoryBlock):
            assert isinstance(await block(**made).aget([]), str)
        again = memory_of(url)
        assert contents(await again.aget()) == ["My cat is Miso.", "I see."]
    assert await user_of(memory_of(url), number) == before


class _Words(BaseEmbedding):
    """Words of a few meanings; it writes down what it is asked for."""

    def __init__(self) -> None:
        super().__init__(model_name="words")
        self._words = WordAxisEmbedder(["violin fiddle", "teacher tutor", "cat", "order"])

    @property
    def seen(self) -> list[str]:
        """Every text."""
        return self._words.seen

    def _get_text_embedding(self, text: str) -> list[float]:
        self.seen.append(text)
        return [*map(float, self._words._vector(text))]  # pyright: ignore[reportPrivateUsage] - its blocking form

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


async def test_the_embedder_that_was_given_is_used(url: str) -> None:
    """The embedding that a memory was opened with is asked for what was said and for what is
    asked, and after a restart the words are found by their meaning, and are the words."""
    first, second = _Words(), _Words()
    for words in (first, second):
        secondcall.configure(
            own=lambda words=words: Memory.open(url, embedder=LlamaIndexEmbedder(words))
        )
        session_id = "old" if words is first else "new"
        memory = SecondCallMemory.from_defaults(user_id="u", session_id=session_id, name="own")
        if words is first:
            await memory.aput_messages(_turn("Mrs Okonkwo is my violin teacher."))
        await memory.aput(_said("user", "Who is the tutor for the fiddle?"))
        shown = await memory.aget()
        close_places()
    secondcall.configure(own=None)
    assert "Mrs Okonkwo is my violin teacher." in " ".join(first.seen)
    assert "Who is the tutor for the fiddle?" in " ".join(second.seen)
    assert "Mrs Okonkwo is my violin teacher." in str(shown[0].content)


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A URL that leads to a folder is an error that names it, and the folder stays as it is."""
    memory = memory_of(f"sqlite:///{tmp_path}")
    with pytest.raises(secondcall.SecondcallError, match=re.escape(tmp_path.name)):
        await memory.aput(_said("user", "hello"))
    assert os.listdir(tmp_path) == []


async def test_what_was_said_twice_is_told_once(url: str) -> None:
    """A sentence that was said in two sessions is found once, and a message that is put again
    with its id is not there twice."""
    for number in range(2):
        await memory_of(url, session_id=f"old-{number}").aput_messages(_turn("My cat is Miso."))
    found = await SecondCallRetriever(user_id="u-1", url=url).aretrieve("What is my cat called?")
    assert sum("My cat is Miso." in one.node.get_content() for one in found) == 1
    block = RecallMemoryBlock(user_id="u-2", url=url)
    for _ in range(2):
        await block.aput(_turn("My dog is Rex."), session_id="s")
    kept = SecondCallChatStore(user_id="u-2", url=url)
    assert contents(await kept.aget_messages("s")) == ["My dog is Rex.", "I see."]


async def test_what_changed_is_told_as_it_is_now(url: str) -> None:
    """After vegetarian became vegan, the fact is vegan, and the old words say that they ended."""
    for number, diet in enumerate(("vegetarian", "vegan")):
        memory = memory_of(url, session_id=f"old-{number}")
        said = _turn(f"I am {diet} as for my diet.")
        await memory.aput_messages(said)

        async def state(user: Any, session_id: str = f"old-{number}", diet: str = diet) -> None:
            items = await (await user.session(session_id)).items()
            await user.remember("diet", diet, kind="preference", sources=[items[0].key])

        await user_of(memory, state)
    memory = memory_of(url)
    await memory.aput(_said("user", "What is my diet?"))
    shown = str(contents(await memory.aget()))
    assert '"diet" = "vegan"' in shown
    assert '"diet" = "vegetarian"' not in shown
    for line in shown.split("\\n"):
        assert "I am vegetarian" not in line or re.search(r"\(diet: ended|diet is vegan", line)


async def test_what_has_nothing_to_do_with_it_is_not_told(url: str) -> None:
    """A question that nothing answers brings no memory, also where there is only one."""
    await memory_of(url, session_id="old").aput_messages(_turn("My cat is Miso."))
    found = await SecondCallRetriever(user_id="u-1", url=url).aretrieve(
        "Which gearbox does the lorry have?"
    )
    assert found == []


async def test_strange_questions_are_answered(url: str) -> None:
    """A question without words, of signs alone or of 100,000 words fails no get."""
    await memory_of(url, session_id="old").aput_messages(_turn("My cat is Miso."))
    memory = memory_of(url)
    for question in ("", " ", "?!", "\u200b", "cat " * 100_000):
        assert isinstance(await memory.aget(question), list)


class _Counted(WordAxisEmbedder):
    """Counts the requests for what was said."""

    requests = 0

    async def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """As ever."""
        self.requests += 1
        return await super().embed_documents(texts)


async def test_texts_are_embedded_many_at_once(url: str) -> None:
    """Six hundred messages are embedded in a few requests, and greetings in none."""
    embedder = _Counted(["cat", "order"])
    async with Memory.open(url, embedder=embedder) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", memory=opened)
        said = [one for n in range(200) for one in _turn(f"order {n} is late", f"noted {n}")]
        await memory.aput_messages([*_turn("Hello!", "Hello!"), *said])
        await memory.aput_messages(_turn("Thank you!", "You are welcome!") * 50)
        await opened.user("u").recall("which order is late?")
        await opened.flush()
    assert len(embedder.seen) > 300
    assert embedder.requests < 30
    assert not {"Hello!", "Thank you!"} & set(embedder.seen)


async def test_a_useless_embedder_does_no_harm(url: str) -> None:
    """With an embedding for which all texts are alike, what was said is found by its words."""
    constant = LlamaIndexEmbedder(MockEmbedding(embed_dim=8), id="mock:constant")
    async with Memory.open(url, embedder=constant) as opened:
        memory = SecondCallMemory.from_defaults(user_id="u", session_id="a", memory=opened)
        for text in ("I take the train to work.", "My cat is Miso.", "The lamp is broken."):
            await memory.aput_messages(_turn(text))
        found = await opened.user("u").recall("What is my cat called?", limit=1)
        assert [getattr(one.item, "text", "") for one in found.items] == ["My cat is Miso."]


def test_tests_share_no_place() -> None:
    """No test of the adapter uses a path that others share, and what is said of another process is
    said of one."""
    for path in [*HERE.glob("*.py"), ROOT / "tests" / "examples" / "test_llama_index.py"]:
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
        assert not any(isinstance(one, ast.Attribute) and one.attr == SHARED for one in nodes), path
        texts = [str(one.value) for one in nodes if isinstance(one, ast.Constant)]
        assert not any(one.startswith(os.path.join(os.sep, "tmp", "")) for one in texts), path
    assert "subprocess" in (HERE / "test_serialising.py").read_text("utf-8")
