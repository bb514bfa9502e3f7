"""Who is calling: waits for the participant, asks the memory, and looks again when more is known.

Whatever fails, the call goes on: with nobody, nothing usable or no store the caller is anonymous,
with a user id for this call alone. ``CallerWatch`` joins that to the caller's own memory as soon as
a late attribute, a late participant or a store that is back says whose it is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from livekit.agents import JobContext

from secondcall.adapters.livekit.attributes import (
    CallerFields,
    CallerOptions,
    CallerSource,
    Reading,
    Rules,
    read_caller,
)
from secondcall.adapters.livekit.opening import is_misuse
from secondcall.errors import UsageError
from secondcall.types import Caller

if TYPE_CHECKING:
    from livekit import rtc

    from secondcall.memory.tenant import Memory

__all__ = ["CallerWatch", "ResolvedCaller", "resolve_caller"]

T = TypeVar("T")

_log = logging.getLogger("secondcall.livekit")
_CHANGES = (
    "participant_connected",
    "participant_attributes_changed",
    "participant_metadata_changed",
    "participant_permissions_changed",
    "room_metadata_changed",
    "connection_state_changed",
    "disconnected",
)
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0)
_CLOSE_SECONDS = 2.0
_late: set[asyncio.Future[Any]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCaller:
    """Who is calling, and what says so.

    ``participant`` is the participant's identity, ``None`` while nobody has come. ``pending``: the
    store could not be asked, so a caller who may be known is anonymous for now. ``fields`` are what
    identified the caller or, then, will.
    """

    caller: Caller
    participant: str | None
    source: CallerSource
    outbound: bool = False
    pending: bool = False
    fields: CallerFields = field(default_factory=CallerFields)


async def resolve_caller(
    ctx: JobContext, memory: Memory, **options: Unpack[CallerOptions]
) -> ResolvedCaller:
    """Who calls in this job's room, or in an outbound call who is called.

    Connects the job if it is not, and waits for the participant unless the job's metadata say
    already who it is. An id of your backend is *verified*, a phone number *claimed*.

    Raises: ``InvalidValue`` for a ``default_region`` that is none, ``MissingExtra`` for one without
    ``phonenumbers``; what ``ctx.connect()`` raises.
    """
    rules = Rules(**options)
    reading = await _settled(ctx, rules)
    if reading.problems:
        _log.warning(
            "not everything that could say who is calling can be used",
            extra={"job_id": ctx.job.id, "problems": list(reading.problems)},
        )
    try:
        caller = await _identify(memory, reading.fields, rules)
        pending = False
    except Exception as error:  # a live edge: whatever a store does, the call goes on; it is logged
        if is_misuse(error):
            raise
        _log.warning(
            "the caller could not be looked up and is anonymous for now",
            extra={"job_id": ctx.job.id, "error": type(error).__name__},
        )
        caller, pending = await memory.identify(), reading.fields.given
    return _resolved(reading, caller, pending=pending)


class CallerWatch:
    """Looks again who is calling, whenever the room tells something new, until ``aclose``.

    When an anonymous caller becomes known, what was recorded under the id of this call is joined to
    the caller's memory (an alias, which ``memory.unmerge`` takes back), and ``on_known`` is called
    with the new ``ResolvedCaller``. It is also called when a caller by telephone is verified; if
    that is somebody else than the number said, nothing is joined. Only the participant that was
    resolved is watched, or the first to come if nobody had.
    """

    def __init__(
        self,
        ctx: JobContext,
        memory: Memory,
        resolved: ResolvedCaller,
        *,
        on_known: Callable[[ResolvedCaller], Awaitable[None] | None] | None = None,
        joins: Callable[[], bool] = lambda: True,
        **options: Unpack[CallerOptions],
    ) -> None:
        self._ctx = ctx
        self._memory = memory
        self._rules = Rules(**options)
        self._resolved = resolved
        self._on_known = on_known
        self._joins = joins
        self._participant = resolved.participant or self._rules.participant
        self._seen = None if resolved.pending else resolved.fields
        self._failures = 1 if resolved.pending else 0
        self._is_closing = False
        self._changed = asyncio.Event()
        self._changed.set()
        for event in _CHANGES:
            ctx.room.on(event, self._note)
        self._task = asyncio.create_task(self._run(), name="secondcall caller watch")

    @property
    def resolved(self) -> ResolvedCaller:
        """Who is calling, as far as it is known by now."""
        return self._resolved

    async def aclose(self) -> None:
        """Look a last time, for at most 2 s, and stop. Harmless when repeated."""
        self._is_closing = True
        for event in _CHANGES:
            self._ctx.room.off(event, self._note)
        self._changed.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _note(self, *_: object) -> None:
        self._changed.set()

    async def _run(self) -> None:
        is_last = False
        while not is_last:
            await self._next_change()
            self._changed.clear()
            is_last = self._is_closing
            try:
                await self._look_again()
                self._failures = 0
            except Exception as error:  # a live edge: the caller stays unknown, the call goes on
                self._failures += 1
                _log.warning(
                    "the caller could not be looked up again",
                    extra={"job_id": self._ctx.job.id, "error": type(error).__name__},
                )

    async def _next_change(self) -> None:
        if not self._failures:
            await self._changed.wait()
        else:
            step = min(self._failures, len(_RETRY_SECONDS)) - 1
            await _wait(self._changed, _RETRY_SECONDS[step])

    async def _look_again(self) -> None:
        reading = read_caller(self._ctx, replace(self._rules, participant=self._participant))
        # Pinned at first sight: when the first one leaves, the next is not the caller.
        self._participant = self._participant or reading.participant
        if reading.participant is None:
            if not self._resolved.pending:
                return
            reading = replace(reading, fields=self._resolved.fields, source=self._resolved.source)
        if reading.fields == self._seen or not reading.fields.given:
            return
        caller = await _identify(self._memory, reading.fields, self._rules)
        await self._join(caller)
        self._seen = reading.fields
        await self._take(reading, caller)

    async def _join(self, caller: Caller) -> None:
        """Make what was recorded under the id of this call the caller's."""
        before = self._resolved.caller
        if not before.anonymous or caller.anonymous:
            return
        if not (self._joins() or await self._memory.user(before.user_id).known()):
            return
        try:
            await self._memory.merge(
                before.user_id, caller.user_id, reason="recognised during the call"
            )
        except UsageError as error:
            _log.error(
                "the beginning of the call could not be joined to its caller",
                extra={"job_id": self._ctx.job.id, "error": type(error).__name__},
            )

    async def _take(self, reading: Reading, caller: Caller) -> None:
        before = self._resolved.caller
        if caller.anonymous:
            self._resolved = replace(self._resolved, pending=False)
        # An attribute that is taken away takes no proof away.
        elif before.trust == "claimed" or caller.trust == "verified":
            resolved = _resolved(reading, caller)
            participant = resolved.participant or self._resolved.participant
            self._resolved = replace(resolved, participant=participant)
            if (caller.user_id, caller.trust) != (before.user_id, before.trust):
                await self._tell()

    async def _tell(self) -> None:
        if self._on_known is not None:
            told = self._on_known(self._resolved)
            if inspect.isawaitable(told):
                await told


def _resolved(reading: Reading, caller: Caller, *, pending: bool = False) -> ResolvedCaller:
    return ResolvedCaller(
        caller=caller,
        participant=reading.participant,
        source="anonymous" if caller.anonymous and not pending else reading.source,
        outbound=reading.outbound,
        pending=pending,
        fields=reading.fields,
    )


async def _identify(memory: Memory, fields: CallerFields, rules: Rules) -> Caller:
    """Raises: ``TimeoutError`` after ``identify_seconds``; the look-up then ends by itself."""
    work = fields.identify(memory, default_region=rules.default_region)
    return await _within(work, rules.identify_seconds)


async def _within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Like a timeout, but without waiting for work that cannot be cancelled, as in a thread."""
    task = asyncio.ensure_future(work)
    _late.add(task)
    task.add_done_callback(_ended)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        raise TimeoutError
    return task.result()


def _ended(task: asyncio.Future[Any]) -> None:
    _late.discard(task)
    if not task.cancelled():
        task.exception()  # seen: nobody may be left who waits for it


async def _settled(ctx: JobContext, rules: Rules) -> Reading:
    """What is known of the caller once waiting would add nothing, or its time is up."""
    reading = read_caller(ctx, rules)
    if reading.is_settled:
        return reading
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + rules.timeout_seconds
    if not ctx.room.isconnected():
        try:
            await _within(ctx.connect(), rules.timeout_seconds)
        except TimeoutError:
            return reading
    patience = ends_at
    async with _changes(ctx.room) as changed:
        while True:
            reading = read_caller(ctx, rules)
            if reading.is_settled or _is_closed(ctx):
                return reading
            if reading.participant is not None:
                patience = min(patience, loop.time() + rules.attribute_seconds)
            left = patience - loop.time()
            if left <= 0:
                return reading
            await _wait(changed, left)


@asynccontextmanager
async def _changes(room: rtc.Room) -> AsyncGenerator[asyncio.Event]:
    changed = asyncio.Event()

    def note(*_: object) -> None:
        changed.set()

    for event in _CHANGES:
        room.on(event, note)
    try:
        yield changed
    finally:
        for event in _CHANGES:
            room.off(event, note)


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return
    changed.clear()


def _is_closed(ctx: JobContext) -> bool:
    """Whether the room is gone; one that a test made up was never connected."""
    return not ctx.is_fake_job() and not ctx.room.isconnected()
