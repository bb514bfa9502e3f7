"""Tells facts as one of several processes: ``python fact_worker.py URL NAME COUNT``.

Prints one JSON object: how many were told, and how often a race was lost for good.
"""

from __future__ import annotations

import asyncio
import json
import sys

from secondcall import Memory, VersionConflict


async def _tell(url: str, name: str, count: int) -> dict[str, int]:
    told = lost = 0
    async with Memory.open(url) as memory:
        user = memory.user("ann")
        for number in range(count):
            for predicate, multi in (("seat", False), ("tag", True)):
                try:
                    await user.remember(predicate, f"{name} {number}", multi=multi)
                    told += 1
                except VersionConflict:
                    lost += 1
            if number % 5 == 4:
                await user.retract("tag", value=f"{name} {number}")
    return {"told": told, "lost": lost}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_tell(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
