"""Workflow tools: the model moves a workflow on, as far as the workflow allows it.

python workflow_tools.py [store URL]    the default is sqlite:///tutorial.db

The tools are bound to one session of one user: none of them takes an id. Their parameters are the
steps and slots that are possible now. What is not possible changes nothing and is answered with
what is; the step that moves money needs a confirmation that only the host can give.
"""

from __future__ import annotations

import asyncio
import json
import sys
from decimal import Decimal

from chosen_model import chosen
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult

from secondcall import Memory, Slot, StateTools, Step, To, Workflow
from secondcall.adapters.llama_index import SecondCallMemory, StateToolRetriever
from secondcall.testing.llama_index import Call, Reply

REFUND = Workflow(
    "refund",
    steps={
        "details": Step(description="which order, how much"),
        "review": Step(requires=["order", "amount"], description="before the user confirms"),
        "paid": Step(terminal=True),
        "cancelled": Step(terminal=True),
    },
    transitions={
        "details": "review",
        "review": ["details", To("paid", needs_confirmation=True)],
        "*": "cancelled",
    },
    slots={
        "order": str,
        "amount": Slot(Decimal, check=lambda amount: amount > 0 or "more than nothing"),
    },
    cancel="cancelled",
)
SCRIPT = [
    Reply(calls=[Call("update_workflow_state", {"start": "refund"})]),
    Reply(calls=[Call("update_workflow_state", {"step": "paid"})]),
    Reply(calls=[Call("update_workflow_state", {"step": "review", "user_id": "bob"})]),
    Reply(
        calls=[
            Call(
                "update_workflow_state",
                {"step": "review", "slots": {"order": "A-17", "amount": "40"}},
            )
        ]
    ),
    Reply(calls=[Call("update_workflow_state", {"step": "paid"})]),
    "40 euros for A-17: shall I pay them back?",
    Reply(calls=[Call("update_workflow_state", {"step": "paid"})]),
    "They are on their way.",
]


async def run(agent: FunctionAgent, memory: SecondCallMemory, words: str) -> None:
    """One turn, with what the tools answered."""
    handler = agent.run(user_msg=words, memory=memory)
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            told = json.loads(event.tool_output.content)
            print(f"  {event.tool_kwargs} -> {told.get('refused') or told['step']}")
    print(await handler)


async def conversation(store: Memory) -> None:
    """The user asks, confirms to the host, and asks again."""
    session = await store.user("ana").session("refund-1")
    tools = StateTools(session, workflows=[REFUND])
    llm = chosen(SCRIPT)
    agent = FunctionAgent(
        llm=llm,
        tool_retriever=StateToolRetriever(tools),
        system_prompt="You handle refunds. Move the workflow on with the tools, and guess no slot.",
    )
    memory = SecondCallMemory.from_defaults(
        user_id="ana", session_id="refund-1", memory=store, llm=llm
    )
    await run(agent, memory, "I want 40 euros back for order A-17.")
    shown = await session.state.load()
    if shown is None or shown.step != "review":
        print("the model did not get as far as the review")
        return
    await tools.confirm("paid", shown=shown)  # the user pressed the button beside what was shown
    await run(agent, memory, "Yes, please.")
    for change in reversed(await session.state.history()):
        print(change.version, change.by, change.changed.get("step"))


async def main() -> None:
    """The conversation, over one store."""
    url = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///tutorial.db"
    async with Memory.open(url, workflows=[REFUND]) as store:
        await conversation(store)


if __name__ == "__main__":
    asyncio.run(main())
