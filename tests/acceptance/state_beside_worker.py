"""As ``state_worker``, with the states in a store of their own: its URL comes last."""

from __future__ import annotations

import json
import sys

import anyio
from state_worker import WORK, onboarding

from secondcall import Memory


async def main(what: str, url: str, known: str, number: str, state_url: str) -> None:
    """Open the memory with these versions of the workflow and do one thing."""
    workflows = [onboarding(int(one)) for one in known.split(",") if one]
    async with Memory.open(url, state=state_url, workflows=workflows) as memory:
        print(json.dumps(await WORK[what](memory, int(number))))


if __name__ == "__main__":
    what, url, known, number, state_url = sys.argv[1:6]
    anyio.run(main, what, url, known, number, state_url)
