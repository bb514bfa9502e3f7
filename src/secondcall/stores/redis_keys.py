"""The names of keys in Redis. All of one user's carry the same hash tag and so lie in one slot."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from secondcall.abc_state import StateKey

__all__ = ["SHARDS", "IndexKeys", "Keys", "UserKeys", "level", "session_of"]

SHARDS = 16
"""Into how many slots a tenant's index of users with timers is spread."""


class UserKeys(NamedTuple):
    """The keys of one user. ``base`` is what all begin with.

    ``head``: the epoch, or that it is being erased. ``clock``: the bookkeeping of timers. ``due``:
    states by when they are due; ``held``: those given out, by when that ends, and ``held_due``:
    when those were due. ``sessions``: the states that there are, in order.
    """

    tenant_id: str
    user_id: str
    tag: bytes
    base: bytes

    head: bytes
    clock: bytes
    due: bytes
    held: bytes
    held_due: bytes
    sessions: bytes

    def state(self, session_id: str | None) -> bytes:
        """The hash of a state."""
        return self.base + b"s" + level(session_id)

    def changes(self, session_id: str | None) -> bytes:
        """The stream of a state's history."""
        return self.base + b"c" + level(session_id)


class IndexKeys(NamedTuple):
    """One shard of a tenant's index: users by when their next timer may be due, and a stamp of
    each entry that is new whenever it is written."""

    users: bytes
    stamps: bytes


class Keys:
    """The keys under one prefix, which holds no braces; nothing is ever written to ``probe``."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.encode()
        self.erasing = self.prefix + b"erasing"
        self.schema = self.prefix + b"schema"
        self.probe = self.prefix + b"probe"

    def user(self, tenant_id: str, user_id: str) -> UserKeys:
        """Both ids are escaped: neither a colon nor a brace in them is taken for ours."""
        return self.of_tag(f"{_escape(tenant_id)}:{_escape(user_id)}".encode())

    def of_tag(self, tag: bytes) -> UserKeys:
        """The keys that carry this hash tag."""
        tenant, _, user = tag.decode().partition(":")
        base = b"%s{%s}:" % (self.prefix, tag)
        return UserKeys(
            tenant_id=unquote(tenant),
            user_id=unquote(user),
            tag=tag,
            base=base,
            head=base + b"u",
            clock=base + b"t",
            due=base + b"d",
            held=base + b"h",
            held_due=base + b"o",
            sessions=base + b"i",
        )

    def of(self, key: StateKey) -> UserKeys:
        """The keys of the state's user."""
        return self.user(key.tenant_id, key.user_id)

    def index(self, tenant_id: str) -> Sequence[IndexKeys]:
        """All shards of a tenant. ``#`` is in no escaped id."""
        tenant = _escape(tenant_id).encode()
        return [
            IndexKeys(b"%s{%s:#%d}:z" % one, b"%s{%s:#%d}:k" % one)
            for one in ((self.prefix, tenant, number) for number in range(SHARDS))
        ]

    def index_of(self, user: UserKeys) -> IndexKeys:
        """The shard that the user is in."""
        number = hashlib.blake2b(user.tag, digest_size=2).digest()[0] % SHARDS
        return self.index(user.tenant_id)[number]

    def mark(self, mark: bytes) -> bytes:
        """Where an erased epoch is known by its mark."""
        return self.prefix + b"erased:" + mark.hex().encode()


def level(session_id: str | None) -> bytes:
    """A state among its user's, in the order in which states are listed."""
    return b"0" if session_id is None else b"1" + session_id.encode()


def session_of(level: bytes) -> str | None:
    """The session that ``level`` stands for."""
    return level[1:].decode() if level[:1] == b"1" else None


def _escape(name: str) -> str:
    """Letters, digits and ``_.-~@+``; everything else as the hexadecimal numbers of its bytes."""
    return quote(name, safe="@+")
