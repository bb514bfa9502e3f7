"""Long-term recall: what was said in one session is found in another, by its user alone.

python long_term_recall.py [store URL]    the default is sqlite:///tutorial.db

Nothing is added by hand and nothing retrieved by hand: every message is recorded as it comes, and
what answers a question stands before it, fenced as data, when the model is asked.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence

from chosen_model import chosen
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage

from secondcall.adapters.llama_index import SecondCallMemory, close_places

PROMPT = (
    "You help the customers of a shop. Answer from what you were told, in one sentence, and say "
    "that you do not know where you do not."
)


def scripted(messages: Sequence[ChatMessage]) -> str:
    """What a model would say: the teacher's name, if it is remembered."""
    remembered = " ".join(
        str(message.content) for message in messages if str(message.content).startswith("<memory")
    )
    if "?" not in str(messages[-1].content):
        return "Noted."
    found = re.search(r"teacher is (Mrs \w+)", remembered)
    return f"It is {found[1]}." if found else "I do not know."


async def talk(url: str, user_id: str, session_id: str, *said: str) -> None:
    """One session of one user."""
    llm = chosen(scripted)
    agent = FunctionAgent(llm=llm, system_prompt=PROMPT)
    memory = SecondCallMemory.from_defaults(
        user_id=user_id, session_id=session_id, url=url, llm=llm, system_prompt=PROMPT
    )
    for words in said:
        print(
            f"{user_id}, {session_id}: {words}\n  {await agent.run(user_msg=words, memory=memory)}"
        )


async def conversations(url: str) -> None:
    """Ana tells something; later she asks for it, and so does Bob."""
    question = "What is the name of my violin teacher?"
    await talk(url, "ana", "monday", "Hello!", "My violin teacher is Mrs Okonkwo.")
    close_places()  # as if the process had ended
    await talk(url, "ana", "tuesday", question)
    await talk(url, "bob", "tuesday", question)


def main() -> None:
    """The conversations."""
    asyncio.run(conversations(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///tutorial.db"))
    close_places()


if __name__ == "__main__":
    main()
