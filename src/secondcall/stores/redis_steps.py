"""Atomic steps in Redis: guards that must hold, and commands that are run if all of them do.

By a script, in one round trip; or, where scripts are refused, by ``WATCH``, ``MULTI`` and
``EXEC``, which look at whole keys and so are repeated when anything of them changed. Both may be in
use at the same time, by several processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal, NamedTuple, cast

from secondcall.errors import StoreBusy, StoreUnavailable
from secondcall.stores.redis_link import (
    Command,
    Line,
    Link,
    Refusal,
    is_refused,
    pause_seconds,
)

__all__ = ["Fields", "Guard", "Outcome", "Step", "Steps"]

Fields = Mapping[bytes, bytes]

_LOG = logging.getLogger(__name__)
_TRIES = 200
_SCRIPT = files("secondcall.stores").joinpath("lua", "step.lua").read_bytes()
_SHA = hashlib.sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()


class Guard(NamedTuple):
    """A field of a hash and how it must be: ``=`` this value, ``!`` absent, ``<=`` a number up to
    this, ``<`` a number (0 when absent) below this."""

    key: bytes
    field: bytes
    comparison: Literal["=", "!", "<=", "<"]
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class Step:
    """What is done at once on keys of one slot. ``commands``: name, key, other words.

    Nothing is undone: what may be refused for what it is comes first. ``answers``: the replies of
    the commands are wanted.
    """

    guards: Sequence[Guard] = ()
    commands: Sequence[Command] = ()
    answers: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """``done`` with the replies of the commands; else the guarded hashes as they are."""

    done: bool
    replies: Sequence[Any] = ()
    seen: Mapping[bytes, Fields] = field(default_factory=dict[bytes, Fields])


_DONE = Outcome(True)


class Steps:
    """Runs steps over a link. ``by_script``: which way, found out by ``open``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.by_script = link.settings.cas != "watch"

    async def open(self, probe_key: bytes) -> None:
        """See whether scripts may be run. Raises: ``StoreUnavailable``."""
        self.by_script = self._link.settings.cas != "watch"
        if self.by_script:
            await self.run(Step([Guard(probe_key, b"-", "!")]))

    async def run(self, step: Step) -> Outcome:
        """Do it, or say why not. Raises: ``StoreBusy``, ``StoreUnavailable``."""
        key = step.guards[0].key if step.guards else step.commands[0][1]
        if self.by_script:
            try:
                return await self._link.run(key, lambda line: self._by_script(line, step))
            except _ScriptsRefusedError as error:
                if self._link.settings.cas == "script":
                    raise StoreUnavailable(
                        "Redis lets this user run no scripts (EVAL, EVALSHA); allow them, or leave "
                        "?cas=script out"
                    ) from None
                _LOG.warning(
                    "Redis refuses scripts (%s); going on with WATCH, which is slow", error
                )
                self.by_script = False
        return await self._link.run(key, lambda line: self._by_watch(line, step))

    async def _by_script(self, line: Line, step: Step) -> Outcome:
        guarded = [*dict.fromkeys(one.key for one in step.guards)]
        words = _words(step, guarded)
        wait = self._wait(step)
        (reply, *copies) = await line.send([(b"EVALSHA", _SHA, *words), *wait])
        if isinstance(reply, Exception) and type(reply).__name__ == "NoScriptError":
            (reply, *copies) = await line.send([(b"EVAL", _SCRIPT, *words), *wait])
        if isinstance(reply, Exception):
            if is_refused(reply, "eval"):
                raise _ScriptsRefusedError(type(reply).__name__)
            raise reply
        if reply == 1:
            self._check_copies(copies)
            return _DONE
        done, *rest = cast("list[Any]", reply)
        if not done:
            seen = {key: _fields(flat) for key, flat in zip(guarded, rest, strict=True)}
            return Outcome(False, seen=seen)
        self._check_copies(copies)
        return Outcome(True, rest)

    async def _by_watch(self, line: Line, step: Step) -> Outcome:
        if line.asking:
            raise StoreBusy("the cluster is moving this slot; nothing was written")
        guarded = [*dict.fromkeys(one.key for one in step.guards)]
        for attempt in range(_TRIES):
            seen: dict[bytes, Fields] = {}
            if guarded:
                reads = [(b"HGETALL", key) for key in guarded]
                try:
                    _, *found = await line.ask([(b"WATCH", *guarded), *reads])
                except Refusal:
                    await line.send([(b"UNWATCH",)])
                    raise
                seen = {key: _fields(flat) for key, flat in zip(guarded, found, strict=True)}
                if not all(_holds(one, seen[one.key]) for one in step.guards):
                    await line.ask([(b"UNWATCH",)])
                    return Outcome(False, seen=seen)
            replies = await line.send([(b"MULTI",), *step.commands, (b"EXEC",), *self._wait(step)])
            place = len(step.commands) + 1
            refused = [one for one in replies[:place] if isinstance(one, Exception)]
            if refused or isinstance(replies[place], Exception):
                raise (*refused, replies[place])[0]
            if replies[place] is not None:
                results = cast("list[Any]", replies[place])
                failed = [one for one in results if isinstance(one, Exception)]
                if failed:
                    raise failed[0]
                self._check_copies(replies[place + 1 :])
                return Outcome(True, results)
            await asyncio.sleep(pause_seconds(attempt))
        raise StoreBusy(f"others changed it {_TRIES} times meanwhile; nothing was written")

    def _wait(self, step: Step) -> Sequence[Command]:
        replicas = self._link.settings.wait
        if not replicas or not step.commands:
            return ()
        most = round(self._link.settings.timeout_seconds * 500)
        return [(b"WAIT", b"%d" % replicas, b"%d" % most)]

    def _check_copies(self, replies: Sequence[Any]) -> None:
        for copies in replies:
            if isinstance(copies, Exception):
                raise copies
            if copies < self._link.settings.wait:
                raise StoreUnavailable(
                    f"it was written, but only {copies} of {self._link.settings.wait} replicas had "
                    "it in time, so that a failover may lose it"
                )


class _ScriptsRefusedError(Exception):
    pass


def _words(step: Step, guarded: Sequence[bytes]) -> Command:
    """What the script is given."""
    places = {key: number for number, key in enumerate(guarded, 1)}
    for command in step.commands:
        places.setdefault(command[1], len(places) + 1)
    words: list[bytes] = [b"%d" % len(places), *places]
    words += [b"%d" % len(guarded), b"%d" % len(step.guards), b"%d" % step.answers]
    for key, name, comparison, value in step.guards:
        words += [b"%d" % places[key], name, comparison.encode(), value]
    for name, key, *rest in step.commands:
        words += [b"%d" % len(rest), name, b"%d" % places[key], *rest]
    return words


def _fields(flat: Sequence[bytes]) -> Fields:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _holds(guard: Guard, fields: Fields) -> bool:
    found = fields.get(guard.field)
    if guard.comparison == "=":
        return found == guard.value
    if guard.comparison == "!":
        return found is None
    if guard.comparison == "<=":
        return found is not None and float(found) <= float(guard.value)
    return float(found or b"0") < float(guard.value)
