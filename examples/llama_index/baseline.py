"""A baseline: an agent with one tool, and a memory that is still there in the next process.

python baseline.py [store URL]    the default is sqlite:///tutorial.db
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from chosen_model import chosen
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage

from secondcall.adapters.llama_index import SecondCallMemory
from secondcall.testing.llama_index import Call, Reply

PROMPT = "You help the customers of a shop. Look orders up before you speak of them."


async def order_status(number: str) -> str:
    """Say where an order is."""
    if number == "A-17":
        return "shipped on Monday, arrives on Thursday"
    return f"there is no order {number}"


def scripted(messages: Sequence[ChatMessage]) -> Reply | str:
    """What a model would say: the second answer stands in what the first turn's tool said."""
    seen = " ".join(str(message.content) for message in messages if message.role != "system")
    if "Thursday" not in seen:
        return Reply(calls=[Call("order_status", {"number": "A-17"})])
    return "On Thursday." if "when does it arrive" in seen else "It was shipped on Monday."


async def talk(memory: SecondCallMemory, agent: FunctionAgent) -> None:
    """Two turns; the second is answered from what the tool said in the first."""
    for words in ("Where is my order A-17?", "And when does it arrive?"):
        print(await agent.run(user_msg=words, memory=memory))


def main() -> None:
    """The conversation, and then what a model would be shown of it."""
    url = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///tutorial.db"
    llm = chosen(scripted)
    agent = FunctionAgent(llm=llm, tools=[order_status], system_prompt=PROMPT)
    memory = SecondCallMemory.from_defaults(
        user_id="ana",
        session_id="chat-1",
        url=url,
        llm=llm,
        system_prompt=PROMPT,
        tools=[order_status],
    )
    asyncio.run(talk(memory, agent))
    for message in memory.get():
        print(f"{message.role.value}: {message.content or '(calls a tool)'}")


if __name__ == "__main__":
    main()
