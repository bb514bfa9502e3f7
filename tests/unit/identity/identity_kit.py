"""What the identity tests share: short calls, stores that interleave or die, and the invariants."""

from __future__ import annotations

import random as randoms
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import anyio.lowlevel

from secondcall.abc import Store
from secondcall.identity import Identifier, identifiers_from, resolve, sweep
from secondcall.identity.claims import holder_of, read_claim
from secondcall.identity.family import is_child, root_of
from secondcall.identity.person import Person, Where, read_person
from secondcall.types import Caller

TENANT = "tenant"
HOUR_US = 3_600_000_000
PHONE = "+14155550100"
OTHER_PHONE = "+14155550111"

Step = Callable[[str, bool], Awaitable[None]]
WRITES = frozenset({"write", "erase", "acquire_lease", "release_lease"})


class Died(Exception):
    """The process is gone: every later call of its store raises this too."""


def ids(**fields: Any) -> tuple[Identifier, ...]:
    """The usable identifiers of the fields."""
    return identifiers_from(**fields).usable


def one_id(**fields: Any) -> Identifier:
    """The one identifier of a field."""
    (identifier,) = ids(**fields)
    return identifier


async def call(store: Store, now_us: int = 0, /, **fields: Any) -> Caller:
    """Who calls with these fields."""
    return await resolve(store, TENANT, ids(**fields), now_us=now_us)


class _Relay:
    """A glance is taken apart as by the port's own, so that others can come in between."""

    def __init__(self, store: Store, step: Step) -> None:
        self._store = store
        self._step = step
        self.glance = partial(Store.glance, cast("Store", self))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._store, name)

        async def relayed(*args: object, **kwargs: object) -> object:
            await self._step(name, False)
            result = await method(*args, **kwargs)
            await self._step(name, True)
            return result

        return relayed


def relay(store: Store, step: Step) -> Store:
    """The same store, with ``step(method, done)`` awaited before and after each call."""
    return cast("Store", _Relay(store, step))


def interleaved(store: Store, seed: int) -> Store:
    """The same store, where other tasks may run before and after each call, as ``seed`` has it."""
    source = randoms.Random(seed)

    async def step(name: str, done: bool) -> None:
        for _ in range(source.choice((0, 0, 1, 1, 2, 5, 20))):
            await anyio.lowlevel.checkpoint()

    return relay(store, step)


def dying(store: Store, *, at: int, done: bool) -> Store:
    """The same store for a process that dies just before, or just after, write number ``at``."""
    writes = 0
    dead = False

    async def step(name: str, after: bool) -> None:
        nonlocal writes, dead
        if dead:
            raise Died
        if name not in WRITES:
            return
        if after == done:
            if writes == at:
                dead = True
                raise Died
            writes += 1

    return relay(store, step)


async def faults(store: Store) -> list[str]:
    """What does not fit together; empty when everything does."""
    where = Where(store=store, tenant_id=TENANT)
    found: list[str] = []
    for scope in await store.scopes(TENANT, "identity", limit=10_000):
        claim = await read_claim(where, scope.name)
        if await holder_of(where, scope.name, claim) is None:
            found.append(f"claim {scope.name[:6]} counts for nobody")
    for scope in await store.scopes(TENANT, "user", limit=10_000):
        person = await read_person(where, scope.name)
        if person.created or person.closed:
            found.append(f"{scope.name} was left created or closed")
        found += await _link_faults(where, person)
        found += await _merge_faults(where, person)
    return found


async def _link_faults(where: Where, person: Person) -> list[str]:
    found: list[str] = []
    for name, held in person.links.items():
        claim = await read_claim(where, name)
        if held.state != "linked":
            found.append(f"{person.user_id} has a link {held.state}")
        if claim is None or not claim.is_of(person.user_id, person.epoch):
            found.append(f"{person.user_id} lists {held.masked}, whose claim is not its own")
    return found


async def _merge_faults(where: Where, person: Person) -> list[str]:
    found: list[str] = []
    for child_id, entry in person.merged.items():
        child = await read_person(where, child_id)
        if entry.state != "merged" or not is_child(child, person):
            found.append(f"{person.user_id} lists {child_id}, which is not merged into it")
    if person.into is not None:
        parent = await read_person(where, person.into.user_id)
        if person.user_id not in parent.merged:
            found.append(f"{person.user_id} is merged into {parent.user_id}, which does not know")
        await root_of(where, person)
    return found


async def tidy(store: Store, now_us: int = 100 * HOUR_US) -> None:
    """Sweep what is old by now."""
    await sweep(store, TENANT, now_us=now_us)


async def user_ids(store: Store) -> Sequence[str]:
    """The users who have a partition."""
    return [scope.name for scope in await store.scopes(TENANT, "user", limit=10_000)]
