"""Timers in Redis: which states are due, and an index of users by their next timer.

A user's timers lie in the user's slot and change with the state in one step. The tenant's index
lies in other slots, so it only says *not before*: an entry may be too early, never too late,
whatever crashes in between. How that is kept:

- ``floor`` in the user's ``clock`` says that the index has an entry no later than that. A save
  whose timer is not covered takes a *ticket* in the user's slot, writes the index, and then saves
  only if no entry was moved since the ticket was taken (``dead`` is below it).
- Whoever moves an entry to a later time reads its *stamp*, then looks at the user and declares all
  tickets dead in one step, and then moves the entry only if the stamp is still the same.

So an entry that a successful save relies on was written after the last look, and cannot be moved by
it. An entry that is too early costs a look at the user and is put right by it.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from secondcall.abc import Epoch
from secondcall.abc_state import StateKey
from secondcall.stores.redis_keys import IndexKeys, Keys, UserKeys, session_of
from secondcall.stores.redis_link import Command, Link, pause_seconds
from secondcall.stores.redis_steps import Fields, Guard, Step, Steps

__all__ = ["Timers", "covers", "end_timer", "score", "set_timer"]

_ROUNDS = 200
_LEAST_USERS = 16
_MOST_HELD = 10_000


def score(time_us: int) -> float:
    """The time as Redis sorts it, never later than it is."""
    found = float(time_us)
    return math.nextafter(found, -math.inf) if found > time_us else found


def covers(clock: Fields, due_us: int) -> bool:
    """Whether the index has an entry for this timer already."""
    return b"floor" in clock and float(clock[b"floor"]) <= score(due_us)


def set_timer(
    user: UserKeys, level: bytes, due_us: int, ticket: bytes | None
) -> tuple[Sequence[Guard], Sequence[Command]]:
    """The part of a save that sets a timer."""
    due = _text(score(due_us))
    commands: list[Command] = [
        (b"ZADD", user.due, due, level),
        (b"HINCRBY", user.clock, b"changes", b"1"),
    ]
    if ticket is not None:
        commands.append((b"HSET", user.clock, b"floor", due))
    commands += [(b"ZREM", user.held, level), (b"HDEL", user.held_due, level)]
    if ticket is None:
        return [Guard(user.clock, b"floor", "<=", due)], commands
    return [Guard(user.clock, b"dead", "<", ticket)], commands


def end_timer(user: UserKeys, level: bytes) -> Sequence[Command]:
    """The part of a save or deletion that ends the state's timer and claim."""
    return [
        (b"HINCRBY", user.clock, b"changes", b"1"),
        (b"ZREM", user.due, level),
        (b"ZREM", user.held, level),
        (b"HDEL", user.held_due, level),
    ]


class _Entry(NamedTuple):
    """An entry of the index, as it was read."""

    user: UserKeys
    shard: IndexKeys
    score: float
    stamp: bytes | None


class _Waiting(NamedTuple):
    """A state that may be claimed: when it was due, and since when it is free."""

    due: float
    level: bytes
    free: float
    was_held: bool


@dataclass
class _Look:
    """A user's timers as they were read. ``ready`` ones are due; ``later``: when others may be."""

    epoch: bytes | None
    clock: Fields
    ready: list[_Waiting] = field(default_factory=list[_Waiting])
    later: list[float] = field(default_factory=list[float])


class Timers:
    """The timers of a store."""

    def __init__(self, link: Link, steps: Steps, keys: Keys) -> None:
        self._link = link
        self._steps = steps
        self._keys = keys

    async def announce(self, user: UserKeys, epoch: Epoch, due_us: int) -> bytes | None:
        """Write the index for a timer that is to be set; the ticket. ``None``: not this epoch."""
        taken = await self._steps.run(
            Step(
                [Guard(user.head, b"epoch", "=", epoch)],
                [(b"HINCRBY", user.clock, b"ticket", b"1")],
                answers=True,
            )
        )
        if not taken.done:
            return None
        index, member = self._keys.index_of(user), user.user_id.encode()
        await self._steps.run(
            Step(
                commands=[
                    (b"HSET", index.stamps, member, secrets.token_bytes(8)),
                    (b"ZADD", index.users, b"LT", _text(score(due_us)), member),
                ]
            )
        )
        return b"%d" % taken.replies[0]

    async def entry(self, user: UserKeys) -> _Entry | None:
        """What the index has of the user."""
        index, member = self._keys.index_of(user), user.user_id.encode()
        found, stamp = await self._link.ask(
            index.users, (b"ZSCORE", index.users, member), (b"HGET", index.stamps, member)
        )
        if found is None and stamp is None:
            return None
        return _Entry(user, index, float(found or 0), stamp)

    async def drop(self, entry: _Entry) -> bool:
        """Remove an entry, unless it was written anew; the user has no timers."""
        return await self._move(entry, None)

    async def settle(self, user: UserKeys) -> None:
        """Put the user's entry right."""
        entry = await self.entry(user)
        if entry is not None:
            (look,) = await self._look([entry], now_us=0, limit=1)
            await self._take(entry, look, [], now_us=0, until_us=0)

    async def claim(
        self, tenant_id: str, *, now_us: int, limit: int, until_us: int
    ) -> Sequence[StateKey]:
        """See ``StateStore.claim_due``."""
        claimed: list[StateKey] = []
        for number in range(_ROUNDS):
            left = limit - len(claimed)
            entries = await self._due_entries(tenant_id, now_us, max(left, _LEAST_USERS))
            if not entries:
                break
            looks = await self._look(entries, now_us=now_us, limit=left)
            got, refused = await self._share(entries, looks, now_us, left, until_us)
            claimed += got
            if len(claimed) >= limit:
                break
            if refused:
                await asyncio.sleep(pause_seconds(min(number, 3)))
        return claimed

    async def _share(
        self,
        entries: Sequence[_Entry],
        looks: Sequence[_Look],
        now_us: int,
        limit: int,
        until_us: int,
    ) -> tuple[list[StateKey], bool]:
        """Take the earliest of all users; whether others were faster with some of them."""
        everyone = [(one, place) for place, look in enumerate(looks) for one in look.ready]
        everyone.sort(key=lambda one: (one[0].due, one[1]))
        chosen = everyone[:limit]
        # Whoever has something ready that was not chosen keeps the entry as it is.
        busy = {place for _, place in everyone[limit:]} - {place for _, place in chosen}
        places = [place for place in range(len(entries)) if place not in busy]
        done = await asyncio.gather(
            *(
                self._take(
                    entries[place],
                    looks[place],
                    [one for one, where in chosen if where == place],
                    now_us=now_us,
                    until_us=until_us,
                )
                for place in places
            )
        )
        ok = {place for place, went in zip(places, done, strict=True) if went}
        keys = [
            StateKey(*entries[place].user[:2], session_of(one.level))
            for one, place in chosen
            if place in ok
        ]
        return keys, not all(done)

    async def _due_entries(self, tenant_id: str, now_us: int, limit: int) -> Sequence[_Entry]:
        """The users whose next timer may be due, earliest first."""
        shards = self._keys.index(tenant_id)
        least, most, count = b"-inf", _text(-score(-now_us)), b"%d" % limit
        pages = await self._link.ask_all(
            [
                (
                    one.users,
                    [(b"ZRANGE", one.users, least, most, b"BYSCORE", b"LIMIT", b"0", count,
                      b"WITHSCORES")],
                )
                for one in shards
            ]
        )  # fmt: skip
        found = [
            (when, shard, member)
            for shard, (page,) in zip(shards, pages, strict=True)
            for member, when in _scored(page)
        ]
        found = sorted(found, key=lambda one: one[0])[:limit]
        stamps = await self._link.ask_all(
            [(shard.stamps, [(b"HGET", shard.stamps, member)]) for _, shard, member in found]
        )
        return [
            _Entry(self._keys.user(tenant_id, member.decode()), shard, when, stamp)
            for (when, shard, member), (stamp,) in zip(found, stamps, strict=True)
        ]

    async def _look(self, entries: Sequence[_Entry], *, now_us: int, limit: int) -> Sequence[_Look]:
        # The clock is read first: what changes afterwards is noticed by its number of changes.
        found = await self._link.ask_all(
            [
                (
                    one.user.head,
                    [
                        (b"HGET", one.user.head, b"epoch"),
                        (b"HGETALL", one.user.clock),
                        (b"ZRANGE", one.user.due, b"0", b"%d" % limit, b"WITHSCORES"),
                        (b"ZRANGE", one.user.held, b"0", b"%d" % _MOST_HELD, b"WITHSCORES"),
                        (b"HGETALL", one.user.held_due),
                    ],
                )
                for one in entries
            ]
        )
        return [_as_look(replies, now_us) for replies in found]

    async def _take(
        self,
        entry: _Entry,
        look: _Look,
        chosen: Sequence[_Waiting],
        *,
        now_us: int,
        until_us: int,
    ) -> bool:
        """Give these out, and put the entry right; false if somebody changed it meanwhile."""
        user = entry.user
        if look.epoch is None:
            await self._move(entry, None)
            return True
        until = score(until_us)
        free = [one.free for one in look.ready if one not in chosen]
        times = [*look.later, *free, *([until] if chosen else [])]
        following = min(times, default=None)
        commands: list[Command] = []
        for one in chosen:
            commands.append((b"ZADD", user.held, _text(until), one.level))
            commands.append((b"HSET", user.held_due, one.level, _text(one.due)))
        ticket = look.clock.get(b"ticket", b"0")
        commands.append((b"HSET", user.clock, b"dead", ticket))
        if following is not None:
            commands.append((b"HSET", user.clock, b"floor", _text(following)))
        if chosen:
            commands.append((b"HINCRBY", user.clock, b"changes", b"1"))
        commands += [(b"ZREM", user.due, one.level) for one in chosen if not one.was_held]
        if following is None:
            commands.append((b"HDEL", user.clock, b"floor"))
        guards = [
            Guard(user.head, b"epoch", "=", look.epoch),
            *(_as_seen(user.clock, look.clock, name) for name in (b"changes", b"ticket")),
        ]
        if not (await self._steps.run(Step(guards, commands))).done:
            return False
        await self._move(entry, following)
        return True

    async def _move(self, entry: _Entry, to: float | None) -> bool:
        _, index, _, stamp = entry
        member = entry.user.user_id.encode()
        same = Guard(index.stamps, member, "!" if stamp is None else "=", stamp or b"")
        commands: Sequence[Command] = [
            (b"HSET", index.stamps, member, secrets.token_bytes(8)),
            (b"ZADD", index.users, _text(to or 0.0), member),
        ]
        if to is None:
            commands = [(b"ZREM", index.users, member), (b"HDEL", index.stamps, member)]
        return (await self._steps.run(Step([same], commands))).done


def _as_seen(key: bytes, fields: Fields, name: bytes) -> Guard:
    return Guard(key, name, "=", fields[name]) if name in fields else Guard(key, name, "!")


def _as_look(replies: Sequence[Any], now_us: int) -> _Look:
    epoch, clock, due, held, held_due = replies
    look = _Look(epoch, dict(zip(clock[::2], clock[1::2], strict=True)))
    if epoch is None:
        # The user is being erased, or is gone.
        return look
    dues = dict(zip(held_due[::2], held_due[1::2], strict=True))
    for level, when in _scored(due):
        if when <= now_us:
            look.ready.append(_Waiting(when, level, when, was_held=False))
        else:
            look.later.append(when)
    for level, until in _scored(held):
        if until <= now_us:
            look.ready.append(_Waiting(float(dues.get(level, until)), level, until, was_held=True))
        else:
            look.later.append(until)
    return look


def _scored(flat: Sequence[bytes]) -> Sequence[tuple[bytes, float]]:
    return [(one, float(when)) for one, when in zip(flat[::2], flat[1::2], strict=True)]


def _text(number: float) -> bytes:
    return repr(number).encode()
