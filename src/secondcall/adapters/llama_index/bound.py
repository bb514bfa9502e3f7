"""One user's memory as LlamaIndex's objects hold it: reached from anywhere, found again by name.

What is serialised of it is a *locator*: a random handle, the store's name, tenant and user. Never a
URL or what is remembered. Within a process the handle leads to the very same memory; another one
opens the store that the name means there (``secondcall.configure``, ``SECONDCALL_URL``).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from secondcall.adapters.llama_index.places import HostPlace, Place, place_of
from secondcall.checks import check_id
from secondcall.errors import InvalidValue, UserErased
from secondcall.memory import Memory, SessionMemory, UserMemory
from secondcall.named import DEFAULT_NAME, store_name

__all__ = ["Bound", "bound_to"]

T = TypeVar("T")
_MAX_SESSIONS = 256


class Bound:
    """A user of a memory, and where it is reached. Made by ``bound_to``."""

    def __init__(self, place: Place, tenant_id: str | None, user_id: str, handle: str) -> None:
        self.place = place
        self.tenant_id = tenant_id
        self.user_id = user_id
        self.handle = handle
        self._user: UserMemory | None = None
        self._sessions: OrderedDict[str, SessionMemory] = OrderedDict()

    @property
    def locator(self) -> dict[str, str | None]:
        """What is serialised: ``handle``, ``name``, ``tenant_id`` and ``user_id``."""
        return {
            "handle": self.handle,
            "name": self.place.name,
            "tenant_id": self.tenant_id,
            "user_id": self.user_id,
        }

    async def run(self, work: Callable[[UserMemory], Awaitable[T]]) -> T:
        """What ``work`` gives for the user, awaited in the memory's loop.

        Raises: what ``work`` raises. After ``UserErased`` the next call begins anew.
        """
        return await self.place.run(lambda memory: self._with_user(memory, work))

    def run_blocking(self, work: Callable[[UserMemory], Awaitable[T]]) -> T:
        """The same; the calling thread waits."""
        return self.place.run_blocking(lambda memory: self._with_user(memory, work))

    async def session(self, user: UserMemory, session_id: str) -> SessionMemory:
        """A session of the user that ``work`` was given; the 256 used last are kept open.

        Raises: ``InvalidValue``, ``TooLarge``.
        """
        found = self._sessions.get(session_id)
        if found is None:
            found = self._sessions[session_id] = await user.session(session_id)
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return found

    async def _with_user(self, memory: Memory, work: Callable[[UserMemory], Awaitable[T]]) -> T:
        if self._user is None:
            tenant = memory if self.tenant_id is None else memory.tenant(self.tenant_id)
            self._user = tenant.user(self.user_id)
        try:
            return await work(self._user)
        except UserErased:
            self._user = None
            self._sessions.clear()
            raise


_live: WeakValueDictionary[str, Bound] = WeakValueDictionary()


def bound_to(
    *,
    user_id: str,
    tenant_id: str | None = None,
    url: str | None = None,
    name: str | None = None,
    memory: Memory | None = None,
    handle: str | None = None,
) -> Bound:
    """The user of an open ``memory``, of the store at ``url``, or of the store of a ``name``;
    without any of them of ``SECONDCALL_URL``.

    A ``handle`` that this process gave out for this very user leads to the same object. Raises:
    ``InvalidValue``; ``UnknownName`` naming the store that nothing here says the meaning of.
    """
    check_id("user_id", user_id)
    if tenant_id is not None:
        check_id("tenant_id", tenant_id)
    live = None if handle is None else _live.get(handle)
    if live is not None and (live.tenant_id, live.user_id) == (tenant_id, user_id):
        return live
    if memory is not None and url is not None:
        raise InvalidValue("give either memory or url, not both")
    place: Place
    if memory is not None:
        place = HostPlace(memory)
        tenant_id = memory.tenant_id if tenant_id is None else tenant_id
    elif url is not None:
        place = place_of(store_name(url) if name is None else name, url)
    else:
        _check_named(name, handle)
        place = place_of(DEFAULT_NAME if name is None else name)
    made = Bound(place, tenant_id, user_id, secrets.token_hex(16))
    _live[made.handle] = made
    return made


def _check_named(name: str | None, handle: str | None) -> None:
    if name is None and handle is not None:
        raise InvalidValue(
            "this was made with memory=..., which lives in the process that opened it only; make "
            "it with url= or name= where it has to be found again elsewhere"
        )
