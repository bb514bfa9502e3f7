"""Records a call from what its session commits, while it runs.

Handlers never raise and never wait: they turn what was committed into items and hand these to the
``Writer``. Items are told apart by LiveKit's own ids, so that nothing is recorded twice, and stand
in the order of their own times. At the end the session's history is gone through for what no event
told.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from livekit.agents import AgentSession, llm

from secondcall.adapters.livekit.consent import Consent
from secondcall.adapters.livekit.items import committed, error_of, handoff_of, with_output
from secondcall.adapters.livekit.lines import key_of
from secondcall.adapters.livekit.opening import answered
from secondcall.adapters.livekit.writer import (
    BeforeStore,
    OpenJournal,
    OpenSession,
    Progress,
    Writer,
)
from secondcall.errors import SecondcallError
from secondcall.memory.calling import CallIds
from secondcall.types import Item, Message, Receipt, ToolCall

__all__ = ["Finished", "Recorder"]

E = TypeVar("E")

_log = logging.getLogger("secondcall")
_STEP_ITEMS = 200
_DERIVED = re.compile(r"(?P<call>.+)_(?P<step>update_\d+|final)")
"""LiveKit's ids for what a tool reports while it runs and after it let the conversation go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What ``Recorder.finish`` came to. ``complete``: the store has all that was to be recorded.
    ``found`` were in the history only, ``withheld`` were off the record."""

    complete: bool
    progress: Progress
    found: int
    withheld: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _History:
    """A session's history by ids, to look up what belongs together."""

    calls: Mapping[str, llm.FunctionCall]
    outputs: Mapping[str, llm.FunctionCallOutput]
    often: Mapping[str, int]


@dataclass(slots=True, eq=False)
class _Attached:
    """A session that is recorded, and what listens to it."""

    session: AgentSession[Any]
    handlers: dict[Any, Callable[[Any], None]]
    is_closed: bool = False


def _handler(work: Callable[[Recorder, E], None]) -> Callable[[Recorder, E], None]:
    """A handler that raises nothing: LiveKit lets a ``TypeError`` through to its own work."""

    @functools.wraps(work)
    def handle(self: Recorder, event: E) -> None:
        try:
            work(self, event)
        except Exception as error:  # a live edge: the call goes on, and it is logged
            _log.error(
                "an event of the call could not be recorded",
                extra={"event_type": type(event).__name__, "error": type(error).__name__},
            )

    return handle


class Recorder:
    """Records one call. ``session_memory`` gives the session to record in, at once or awaited; it
    may raise while the store is down and is asked again. ``journal`` makes the call's journal
    (``Journals.journal``), ``None`` for none. Without ``consent`` everything is on the record.
    What began before ``since``, in seconds since 1970, is another recorder's. ``before_store``: see
    ``Writer``.
    """

    def __init__(
        self,
        session_memory: OpenSession,
        *,
        journal: OpenJournal | None = None,
        consent: Consent | None = None,
        attempt_seconds: float = 10.0,
        retry_seconds: tuple[float, float] = (0.1, 5.0),
        since: float | None = None,
        before_store: BeforeStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.since = since
        """From when on what began is recorded here; ``None``: from the beginning."""
        self._until: float | None = None
        self.consent = Consent() if consent is None else consent
        self.writer = Writer(
            session_memory,
            journal,
            attempt_seconds=attempt_seconds,
            retry_seconds=retry_seconds,
            on_erased=self._was_erased,
            before_store=before_store,
        )
        self._clock = clock
        self._sessions: list[_Attached] = []
        self._seen: dict[tuple[str, str | None], int] = {}
        self._withheld: set[tuple[str, str | None]] = set()
        self._running: dict[str, ToolCall] = {}
        self._calls = CallIds()
        self._errors: dict[tuple[str, str, bool], tuple[str, float, int]] = {}
        self._found = 0
        self._finishing = asyncio.Lock()
        self._closing: asyncio.Task[Finished] | None = None

    @property
    def progress(self) -> Progress:
        """How far the writing is."""
        return self.writer.progress

    def attach(self, session: AgentSession[Any]) -> None:
        """Record what ``session`` commits from now on. Attaching again changes nothing; several
        sessions, at once or one after the other, are recorded side by side, by their times."""
        if any(one.session is session for one in self._sessions):
            return
        attached = _Attached(session, {})
        attached.handlers.update(self._handlers(attached))
        self._sessions.append(attached)
        for name, handler in attached.handlers.items():
            session.on(name, handler)

    def detach(self) -> None:
        """Listen no more. Only after the session's ``close``: its last words come late."""
        sessions, self._sessions = self._sessions, []
        for one in sessions:
            for name, handler in one.handlers.items():
                one.session.off(name, handler)

    def hand_over(self, moment: float) -> None:
        """Leave what begins from ``moment`` on to another recorder, and go on with what began
        before: a reply that is being spoken, a call that runs."""
        self._until = moment

    def record(self, *items: Item) -> None:
        """Record what no event tells, in the same order and under the same consent; at once, and
        without waiting. Give messages an ``id``, or the same words twice are two items."""
        for item in items:
            if isinstance(item, Message) and item.id is None:
                item = replace(item, id=secrets.token_hex(12))
            self._put(item, self._clock() if item.at is None else item.at.timestamp())

    async def forget(self, *, deadline_seconds: float = 10.0) -> Receipt:
        """Forget the caller, on request during the call: everything of the user is erased, with
        what waits here and in the journal, and nothing more is recorded until ``consent.give``.

        Raises: store errors, ``StoreUnavailable`` after ``deadline_seconds``; then nothing more is
        recorded either, and it can be run again.
        """
        if self.consent.recording:  # else a consent that is held until this is done would be lost
            self.consent.withdraw()
        self.consent.covers_nothing_since(self._clock())
        receipt = await answered(
            self._erase(), deadline_seconds, "the caller is not forgotten; call forget() again"
        )
        self._seen.clear()
        self._running.clear()
        self._errors.clear()
        self._calls = CallIds()
        return receipt

    async def _erase(self) -> Receipt:
        await self.writer.drop()
        session = await self.writer.opened()
        receipt = await session.user.forget()
        await self.writer.drop()
        return receipt

    async def finish(
        self, history: llm.ChatContext | None = None, *, deadline_seconds: float = 8.0
    ) -> Finished:
        """Compare with ``history`` (of the attached sessions, their own), record what is missing,
        and wait until the store has everything, at most ``deadline_seconds``. Harmless when
        repeated.

        What the store does not take in time stays in the journal and is still tried in the
        background; ``aclose`` ends that. A complete session is closed, so that its recap is made.
        """
        return await self._finish(history, deadline_seconds=deadline_seconds)

    async def _finish(
        self,
        history: llm.ChatContext | None = None,
        *,
        deadline_seconds: float = 8.0,
        is_over: Callable[[], bool] = lambda: True,
    ) -> Finished:
        started = time.monotonic()
        until = started + deadline_seconds
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._finishing.acquire()
        except TimeoutError:
            return self._report(started, complete=False)
        try:
            for one in self._histories() if history is None else [history]:
                await self._reconcile(one.items)
            complete = await self.writer.settled(until - time.monotonic())
            if complete and is_over():
                await self.writer.tidy()
                await self._close_session()
            return self._report(started, complete=complete)
        finally:
            self._finishing.release()

    async def aclose(self) -> None:
        """Stop listening and writing; what the store does not have stays in the journal."""
        closing, self._closing = self._closing, None
        if closing is not None and not closing.done():
            closing.cancel()
            await asyncio.wait([closing])
        self.detach()
        await self.writer.aclose()

    def _handlers(self, attached: _Attached) -> Mapping[Any, Callable[[Any], None]]:
        return {
            "conversation_item_added": self._item_added,
            "function_tools_executed": self._tools_executed,
            "tool_execution_updated": self._tool_updated,
            "error": self._failed,
            "close": lambda _: self._closed(attached),
        }

    def _histories(self) -> list[llm.ChatContext]:
        return [one.session.history for one in self._sessions]

    def _all_closed(self) -> bool:
        return all(one.is_closed for one in self._sessions)

    @_handler
    def _item_added(self, event: Any) -> None:
        item = event.item
        if isinstance(item, llm.AgentHandoff):
            made: Item | None = handoff_of(item)
        else:
            made = committed(item)
        if made is not None and self._is_ours(item.created_at):
            self._put(made, item.created_at)

    @_handler
    def _tools_executed(self, event: Any) -> None:
        pairs = cast("list[tuple[llm.FunctionCall, llm.FunctionCallOutput | None]]", event.zipped())
        for call, output in pairs:
            begun = committed(call, output)
            if isinstance(begun, ToolCall) and self._is_ours(call.created_at):
                # A tool that raised StopResponse has ended without an output in older releases.
                ended = with_output(begun, "", is_error=False) if output is None else begun
                self._put(ended, call.created_at)

    @_handler
    def _tool_updated(self, event: Any) -> None:
        update = event.update
        if update.type == "tool_call_started":
            call = update.function_call
            begun = committed(call)
            if isinstance(begun, ToolCall) and self._is_ours(call.created_at):
                self._running[call.call_id] = begun
                self._put(begun, call.created_at)
        elif update.type == "tool_call_ended":
            begun = self._running.pop(update.call_id, None)
            deferred = update.id != update.call_id
            if begun is None or (update.status != "done" and not deferred):
                return  # the text of an error is not what the model is told: that comes after
            text = update.message or ""
            failed = update.status != "done"
            if failed:
                text = f"({update.status})"
            ended = with_output(begun, text, is_error=failed)
            self._put(ended, self._clock() if begun.at is None else begun.at.timestamp())

    @_handler
    def _failed(self, event: Any) -> None:
        if not self._is_ours(event.created_at):
            return
        error, source = event.error, event.source
        first = error_of(error, source, event_id="-", at=event.created_at).metadata
        kind = (str(first["source"]), str(first["error"]), bool(first["recoverable"]))
        event_id, at, count = self._errors.get(
            kind, (f"error_{secrets.token_hex(8)}", event.created_at, 0)
        )
        count += 1
        self._errors[kind] = (event_id, at, count)
        if count & (count - 1) == 0:  # the 1st, 2nd, 4th, 8th …: one that repeats does not flood
            made = error_of(error, source, event_id=event_id, at=at, repeats=count)
            self._put(made, event.created_at)

    @_handler
    def _closed(self, attached: _Attached) -> None:
        """A session is over: begin to finish, whatever becomes of those who should call it."""
        attached.is_closed = True
        if self._closing is None or self._closing.done():
            work = self._finish(is_over=self._all_closed)
            self._closing = asyncio.create_task(work, name="secondcall_finish")
            self._closing.add_done_callback(_log_failure)

    def _is_ours(self, begun: float) -> bool:
        """Whether what began then is for this recorder."""
        return (self.since is None or begun >= self.since) and (
            self._until is None or begun < self._until
        )

    def _put(self, item: Item, begun: float) -> None:
        """Hand an item to the writer, if it is on the record and is news."""
        if isinstance(item, ToolCall):
            item = cast("ToolCall", self._calls.named([item])[0])
        key = key_of(item)
        if key in self._withheld or not self.consent.allows(begun, self._clock()):
            self._withheld.add(key)
            return
        content = _content(item)
        if self._seen.get(key) == content:
            return
        self._seen[key] = content
        if self.writer.refusing:
            self.writer.accept()
        self.writer.put(self._timed(item))

    async def _reconcile(self, items: Sequence[llm.ChatItem]) -> None:
        """Record what the history has and no event told; in steps, so that the loop turns."""
        history = _History(
            calls={one.call_id: one for one in items if isinstance(one, llm.FunctionCall)},
            outputs={one.call_id: one for one in items if isinstance(one, llm.FunctionCallOutput)},
            often=Counter(one.id for one in items),
        )
        for number, one in enumerate(list(items)):
            if number % _STEP_ITEMS == _STEP_ITEMS - 1:
                await asyncio.sleep(0)
            try:
                self._compare(one, history)
            except Exception as error:  # a live edge: the other items are still compared
                _log.error(
                    "an item of the call's history could not be recorded",
                    extra={"error": type(error).__name__},
                )

    def _compare(self, one: llm.ChatItem, history: _History) -> None:
        is_last_word = False
        if isinstance(one, llm.FunctionCall):
            item, is_last_word = self._call_in(one, history)
        else:
            item = handoff_of(one) if isinstance(one, llm.AgentHandoff) else committed(one)
        if item is None or not self._is_ours(one.created_at):
            return
        if not self.consent.allows(one.created_at):
            return
        if isinstance(item, ToolCall):
            item = cast("ToolCall", self._calls.named([item])[0])
        key = key_of(item)
        known = self._seen.get(key)
        if key in self._withheld or known == _content(item):
            return
        if known is None or is_last_word or _completes(item, known, history.often[one.id]):
            self._found += known is None
            self._put_known(key, item)

    def _call_in(self, call: llm.FunctionCall, history: _History) -> tuple[Item | None, bool]:
        """A call of the history, and whether this is the last that it said. What a tool reported
        while it ran is left out; what it came to in the end is the output of the call itself."""
        output = history.outputs.get(call.call_id)
        found = _DERIVED.fullmatch(call.call_id)
        if found is None or ("tool_call", found["call"]) not in self._seen:
            return committed(call, output), False
        begun = history.calls.get(found["call"])
        if found["step"] != "final" or begun is None:
            return None, False
        return committed(begun, output), True

    def _put_known(self, key: tuple[str, str | None], item: Item) -> None:
        if not self.writer.refusing:
            self._seen[key] = _content(item)
            self.writer.put(self._timed(item))

    def _timed(self, item: Item) -> Item:
        """The item with a time: what has none was just now, also if a replay records it later."""
        if item.at is not None:
            return item
        return replace(item, at=datetime.fromtimestamp(self._clock(), UTC))

    async def _close_session(self) -> None:
        session = self.writer.session
        if session is not None:
            try:
                await session.close()
            except SecondcallError as error:
                _log.warning(
                    "the recap of the call could not be begun; it is made when the caller is next",
                    extra={"error": type(error).__name__},
                )

    def _was_erased(self) -> None:
        if self.consent.recording:  # else a consent that is held until this is done would be lost
            self.consent.withdraw()
        self.consent.covers_nothing_since(self._clock())
        self._seen.clear()

    def _report(self, started: float, *, complete: bool) -> Finished:
        return Finished(
            complete=complete,
            progress=self.writer.progress,
            found=self._found,
            withheld=len(self._withheld),
            seconds=time.monotonic() - started,
        )


_UNANSWERED = 0


def _content(item: Item) -> int:
    """Tells whether an item has changed; 0 for a call without output."""
    if isinstance(item, Message):
        return hash((item.text, item.interrupted)) or 1
    if item.output is None:
        return _UNANSWERED
    return hash((item.output, item.is_error, str(item.metadata))) or 1


def _completes(item: Item, known: int, times: int) -> bool:
    """Whether the history knows more of a recorded item: the output of a call, or other words.

    A realtime model's item can stand there twice, and the event told the right one.
    """
    if isinstance(item, ToolCall):
        return known == _UNANSWERED and item.output is not None
    return times == 1 and known != _content(item)


def _log_failure(task: asyncio.Task[Finished]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a call could not be finished", extra={"error": type(error).__name__})
