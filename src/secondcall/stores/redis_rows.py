"""What is written for a state in Redis, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from secondcall.abc import Epoch
from secondcall.abc_state import StateChange, StateConflict, StateKey, StoredState
from secondcall.errors import StoreCorrupt, UserErased
from secondcall.stores.redis_keys import UserKeys, level
from secondcall.stores.redis_link import Command
from secondcall.stores.redis_steps import Fields, Guard, Step
from secondcall.stores.redis_timers import end_timer, set_timer

__all__ = ["LIVE", "Write", "as_change", "as_fields", "as_number", "as_state", "check_found"]

_KEPT_MS = 30 * 86_400_000
_MOST_MS = 100 * 365 * 86_400_000
LIVE = (b"live", b"body", b"at", b"by", b"schema", b"times")
"""The fields of a state that is there; of a deleted one only its version ``v`` stays. ``times``:
when it expires and when it is due, with a stroke between, empty for never."""
_NO_TIMES = b"/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A save, or with ``body`` ``None`` a deletion."""

    key: StateKey
    user: UserKeys
    epoch: Epoch
    body: bytes | None
    now_us: int
    by: str
    schema: int
    summary: bytes
    expires_us: int | None = None
    due_us: int | None = None

    @property
    def state(self) -> bytes:
        """The key of the state's hash."""
        return self.user.state(self.key.session_id)

    def step(
        self, expected: int | None, seen: Fields | None, ticket: bytes | None
    ) -> tuple[int, Step]:
        """The version that it makes, and what is done; ``seen`` ``None``: guess what is there."""
        guards = [Guard(self.user.head, b"epoch", "=", self.epoch)]
        times = b"?"
        if seen is not None:
            version = as_number(seen, b"v") if seen else 0
            times = seen.get(b"times", _NO_TIMES)
            same = Guard(self.state, b"v", "=", b"%d" % version)
            guards.append(same if seen else Guard(self.state, b"v", "!"))
        elif expected is None:
            version, times = 0, _NO_TIMES
            guards.append(Guard(self.state, b"v", "!"))
        else:
            version = expected
            guards.append(Guard(self.state, b"live", "=", b"%d" % version))
            if self.due_us is None:
                # It had neither, as most have: then there is nothing to end.
                times = _NO_TIMES
                guards.append(Guard(self.state, b"times", "=", times))
        commands = self._commands(version + 1, times, is_new=expected is None)
        name = level(self.key.session_id)
        if self.due_us is not None:
            more, then = set_timer(self.user, name, self.due_us, ticket)
            guards += more
            commands += then
        elif not times.endswith(b"/"):
            commands += end_timer(self.user, name)
        return version + 1, Step(guards, commands)

    def _commands(self, version: int, before: bytes, *, is_new: bool) -> list[Command]:
        # The history is first: it alone can refuse, when it has this version already.
        name, number = level(self.key.session_id), b"%d" % version
        changes = self.user.changes(self.key.session_id)
        entry = (
            b"at", b"%d" % self.now_us, b"by", self.by.encode(), b"schema", b"%d" % self.schema,
            b"summary", self.summary,
        )  # fmt: skip
        if self.body is None:
            return [
                (b"XADD", changes, b"%s-0" % number, *entry),
                (b"HSET", self.state, b"v", number),
                (b"HDEL", self.state, *LIVE),
                (b"ZREM", self.user.sessions, name),
            ]
        commands: list[Command] = [
            (b"XADD", changes, b"%s-0" % number, *entry, b"body", self.body),
            (
                b"HSET", self.state, b"v", number, b"live", number, b"body", self.body,
                b"at", b"%d" % self.now_us, b"by", self.by.encode(),
                b"schema", b"%d" % self.schema,
                b"times", _text(self.expires_us) + b"/" + _text(self.due_us),
            ),
        ]  # fmt: skip
        if is_new:
            commands.append((b"ZADD", self.user.sessions, b"0", name))
        if self.expires_us is not None:
            last_us = max(self.expires_us, self.due_us or self.expires_us)
            after_ms = max(0, last_us - self.now_us) // 1_000 + _KEPT_MS
            # Only the history goes by the server's clock: the state keeps its version for ever.
            commands.append((b"PEXPIRE", changes, b"%d" % min(after_ms, _MOST_MS)))
        elif not before.startswith(b"/"):
            commands.append((b"PERSIST", changes))
        return commands


def check_found(
    key: StateKey, seen: Fields, found: bytes | None, epoch: Epoch, expected: int | None
) -> None:
    """Raises: ``UserErased``, ``StateConflict``, ``StoreCorrupt``."""
    if found != epoch:
        raise UserErased(key.user_id)
    current = as_state(key, seen)
    if expected != (None if current is None else current.version):
        raise StateConflict(expected=expected, current=current)


def as_state(key: StateKey, fields: Fields) -> StoredState | None:
    """The state in its hash. Raises: ``StoreCorrupt``."""
    if b"live" not in fields:
        return None
    try:
        expires, due = fields[b"times"].split(b"/")
        return StoredState(
            key=key,
            version=int(fields[b"live"]),
            body=fields[b"body"],
            updated_us=int(fields[b"at"]),
            updated_by=fields[b"by"].decode(),
            schema=int(fields[b"schema"]),
            expires_us=int(expires) if expires else None,
            due_us=int(due) if due else None,
        )
    except (KeyError, ValueError) as error:
        raise _corrupt(type(error).__name__) from None


def as_change(row: Sequence[Any]) -> StateChange:
    """A row of the history in an entry of the stream. Raises: ``StoreCorrupt``."""
    entry, flat = row
    fields = as_fields(flat)
    try:
        return StateChange(
            version=int(bytes(entry).partition(b"-")[0]),
            at_us=int(fields[b"at"]),
            by=fields[b"by"].decode(),
            body=fields.get(b"body"),
            schema=int(fields[b"schema"]),
            summary=fields[b"summary"],
        )
    except (KeyError, ValueError) as error:
        raise _corrupt(type(error).__name__) from None


def _corrupt(what: str) -> StoreCorrupt:
    return StoreCorrupt(f"a state in Redis is not in the form that it was written in ({what})")


def as_number(fields: Fields, name: bytes) -> int:
    """A field that must be there. Raises: ``StoreCorrupt``."""
    try:
        return int(fields[name])
    except (KeyError, ValueError) as error:
        raise _corrupt(type(error).__name__) from None


def as_fields(flat: Sequence[bytes]) -> Fields:
    """A hash as Redis sends it: names and values by turns."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(number: int | None) -> bytes:
    return b"" if number is None else b"%d" % number
