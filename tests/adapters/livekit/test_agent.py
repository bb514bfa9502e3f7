"""Every agent of a session knows the caller, whoever hands over to whom."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

import pytest
from adapters.livekit.remembered import (
    ASKED,
    HELD,
    ObedientStore,
    a_caller,
    looked_up,
    remembered_in,
    texting,
)
from adapters.livekit.waiting import until
from livekit.agents import Agent, AgentSession, AgentTask, ModelSettings, RunContext, llm
from livekit.agents.llm import function_tool

from secondcall import UserMemory
from secondcall.adapters.livekit.agent import (
    MemoryAgent,
    attach_memory,
    handoff_context,
    with_memory,
)
from secondcall.adapters.livekit.lookup import LookupOptions
from secondcall.adapters.livekit.preload import Preloaded, preload
from secondcall.adapters.livekit.source import CallMemory
from secondcall.errors import InvalidValue
from secondcall.testing.livekit import Reply, ScriptedLLM

pytestmark = pytest.mark.anyio

PATIENT = LookupOptions(deadline_seconds=5.0)


async def _source(user: UserMemory, **more: Any) -> CallMemory:
    await user.remember("seat preference", "aisle", kind="preference")
    loaded = await preload(user, deadline_seconds=5.0)
    assert loaded.missing is None
    return CallMemory(user, preloaded=loaded, options=PATIENT, **more)


def _brief_of(chat_ctx: llm.ChatContext) -> list[str]:
    return [one.text_content or "" for one in remembered_in(chat_ctx, "brief")]


class _Billing(Agent):
    def __init__(self, chat_ctx: llm.ChatContext | None = None) -> None:
        super().__init__(instructions="You are billing.", chat_ctx=chat_ctx)

    async def on_enter(self) -> None:
        await self.session.generate_reply(instructions="Say who you are.")


class _Desk(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="You are the desk.")

    @function_tool
    async def to_billing(self) -> tuple[Agent, str]:
        """Hand over."""
        return _Billing(), "Handed over."

    @function_tool
    async def to_billing_with_words(self) -> tuple[Agent, str]:
        """Hand over with the conversation."""
        return _Billing(await handoff_context(self)), "Handed over."


@pytest.mark.parametrize("how", ["agent", "session", "both"])
async def test_the_next_agent_of_a_handoff_knows_the_caller(how: str) -> None:
    """An agent that a tool returns has the brief once, before its first word, and what the caller
    says to it is looked up; whether memory was given to the first agent or to the session."""
    async with a_caller() as user:
        source = await _source(user)
        desk = _Desk()
        if how != "session":
            with_memory(desk, source)
        model = ScriptedLLM(
            ["Hello.", Reply(tools=[("to_billing", {})]), "I am billing.", "Indeed.", "4C.", "End."]
        )
        session = AgentSession[None](llm=model, vad=None, turn_handling={"turn_detection": None})
        if how != "agent":
            attach_memory(session, source)
        await session.start(desk)
        await session.run(user_input="hello")
        await session.run(user_input="I have a question about my bill")
        assert type(session.current_agent).__name__ == "_Billing"
        assert isinstance(session.current_agent, _Billing)
        assert session.current_agent.id == "_billing"
        await session.run(user_input=ASKED)
        await session.aclose()
        for request in model.requests:
            assert len(_brief_of(request)) == 1
            assert "aisle" in _brief_of(request)[0]
        by_billing = next(one for one in model.requests if "You are billing." in str(one.items))
        assert by_billing.items[0].id == "lk.agent_task.instructions"
        assert HELD in str(looked_up(model))


async def test_words_that_are_handed_over_bring_the_brief_once() -> None:
    """A context passed on by the application holds the brief already; it is not doubled."""
    async with a_caller() as user:
        desk = with_memory(_Desk(), await _source(user))
        model = ScriptedLLM([Reply(tools=[("to_billing_with_words", {})]), "Billing.", "Yes."])
        async with texting(model, desk) as session:
            await session.run(user_input="My account number is 4711")
            heard = str(session.current_agent.chat_ctx.items)
        assert "4711" in heard
        assert "You are the desk." not in heard
        assert [len(_brief_of(one)) for one in model.requests] == [1] * len(model.requests)


async def test_agents_that_the_application_puts_in_know_the_caller() -> None:
    """``update_agent``, twice in a row, gives both agents the brief, the one that is replaced at
    once too."""
    async with a_caller() as user:
        first = with_memory(Agent(instructions="One."), await _source(user))
        second, third = _Billing(), _Billing()
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, first) as session:
            session.update_agent(second)
            session.update_agent(third)
            await until(lambda: len(_brief_of(third.chat_ctx)) == 1)
            await session.run(user_input="hello")
        assert len(_brief_of(second.chat_ctx)) == 1
        assert all(len(_brief_of(one)) == 1 for one in model.requests)


class _Name(AgentTask[str]):
    def __init__(self) -> None:
        super().__init__(instructions="Get the name.")

    async def on_enter(self) -> None:
        await self.session.generate_reply(instructions="Ask for the name.")

    @function_tool
    async def got(self, name: str) -> None:
        """Got it.

        Args:
            name: the name
        """
        self.complete(name)


class _Asking(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="You ask.")
        self.name = ""

    @function_tool
    async def ask_name(self, context: RunContext[None]) -> str:
        """Ask."""
        del context
        self.name = await _Name()
        return f"The name is {self.name}."


async def test_tasks_know_the_caller_and_give_back_no_second_brief() -> None:
    """An ``AgentTask`` has the brief, the caller's words to it are looked up, and when it is merged
    back its agent still has one brief and nothing that was looked up."""
    async with a_caller() as user:
        agent = with_memory(_Asking(), await _source(user))
        model = ScriptedLLM(
            [
                Reply(tools=[("ask_name", {})]),
                "Your name?",
                Reply(tools=[("got", {"name": "Ana"})]),
                "Thank you Ana.",
                "More.",
            ]
        )
        async with texting(model, agent) as session:
            await session.run(user_input="hello")
            assert isinstance(session.current_agent, _Name)
            await session.run(user_input=ASKED)
            await until(lambda: agent.name == "Ana")
            await until(lambda: len(model.requests) >= 4)
        assert [len(_brief_of(one)) for one in model.requests] == [1] * len(model.requests)
        assert HELD in str(looked_up(model, 2))
        assert len(_brief_of(agent.chat_ctx)) == 1
        assert remembered_in(agent.chat_ctx, "lookup") == []


class _Greeting(Agent):
    def __init__(self) -> None:
        super().__init__(instructions="Greet.")
        self.entered = False

    async def on_enter(self) -> None:
        self.entered = True
        await self.session.generate_reply(instructions="Greet the caller.")


async def test_no_greeting_before_the_brief() -> None:
    """While the brief is being loaded neither ``on_enter`` runs nor is the model asked; the first
    request has the brief, and the store is read no more for it."""
    store = ObedientStore()
    async with a_caller(store) as user:
        await user.remember("seat preference", "aisle", kind="preference")
        store.gate.clear()
        source = CallMemory(
            user,
            preloaded=preload(user, deadline_seconds=30.0),
            options=PATIENT,
            gate_seconds=30.0,
        )
        agent = with_memory(_Greeting(), source)
        model = ScriptedLLM(["Good morning, Ana."])
        async with texting(model, agent) as session:
            early = session.generate_reply(instructions="Now.")
            await asyncio.sleep(0.05)
            assert not agent.entered
            assert model.requests == []
            store.gate.set()
            await early
            await until(lambda: len(model.requests) == 2)
            await user.flush()
            reads = store.reads
            await session.generate_reply(instructions="And now?")
            assert store.reads == reads
        assert [len(_brief_of(one)) for one in model.requests] == [1, 1, 1]
        assert agent.entered
        assert source.lookup.searches == 0


async def test_a_brief_that_does_not_come_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When the gate's time is over the agent greets without the brief, and when it comes later the
    next reply has it."""
    store = ObedientStore()
    async with a_caller(store) as user:
        await user.remember("seat preference", "aisle", kind="preference")
        store.gate.clear()
        loading = preload(user, deadline_seconds=30.0)
        source = CallMemory(user, preloaded=loading, options=PATIENT, gate_seconds=0.05)
        model = ScriptedLLM(["Good morning.", "Yes."])
        with caplog.at_level(logging.WARNING, "secondcall.livekit"):
            async with texting(model, with_memory(_Greeting(), source)) as session:
                await until(lambda: len(model.requests) == 1)
                assert _brief_of(model.requests[0]) == []
                store.gate.set()
                await until(lambda: bool(source.preloaded and source.preloaded.brief))
                await session.run(user_input="hello")
        assert len(_brief_of(model.requests[-1])) == 1
    assert "the call begins before its memory was loaded" in caplog.text


async def test_a_brief_that_fails_is_not_waited_for() -> None:
    """Loading that raises is as no memory at all."""

    async def broken() -> Preloaded:
        raise RuntimeError("broken")

    async with a_caller() as user:
        source = CallMemory(user, preloaded=broken(), options=PATIENT, gate_seconds=30.0)
        model = ScriptedLLM(["Good morning."])
        async with texting(model, with_memory(_Greeting(), source)):
            await until(lambda: len(model.requests) == 1)
        assert _brief_of(model.requests[0]) == []


async def test_who_is_calling_may_become_known_in_the_call() -> None:
    """What is loaded anew replaces what was loaded before, before the next reply."""
    async with a_caller() as user:
        source = CallMemory(user, options=PATIENT)
        model = ScriptedLLM(["Hello.", "Hello Ana."])
        async with texting(model, with_memory(Agent(instructions="x"), source)) as session:
            await session.run(user_input="hello")
            await user.remember("seat preference", "aisle", kind="preference")
            source.loaded(await preload(user, deadline_seconds=5.0))
            await session.run(user_input="hello again")
        assert [len(_brief_of(one)) for one in model.requests] == [0, 1]


async def test_an_agent_that_is_used_again_forgets_the_caller_before() -> None:
    """The same agent object in the call of somebody else has nothing of the first caller's
    memory, and looks into the second one's."""
    async with a_caller() as ana:
        agent = Agent(instructions="Be brief.")
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, with_memory(agent, await _source(ana))) as session:
            await session.generate_reply(instructions="Greet.")
        assert len(_brief_of(model.requests[0])) == 1
        other = CallMemory(None, options=PATIENT)
        async with texting(model, with_memory(agent, other)) as session:
            await session.run(user_input=ASKED)
        assert _brief_of(model.requests[-1]) == []
        assert HELD not in str(model.requests[-1].items)


async def test_a_session_that_is_started_again_still_remembers() -> None:
    """After ``aclose`` the same session and agent can be started again, with their memory."""
    async with a_caller() as user:
        agent = with_memory(Agent(instructions="Be brief."), await _source(user))
        model = ScriptedLLM(lambda _: "Yes.")
        session = AgentSession[None](llm=model, vad=None, turn_handling={"turn_detection": None})
        for number in range(2):
            await session.start(agent)
            await session.run(user_input=ASKED)
            await session.aclose()
            assert len(looked_up(model)) == 1
            assert len(_brief_of(model.requests[-1])) == 1
            assert len(model.requests) == number + 1


class _Own(Agent):
    """Has nodes and hooks of its own."""

    def __init__(self) -> None:
        super().__init__(instructions="Own.", id="my-own")
        self.log: list[str] = []

    async def on_enter(self) -> None:
        self.log.append("enter")

    async def on_exit(self) -> None:
        self.log.append("exit")

    async def llm_node(
        self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> AsyncIterable[Any]:
        self.log.append(f"{len(remembered_in(chat_ctx, 'lookup'))} found")
        async for chunk in Agent.default.llm_node(self, chat_ctx, tools, model_settings):
            yield chunk


async def test_an_agents_own_nodes_run_and_see_the_memory() -> None:
    """Its ``llm_node`` is called with what was found in its context, its hooks are called, and its
    class, name and id are its own."""
    async with a_caller() as user:
        agent = with_memory(_Own(), await _source(user))
        assert isinstance(agent, _Own)
        assert (type(agent).__name__, agent.id) == ("_Own", "my-own")
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
        assert agent.log == ["enter", "1 found", "exit"]
        assert "4C." in (session.history.messages()[-1].text_content or "")


class _Text(Agent):
    async def llm_node(
        self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> str:
        del tools, model_settings
        return f"{len(remembered_in(chat_ctx, 'lookup'))} found"


async def test_a_node_that_gives_text_is_served() -> None:
    """An ``llm_node`` that returns a text instead of a stream has memory too."""
    async with a_caller() as user:
        agent = with_memory(_Text(instructions="x"), await _source(user))
        async with texting(ScriptedLLM([]), agent) as session:
            await session.run(user_input=ASKED)
            assert session.history.messages()[-1].text_content == "1 found"


async def test_an_agent_class_may_take_its_memory_itself() -> None:
    """``MemoryAgent`` has memory from its making, and is a plain agent without any."""

    class Receptionist(MemoryAgent):
        pass

    async with a_caller() as user:
        agent = Receptionist(instructions="Be brief.", memory=await _source(user))
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
        assert len(looked_up(model)) == 1
        bare = ScriptedLLM(["?"])
        async with texting(bare, Receptionist(instructions="Be brief.")) as session:
            await session.run(user_input=ASKED)
        assert looked_up(bare) == []


async def test_memory_is_given_to_a_session_that_runs_already() -> None:
    """Attached in mid-call, memory reaches the agent that is at work; attached again the same
    memory is one, and another one takes its place."""
    async with a_caller() as user:
        source = await _source(user)
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, Agent(instructions="x")) as session:
            await session.run(user_input=ASKED)
            assert looked_up(model) == []
            attached = attach_memory(session, source)
            assert attach_memory(session, source) is attached
            await session.run(user_input=ASKED)
            assert len(looked_up(model)) == 1
            assert len(_brief_of(model.requests[-1])) == 1
            attach_memory(session, CallMemory(None))
            await session.run(user_input=ASKED)
            assert looked_up(model) == []
            assert _brief_of(model.requests[-1]) == []


async def test_the_owner_is_told_of_the_session_once() -> None:
    """``on_session`` is called once for a session, before the application's ``on_enter``, though
    agents come and go."""
    async with a_caller() as user:
        seen: list[object] = []
        source = await _source(user, on_session=seen.append)
        agent = with_memory(_Greeting(), source)
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, agent) as session:
            await until(lambda: len(model.requests) == 1)
            session.update_agent(_Billing())
            await until(lambda: len(model.requests) == 2)
            assert seen == [session]


def test_layers_are_made_once_for_a_class() -> None:
    """Two agents of a class have the same layered class, and subclasses have their own."""
    source = CallMemory(None)

    class Derived(_Own):
        pass

    one, two = with_memory(_Own(), source), with_memory(_Own(), source)
    other = with_memory(Derived(), source)
    assert type(one) is type(two)
    assert type(with_memory(one, source)) is type(two)
    assert type(other) is not type(one)
    assert isinstance(other, Derived)


@dataclass
class _Data(Agent):
    name: str

    def __post_init__(self) -> None:
        super().__init__(instructions="Data.")


async def test_agents_that_are_dataclasses_have_memory() -> None:
    """An agent that cannot be hashed is given memory like any other."""
    async with a_caller() as user:
        agent = with_memory(_Data("x"), await _source(user))
        model = ScriptedLLM(["4C."])
        async with texting(model, agent) as session:
            await session.run(user_input=ASKED)
        assert len(looked_up(model)) == 1


class _Strict(Agent):
    def __init_subclass__(cls, *, wanted: int) -> None:
        del wanted
        super().__init_subclass__()


async def test_a_class_that_allows_no_layer_is_refused_and_harms_no_call() -> None:
    """``with_memory`` says which class and what to do; as the next agent of a handoff it works
    without memory."""
    async with a_caller() as user:
        source = await _source(user)
        with pytest.raises(InvalidValue, match="_Strict"):
            with_memory(_Strict(instructions="x"), source)
        model = ScriptedLLM(lambda _: "Yes.")
        async with texting(model, with_memory(Agent(instructions="x"), source)) as session:
            strict = _Strict(instructions="You are strict.")
            session.update_agent(strict)
            await until(lambda: "You are strict." in str(strict.chat_ctx.items))
            await session.run(user_input=ASKED)
        assert len(model.requests) == 1


class _Broken(CallMemory):
    """A source whose every part fails."""

    @property
    def lookup(self) -> Any:
        """Fails."""
        raise TypeError("odd")

    @property
    def preloaded(self) -> Any:
        """Fails."""
        raise TypeError("odd")


async def test_a_source_that_fails_everywhere_harms_no_call() -> None:
    """Not even a ``TypeError`` in a handler, which LiveKit passes on, reaches the session: turns
    are answered and kept, and it closes."""
    source = _Broken(None)
    model = ScriptedLLM(lambda _: "Yes.")
    session = AgentSession[None](llm=model, vad=None, turn_handling={"turn_detection": None})
    attach_memory(session, source)
    await session.start(Agent(instructions="x"))
    await session.run(user_input=ASKED)
    session.update_agent(_Billing())
    await session.run(user_input=ASKED)
    await session.aclose()
    said = [one.text_content for one in session.history.messages() if one.role == "user"]
    assert said == [ASKED, ASKED]


async def test_nothing_remembered_stands_in_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    """No log record of secondcall's holds what was said or remembered, failures included."""
    store = ObedientStore()
    with caplog.at_level(logging.DEBUG, "secondcall"):
        async with a_caller(store) as user:
            agent = with_memory(_Desk(), await _source(user))
            model = ScriptedLLM(lambda _: "Yes.")
            async with texting(model, agent) as session:
                await session.run(user_input=ASKED)
                await user.flush()  # what works in the background is not what is asked here
                store.error = RuntimeError(HELD)
                await session.run(user_input=ASKED)
    ours = [str(vars(one)) for one in caplog.records if one.name.startswith("secondcall")]
    assert ours
    assert not any("aisle" in one for one in ours)
