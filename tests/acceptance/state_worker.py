"""A process of its own that works on a state; run by test_state_processes.py."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

import anyio

from secondcall import Memory, Retry, SecondcallError, Step, Workflow


@dataclass(frozen=True)
class Counter:
    """Fields of a host."""

    n: int = 0


def onboarding(version: int) -> Workflow:
    """The workflow as the release ``version`` declares it: the second has one more step."""
    steps = {"welcome": Step(), "documents": Step(requires=["name"]), "done": Step(terminal=True)}
    transitions = {"welcome": ["documents"], "documents": ["done"]}
    if version == 2:
        steps["review"] = Step(requires=["name"])
        transitions = {"welcome": ["documents"], "documents": ["review"], "review": ["done"]}
    return Workflow("onboarding", steps, transitions, version=version, slots={"name": str})


async def start(memory: Memory, version: int) -> None:
    """Go to the second step and die, without closing anything."""
    session = await memory.user("ana").session("call-1")
    await session.state.update(
        lambda state: state.start(onboarding(version)).fill(name="Ana").advance("documents")
    )
    print(json.dumps("saved"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


async def read(memory: Memory, _: int) -> object:
    """Where the state is."""
    state = await (await memory.user("ana").session("call-1")).state.load()
    assert state is not None
    return [state.workflow, state.workflow_version, state.step, dict(state.slots), state.version]


async def advance(memory: Memory, _: int) -> object:
    """One step on, whatever it is, or why not."""
    session = await memory.user("ana").session("call-1")

    def change(state: Any) -> Any:
        return state.advance(state.allowed[0].step)

    try:
        state = await session.state.update(change)
    except SecondcallError as error:
        return [type(error).__name__, str(error)]
    return [state.workflow_version, state.step]


async def count(memory: Memory, times: int) -> object:
    """Count the user's state up, four tasks at once."""
    state = memory.user("ana").state.of(Counter).retrying(Retry(tries=10_000))

    async def some() -> None:
        for _ in range(times):
            await state.update(lambda one: one.with_fields(n=one.fields.n + 1))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(some)
    return times * 4


WORK = {"start": start, "read": read, "advance": advance, "count": count}


async def main(what: str, url: str, known: str, number: str) -> None:
    """Open the memory with these versions of the workflow and do one thing."""
    workflows = [onboarding(int(one)) for one in known.split(",") if one]
    async with Memory.open(url, workflows=workflows) as memory:
        print(json.dumps(await WORK[what](memory, int(number))))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
