"""One leg of a conversation over two processes: begins it, or goes on from what was written."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from adapters.llama_index.agents import agent_of, contents, run
from llama_index.core.workflow import Context, JsonSerializer
from workflows.context.serializers import PickleSerializer

import secondcall
from secondcall.adapters.llama_index.memory import SecondCallMemory
from secondcall.adapters.llama_index.places import close_places


async def begin(serializer: JsonSerializer | PickleSerializer, name: str) -> tuple[list[str], str]:
    """Say a name; the context as it is written down."""
    agent, _ = agent_of(["hello Ann"])
    memory = SecondCallMemory.from_defaults(user_id="u", session_id="s", name=name)
    ctx = Context(agent)
    await run(agent, "my name is Ann", memory=memory, ctx=ctx)
    return ["begun"], json.dumps(ctx.to_dict(serializer=serializer))


async def go_on(written: str, serializer: JsonSerializer | PickleSerializer) -> list[str | None]:
    """Ask for the name, on the context that was written down."""
    agent, llm = agent_of(["Ann"])
    ctx = Context.from_dict(agent, json.loads(written), serializer=serializer)
    await run(agent, "who am I?", ctx=ctx)
    return contents(llm.requests[0])


def main(what: str, how: str, known: str, path: Path, folder: Path) -> object:
    """What the leg came to."""
    serializer = JsonSerializer() if how == "json" else PickleSerializer()
    name = "main" if known == "configured" else "default"
    if known == "configured" and what != "lost":
        secondcall.configure(main=f"sqlite:///{folder / 'memory.db'}")
    if what == "begin":
        found, written = asyncio.run(begin(serializer, name))
        path.write_text(written)
        return found
    try:
        return asyncio.run(go_on(path.read_text(), serializer))
    except (ValueError, secondcall.UnknownName) as error:  # workflows wraps it, by serializer
        return [str(error)]


if __name__ == "__main__":
    given = sys.argv[1:]
    came_to = main(given[0], given[1], given[2], Path(given[3]), Path(given[4]))
    close_places()
    sys.stdout.write(json.dumps(came_to))
