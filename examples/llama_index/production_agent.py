"""The production agent: all the layers behind one object, one for each conversation.

python production_agent.py [store URL]    the default is SECONDCALL_URL, or sqlite:///tutorial.db

Buffer, summary, recall, facts and state are one memory with one budget. The state can be kept on
another store by naming it, and nothing else changes:

SECONDCALL_STATE=postgresql://... | redis://... | dynamodb://...    python production_agent.py

The two conversations of ``main`` know nothing of each other but what is in the stores.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from baseline import order_status
from chosen_model import chosen
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import LLM, ChatMessage
from llama_index.core.workflow import Context
from workflow_tools import REFUND

from secondcall import (
    AgentState,
    Memory,
    MemoryTools,
    SessionMemory,
    StateHandle,
    StateTools,
)
from secondcall.adapters.llama_index import (
    SecondCallMemory,
    StateToolRetriever,
    bound_running_turn,
    clear_failed_run,
    function_tools,
)
from secondcall.testing.llama_index import Call, Reply

PROMPT = (
    "You help the customers of a shop. Look orders up before you speak of them, move a refund on "
    "with the tools, and say as remembered what you remember."
)


@dataclass(frozen=True)
class Case:
    """What this application keeps of a conversation, beside the workflow's step and slots."""

    language: str = "en"
    priority: int = 0


class ProductionAgent:
    """An agent for one conversation of one user: ``async with ProductionAgent.open(...)``.

    It writes nothing when a turn ends: messages are recorded as they come, the state changes by
    ``update_state`` and by the model's tools, each in a step of its own that loses no other one's.
    """

    def __init__(self, session: SessionMemory, store: Memory, llm: LLM) -> None:
        self._session = session
        self._steps = StateTools(session, workflows=[REFUND])
        self._facts = MemoryTools(session)
        tools = function_tools(self._facts.tools())
        self._agent = bound_running_turn(
            FunctionAgent(
                llm=llm,
                tools=[order_status, *tools],
                tool_retriever=StateToolRetriever(self._steps),
                system_prompt=PROMPT,
            )
        )
        self.memory = SecondCallMemory.from_defaults(
            user_id=session.user.user_id,
            session_id=session.session_id,
            memory=store,
            llm=llm,
            system_prompt=PROMPT,
            tools=[order_status, *tools],
        )

    @classmethod
    async def open(cls, store: Memory, *, user_id: str, session_id: str, llm: LLM) -> Self:
        """The agent of a conversation, new or begun in another process.

        ``user_id`` comes from whoever authenticated the user, never from a model.
        """
        return cls(await store.user(user_id).session(session_id), store, llm)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._facts.aclose()

    @property
    def state(self) -> StateHandle[Case]:
        """The state of this conversation."""
        return self._session.state.of(Case)

    async def chat(self, words: str) -> str:
        """The agent's answer. What a failed run had done is recorded, and its question is not
        shown to the model again."""
        ctx: Context = Context(self._agent)
        try:
            return str(await self._agent.run(user_msg=words, memory=self.memory, ctx=ctx))
        except Exception:  # whatever the run failed with; raised on
            await clear_failed_run(ctx)
            raise

    async def update_state(
        self,
        *,
        step: str | None = None,
        slots: Mapping[str, object] | None = None,
        **fields: object,
    ) -> AgentState[Case]:
        """Change what the host knows better than the model: fields of ``Case``, slots, the step.

        Raises: ``InvalidValue`` for any other name, ids among them, and for values that do not
        fit; ``IllegalTransition`` and its kin for a step that the workflow does not allow. Then
        nothing has changed.
        """

        def change(state: AgentState[Case]) -> AgentState[Case]:
            state = state.with_fields(**fields)
            if step is not None:
                return state.advance(step, slots=slots)
            return state.fill(**slots) if slots else state

        return await self.state.update(change)

    async def confirm(self, step: str, shown: AgentState[Any]) -> None:
        """The user confirmed the step, beside the state that was shown."""
        await self._steps.confirm(step, shown=shown)


def scripted(messages: Sequence[ChatMessage]) -> Reply | str:
    """What a model would say: it remembers a seat, and later knows it, and the refund's step."""
    words = next(str(one.content) for one in reversed(messages) if one.role == "user")
    done = messages[-1].role == "tool"
    shown = " ".join(str(message.content) for message in messages)
    if "prefer" in words:
        wanted = {"name": "delivery time", "value": "evenings", "kind": "preference"}
        return "Evenings, noted." if done else Reply(calls=[Call("remember", wanted)])
    if "refund" in words:
        wanted = {"start": "refund"}
        return "Started." if done else Reply(calls=[Call("update_workflow_state", wanted)])
    evenings = "in the evening" if "evenings" in shown else "at any time"
    step = "in review" if '"review"' in shown else "not begun"
    return f"You like deliveries {evenings}; the refund is {step}."


async def first_call(store: Memory) -> None:
    """A preference, and a refund that the host moves on."""
    agent = await ProductionAgent.open(
        store, user_id="ana", session_id="call-1", llm=chosen(scripted)
    )
    async with agent:
        print(await agent.chat("I prefer deliveries in the evening."))
        print(await agent.chat("Please start a refund for order A-17."))
        state = await agent.state.update(
            lambda state: state.start(REFUND) if state.ended else state
        )
        state = await agent.update_state(
            step="review" if state.step == "details" else None,
            slots={"order": "A-17", "amount": "40"},
            language="de",
        )
        print(state.step, dict(state.slots), state.fields)
        mistakes: list[dict[str, Any]] = [{"prioritty": 1}, {"user_id": "bob"}]
        for wrong in mistakes:
            try:
                await agent.update_state(**wrong)
            except ValueError as error:
                print(error)


async def second_call(store: Memory) -> None:
    """The same conversation in another process, and another conversation of the same user."""
    for session_id in ("call-1", "call-2"):
        agent = await ProductionAgent.open(
            store, user_id="ana", session_id=session_id, llm=chosen(scripted)
        )
        async with agent:
            print(session_id, await agent.chat("What do you know of me?"))


async def main() -> None:
    """Both calls, each with the stores opened anew."""
    url = os.environ.get("SECONDCALL_URL") or "sqlite:///tutorial.db"
    url = sys.argv[1] if len(sys.argv) > 1 else url
    state = os.environ.get("SECONDCALL_STATE") or None
    for call in (first_call, second_call):
        async with Memory.open(url, state=state, workflows=[REFUND]) as store:
            await call(store)


if __name__ == "__main__":
    asyncio.run(main())
