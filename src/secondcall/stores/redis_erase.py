"""Letting users into Redis, and removing everything of them.

A user's ``head`` holds the epoch, or that an erasure is under way: then nothing is written or read,
whoever finds it goes on with it, and nobody is let in before it is done. Keys are found by looking
through all that the user's server has, so that none is missed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from secondcall.abc import Epoch, Scope
from secondcall.errors import StoreBusy, UserErased
from secondcall.stores.erased import erasure_mark
from secondcall.stores.redis_keys import Keys, UserKeys
from secondcall.stores.redis_link import Command, Link, pause_seconds
from secondcall.stores.redis_rows import as_fields
from secondcall.stores.redis_steps import Fields, Guard, Step, Steps
from secondcall.stores.redis_timers import Timers

__all__ = ["Heads"]

_PLACES: tuple[str, ...] = ("states", "state_history", "timers", "indexes", "partitions")
_COUNTED: dict[bytes, tuple[str, bytes]] = {
    b"s": ("states", b"EXISTS"),
    b"c": ("state_history", b"XLEN"),
    b"d": ("timers", b"ZCARD"),
    b"h": ("timers", b"ZCARD"),
    b"i": ("indexes", b"EXISTS"),
    b"o": ("indexes", b"EXISTS"),
    b"t": ("indexes", b"EXISTS"),
}
_TRIES = 200
_ERASE_KEYS = 200
_SCAN_KEYS = b"2000"


class Heads:
    """The users of a store: who is in, under which epoch, and who is being erased."""

    def __init__(self, link: Link, steps: Steps, timers: Timers, keys: Keys) -> None:
        self._link = link
        self._steps = steps
        self._timers = timers
        self._keys = keys

    async def admit(self, user: UserKeys, epoch: Epoch) -> None:
        """See ``StateStore.admit``.

        A new user's epoch counts only when it is not known as erased, and whoever erases marks the
        epoch first and then takes what is pending away: so it is pending while that is looked up.
        """
        mark = self._keys.mark(erasure_mark(_scope(user), epoch))
        for attempt in range(_TRIES):
            head = await self._head(user)
            if head.get(b"epoch") == epoch:
                return
            if b"epoch" in head:
                raise UserErased(user.user_id)
            if b"erasing" in head:
                await self._finish(user, head[b"erasing"])
                continue
            pending = b"pending " + secrets.token_bytes(8)
            absent = [Guard(user.head, name, "!") for name in (b"epoch", b"erasing")]
            asked = Step(absent, [(b"HSET", user.head, pending, b"1")])
            if not (await self._steps.run(asked)).done:
                continue
            (is_erased,) = await self._link.ask(mark, (b"EXISTS", mark))
            if is_erased:
                await self._steps.run(Step(commands=[(b"HDEL", user.head, pending)]))
                raise UserErased(user.user_id)
            still = [Guard(user.head, pending, "=", b"1"), *absent]
            let_in: list[Command] = [
                (b"HSET", user.head, b"epoch", epoch),
                (b"HDEL", user.head, pending),
            ]
            if (await self._steps.run(Step(still, let_in))).done:
                return
            await asyncio.sleep(pause_seconds(attempt))
        raise StoreBusy("others let the same user in or erase it; nothing was written")

    async def erase(self, user: UserKeys, epoch: Epoch | None) -> Mapping[str, int]:
        """See ``StateStore.erase``."""
        await self._link.check_settled(user.head)
        await self._steps.run(Step(commands=[(b"SADD", self._keys.erasing, user.tag)]))
        return await self._finish(user, await self._detach(user, epoch))

    async def scan(self, user: UserKeys) -> Mapping[str, int]:
        """See ``StateStore.scan``."""
        await self._link.check_settled(user.head)
        found = Counter(dict.fromkeys(_PLACES, 0))
        cursor: bytes | None = b"0"
        while cursor is not None:
            cursor, keys = await self._scan_some(user, cursor)
            if keys:
                commands = [(_counted(user, key)[1], key) for key in keys]
                numbers = await self._link.ask(user.head, *commands)
                found.update(_by_place(user, keys, numbers))
        (head,) = await self._link.ask(user.head, (b"EXISTS", user.head))
        found["partitions"] += head
        found["timers"] += await self._timers.entry(user) is not None
        return found

    async def complete_erasures(self) -> None:
        """Go on with those that were interrupted."""
        (tags,) = await self._link.ask(self._keys.erasing, (b"SMEMBERS", self._keys.erasing))
        for tag in tags:
            user = self._keys.of_tag(tag)
            head = await self._head(user)
            if b"erasing" in head:
                await self._finish(user, head[b"erasing"])
            elif not head:
                await self._steps.run(Step(commands=[(b"SREM", self._keys.erasing, tag)]))

    async def _head(self, user: UserKeys) -> Fields:
        (flat,) = await self._link.ask(user.head, (b"HGETALL", user.head))
        return as_fields(flat)

    async def _detach(self, user: UserKeys, epoch: Epoch | None) -> bytes:
        """Refuse the epochs for ever and take the user's away; the token of this erasure."""
        for attempt in range(_TRIES):
            head = await self._head(user)
            there = head.get(b"epoch")
            for one in {epoch, there} - {None}:
                mark = self._keys.mark(erasure_mark(_scope(user), cast("bytes", one)))
                await self._steps.run(Step(commands=[(b"SET", mark, b"1")]))
            if b"erasing" in head:
                return head[b"erasing"]
            token = secrets.token_bytes(8)
            guards = [
                Guard(user.head, b"erasing", "!"),
                Guard(user.head, b"epoch", "!" if there is None else "=", there or b""),
            ]
            begin: Sequence[Command] = [
                (b"DEL", user.head),
                (b"HSET", user.head, b"erasing", token, b"was", b"0" if there is None else b"1"),
            ]
            if (await self._steps.run(Step(guards, begin))).done:
                return token
            await asyncio.sleep(pause_seconds(attempt))
        raise StoreBusy("the user is let in and erased again and again; nothing was erased")

    async def _finish(self, user: UserKeys, token: bytes) -> Mapping[str, int]:
        """Remove everything of a user that is being erased, as long as this erasure goes on."""
        removed = Counter(dict.fromkeys(_PLACES, 0))
        going_on = Guard(user.head, b"erasing", "=", token)
        entry = await self._timers.entry(user)
        cursor: bytes | None = b"0"
        while cursor is not None:
            cursor, keys = await self._scan_some(user, cursor)
            for first in range(0, len(keys), _ERASE_KEYS):
                some = keys[first : first + _ERASE_KEYS]
                commands: list[Command] = [(_counted(user, key)[1], key) for key in some]
                commands += [(b"UNLINK", key) for key in some]
                outcome = await self._steps.run(Step([going_on], commands, answers=True))
                if not outcome.done:
                    return removed
                removed.update(_by_place(user, some, outcome.replies))
        if entry is not None:
            removed["timers"] += await self._timers.drop(entry)
        head = await self._head(user)
        if (await self._steps.run(Step([going_on], [(b"DEL", user.head)]))).done:
            removed["partitions"] += head.get(b"was") == b"1"
            await self._steps.run(Step(commands=[(b"SREM", self._keys.erasing, user.tag)]))
        return removed

    async def _scan_some(
        self, user: UserKeys, cursor: bytes
    ) -> tuple[bytes | None, Sequence[bytes]]:
        """Some of the user's keys but the head, and where to go on."""
        command = (b"SCAN", cursor, b"MATCH", user.base + b"*", b"COUNT", _SCAN_KEYS)
        ((following, keys),) = await self._link.ask(user.head, command)
        return None if following == b"0" else following, [one for one in keys if one != user.head]


def _scope(user: UserKeys) -> Scope:
    return Scope(user.tenant_id, "user", user.user_id)


def _counted(user: UserKeys, key: bytes) -> tuple[str, bytes]:
    """In which place a key of the user is counted, and the command that counts its rows."""
    kind = key[len(user.base) : len(user.base) + 1]
    return _COUNTED.get(kind, ("indexes", b"EXISTS"))


def _by_place(user: UserKeys, keys: Sequence[bytes], numbers: Sequence[int]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for key, number in zip(keys, numbers, strict=False):
        found[_counted(user, key)[0]] += number
    return found
