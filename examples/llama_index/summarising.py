"""Summarising: a long conversation in a small window, of which nothing is lost.

python summarising.py [store URL]    the default is sqlite:///tutorial.db

There is nothing to be called every so many messages. What no longer fits is summarised behind the
conversation, between turns, and the key facts of it stand word for word; the messages themselves
stay in the record. Sentences are chosen without a model; where one is configured it writes them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from chosen_model import chosen, is_real
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage

import secondcall
from secondcall import Memory
from secondcall.adapters.llama_index import LlamaIndexModel, SecondCallMemory, close_places

TOKENS = 1_500
FIRST = "My order number is A-17 and I am allergic to peanuts."
TOPICS = ("the garden table", "the red lamp", "the old mirror", "the oak shelf", "the blue chair")


def scripted(messages: Sequence[ChatMessage]) -> str:
    """What a model would say: the order number, if it stands in what it is shown."""
    if "order number?" not in str(messages[-1].content):
        return "I have noted that, thank you. Is there anything else that you would like to know?"
    shown = " ".join(str(message.content) for message in messages)
    return "It is A-17." if "A-17" in shown else "You have not told me."


async def talk(memory: SecondCallMemory, agent: FunctionAgent) -> None:
    """The number is said first, then twenty turns of other things, then it is asked for."""
    await agent.run(user_msg=FIRST, memory=memory)
    for number in range(20):
        topic = TOPICS[number % len(TOPICS)]
        await agent.run(
            user_msg=f"Question {number + 1} is about {topic}: would it fit into a room of twelve "
            "square metres, and can it be had in another colour than the one that is shown?",
            memory=memory,
        )
    print(await agent.run(user_msg="What was my order number?", memory=memory))


def main() -> None:
    """The conversation; what a model is shown of it; what is kept of it."""
    url = sys.argv[1] if len(sys.argv) > 1 else "sqlite:///tutorial.db"
    llm = chosen(scripted)
    writer = LlamaIndexModel(llm) if is_real() else None
    secondcall.configure(tutorial=lambda: Memory.open(url, model=writer))
    agent = FunctionAgent(llm=llm, system_prompt="You help the customers of a shop. Be brief.")
    memory = SecondCallMemory.from_defaults(
        user_id="ana", session_id="chat-2", name="tutorial", token_limit=TOKENS
    )
    asyncio.run(talk(memory, agent))
    close_places()  # as if the process ended here; what is being summarised is finished first
    shown, kept = memory.get(), memory.get_all()
    print(f"shown: {len(shown)} messages, the first of them:\n{shown[0].content}")
    print(f"kept: {len(kept)} messages, the first of them: {kept[0].content}")
    close_places()


if __name__ == "__main__":
    main()
