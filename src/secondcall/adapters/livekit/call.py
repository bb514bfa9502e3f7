"""One call from end to end: who it is, what is known, what is said, and that none of it is lost.

``call`` puts the parts of this package together, each of which stands alone too. Whatever fails in
them costs the call its memory at worst, never a reply.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Generic, TypeVar

from livekit.agents import Agent, AgentSession, JobContext

from secondcall.adapters.livekit.agent import attach_memory, change_memory, with_memory
from secondcall.adapters.livekit.caller import CallerWatch, ResolvedCaller, resolve_caller
from secondcall.adapters.livekit.consent import Consent
from secondcall.adapters.livekit.continuing import (
    Held,
    continued_session,
    holder_of,
    own_session_id,
)
from secondcall.adapters.livekit.ending import Ending
from secondcall.adapters.livekit.insisting import Insisting
from secondcall.adapters.livekit.opening import Opened, is_misuse, looked_at
from secondcall.adapters.livekit.preload import Preloaded, preload
from secondcall.adapters.livekit.recording import Finished, Recorder
from secondcall.adapters.livekit.replay import Journals
from secondcall.adapters.livekit.sessions import CallSessions
from secondcall.adapters.livekit.settings import CallNotes, CallSettings
from secondcall.adapters.livekit.source import CallMemory, StatefulMemory
from secondcall.adapters.livekit.speaker import Speaker
from secondcall.adapters.livekit.tools import (
    NO_CONSENT,
    NO_MEMORY,
    FunctionTool,
    StateSchemas,
    tools_of,
)
from secondcall.adapters.livekit.userdata import CallUserdata
from secondcall.memory import Memory, SessionMemory, UserMemory
from secondcall.shortterm.userdata import ShortTermMemory
from secondcall.tools import MemoryTools, StateTools
from secondcall.types import Brief, ItemKey, Receipt

__all__ = ["LiveCall", "call"]

_log = logging.getLogger("secondcall.livekit")
_OPEN_SECONDS = 2.0
_REPLAY_SECONDS = 0.5
_CONTINUED_SHARE = 0.3
_CONTINUED_TURNS = 6
_OWN_SECONDS = 3.0
_FORGET_SECONDS = 10.0
_STILL_TOLD = (
    "a realtime model has not let its context be changed and may still hold what it was told; it "
    "is tried again until the session ends"
)

T = TypeVar("T")


@asynccontextmanager
async def call(
    ctx: JobContext,
    memory: Memory,
    *,
    userdata: ShortTermMemory[T] | type[T] | T = CallNotes,
    settings: CallSettings | None = None,
) -> AsyncGenerator[LiveCall[T]]:
    """The call of this job, with its memory: who calls is found, the brief loaded, and what is
    said recorded until the job ends.

    Leaving the block ends nothing: a session goes on after the entrypoint has returned. A memory
    that is not open is opened, and closed with the call. ``userdata`` is your dataclass or pydantic
    model for ``LiveCall.userdata``, or a ``ShortTermMemory`` of your own, made for this call.

    Raises: ``InvalidValue``, ``MissingExtra`` for wrong settings, what ``ctx.connect()`` raises;
    nothing that a store does.
    """
    live = LiveCall(ctx, memory, userdata, settings or CallSettings())
    try:
        await live.begin()
        yield live
    except BaseException:  # cancelled too: what was begun is ended; raised on
        if not live.is_running:  # else its last words come yet, and the job ends it
            await live.aclose()
        raise
    if live.is_over:
        await live.aclose()


class LiveCall(Generic[T]):
    """A call that goes on. Made by ``call``.

    ``resolved`` says who calls, ``user`` and ``session`` are the handles of the caller and of this
    conversation; all three may become others while the call runs, when it becomes known who it is.
    ``userdata`` is for ``AgentSession(userdata=...)``, ``recorder`` what writes the record. Several
    sessions of agents may draw on one call: all are recorded, by their times.
    """

    resolved: ResolvedCaller
    user: UserMemory
    session: SessionMemory
    recorder: Recorder

    def __init__(
        self,
        ctx: JobContext,
        memory: Memory,
        userdata: ShortTermMemory[T] | type[T] | T,
        settings: CallSettings,
    ) -> None:
        self._ctx = ctx
        self._target = memory
        self._memory = memory
        self._settings = settings
        self._userdata: CallUserdata[T] = CallUserdata(userdata, settings)
        self.userdata: ShortTermMemory[T] = self._userdata.memory
        self.consent = Consent(given=settings.consent)
        self._anew = Insisting(self._begin_anew, wanted=self._is_anew)
        self.consent.on_given = self._anew.begin
        self.consent.is_held = lambda: self._forgetting
        self._holder = holder_of(ctx)
        self._opened = Opened(memory)
        self._preloaded = Preloaded()
        self._sessions = CallSessions()
        self._rest: asyncio.Future[None] | None = None
        self._tools: list[MemoryTools] = []
        self._tool_settings: dict[str, Any] = {}
        self._schemas: list[StateSchemas] = []
        self._journals: Journals | None = None
        self._replaying: asyncio.Future[Any] | None = None
        self._endings: list[Ending] = []
        self._ended = 0
        self._forgotten = self._forgetting = False
        self._forget_lock = asyncio.Lock()
        self._held: Held | None = None
        self._watch: CallerWatch | None = None
        self._source: CallMemory
        self._speaker: Speaker

    async def begin(self) -> None:
        """Find out who calls, and load what is known of them."""
        await self._open()
        if (folder := self._settings.journal) is not False:
            self._journals = Journals(self._target, None if folder is True else folder)
            self._replaying = asyncio.ensure_future(self._journals.replay())
            self._replaying.add_done_callback(looked_at)
            await asyncio.wait({self._replaying}, timeout=_REPLAY_SECONDS)
        self.resolved = await resolve_caller(self._ctx, self._memory, **self._settings.caller)
        self.user = self._memory.user(self.resolved.caller)
        session_id, continued = await self._session_id()
        self.session = await self.user.session(session_id)
        if not self.resolved.pending:  # else it would be waited for in vain; see ``_recognised``
            await self._userdata.keep_in(self.session)
        await self._preload(continued)
        self._source = self._made_source()
        self.recorder = self._made_recorder()
        self._end_with(self.recorder)
        self._held = Held(lambda: self.session, self._holder, also=self._save_userdata)
        self._watch = CallerWatch(
            self._ctx,
            self._memory,
            self.resolved,
            on_known=self._recognised,
            joins=lambda: self.consent.ever_given,
            **self._settings.caller,
        )

    @property
    def brief(self) -> Brief | None:
        """What the agents know of the caller; ``None`` when it was not there in time."""
        return self._preloaded.brief

    @property
    def preloaded(self) -> Preloaded:
        """What was loaded, and what is missing."""
        return self._preloaded

    @property
    def is_over(self) -> bool:
        """Whether the agents' sessions are closed."""
        return self._sessions.is_over

    @property
    def is_running(self) -> bool:
        """Whether an agent's session is open."""
        return self._sessions.is_running

    def agent(self, agent: Agent) -> Agent:
        """The agent with memory, and with it every agent that it hands over to; its session is
        recorded from its first word on."""
        return with_memory(agent, self._source)

    def attach(self, session: AgentSession[Any]) -> None:
        """Give all agents of a session this memory, and record it. Before ``session.start``; not
        needed where its first agent is from ``agent``."""
        attach_memory(session, self._source)

    async def tools(
        self,
        *,
        state: StateTools | None = None,
        deadline_seconds: float = 0.5,
        time_zone: str = "UTC",
    ) -> list[FunctionTool]:
        """Function tools for the agents of this call: ``remember``, ``recall``, ``promise``,
        ``keep_promise``, ``open_issue``, ``resolve_issue``, and those of a ``state``.

        What they remember names the caller's newest words as its source. Raises: ``InvalidValue``.
        """
        self._tool_settings = {"deadline_seconds": deadline_seconds, "time_zone": time_zone}
        self._tools.append(self._made_tools())
        made = tools_of(lambda: self._tools[-1], refused=self._refused)
        if state is not None:
            schemas = StateSchemas(state, refused=self._refused)
            made += await schemas.load()
            self._schemas.append(schemas)
        return made

    async def forget(self, *, deadline_seconds: float = _FORGET_SECONDS) -> Receipt:
        """Forget the caller, who asked for it in this call: all that is stored, what the agents
        were told, the userdata. Nothing more is recorded until ``consent.give()``. The receipt is
        not complete where a realtime model keeps its context, which is tried again.

        Raises: store errors, ``StoreUnavailable`` after ``deadline_seconds``. Then the agents know
        nothing of the caller and nothing more is recorded either, and it can be run again. A new
        consent does so until it succeeds, and is in effect from then on (``consent.recording``).
        """
        self.consent.withdraw()
        await self._anew.stop()
        async with self._forget_lock:
            return await self._forget(deadline_seconds)

    async def _forget(self, deadline_seconds: float) -> Receipt:
        self._forgetting = True
        self._userdata.let_go()
        self.userdata.clear()
        self._preloaded = Preloaded()
        self._source.retire()
        await self._tell()
        # A write that waits for the store would make the user anew.
        await asyncio.gather(*(one.aclose(deadline_seconds=0) for one in self._tools))
        receipt = await self.recorder.forget(deadline_seconds=deadline_seconds)
        self._forgetting = False
        if self.resolved.fields.given:
            # What led to the caller was forgotten too: with a new consent they are somebody new.
            self._forgotten = True
            self.resolved = self._speaker.resolved = replace(self.resolved, pending=True)
        await self._rebind(self.user.user_id)
        await self._userdata.keep_in(self.session)
        if not await self._give():
            detail = "; ".join(filter(None, (receipt.detail, _STILL_TOLD)))
            return replace(receipt, complete=False, detail=detail)
        return receipt

    async def aclose(self) -> None:
        """End it now, as the job's end does: what was said is recorded or left in the journal.
        Harmless when repeated."""
        await asyncio.gather(*(one.on_shutdown("") for one in self._endings))
        await self._finished()

    # Beginning

    async def _open(self) -> None:
        """Open the memory; with a store that cannot be, this call has one of its own, and what is
        said goes to the journal and to the store as soon as that is back."""
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await self._opened.open()
        except Exception as error:  # a live edge: a call goes on without memory; it is logged
            if is_misuse(error):
                raise
            _log.error("a call goes on without its memory", extra={"error": type(error).__name__})
            self._memory = await Memory.open("memory://").__aenter__()

    async def _session_id(self) -> tuple[str, bool]:
        """The session of this call, and whether it is another call's."""
        if self._settings.session_id is not None:
            return self._settings.session_id, False
        found: str | None = None
        if not self.resolved.caller.anonymous:
            found = await continued_session(
                self.user,
                self._holder,
                grace_seconds=self._settings.grace_seconds,
                deadline_seconds=_CONTINUED_SHARE * self._settings.preload_seconds,
            )
        if found is not None:
            _log.info("a call continues the one before it", extra={"session_id": found})
            return found, True
        return own_session_id(self._ctx.job.id), False

    async def _preload(self, continued: bool) -> None:
        turns = self._settings.last_turns
        self._preloaded = await preload(
            self.user,
            deadline_seconds=self._settings.preload_seconds,
            max_tokens=self._settings.max_tokens,
            last_turns=max(turns, _CONTINUED_TURNS) if continued else turns,
        )

    # Its parts

    def _made_source(self) -> CallMemory:
        return StatefulMemory(
            self.user,
            preloaded=self._preloaded,
            session=self.session,
            options=self._settings.lookup,
            window=self._settings.window,
            on_session=self._entered,
            schemas=self._schemas,
        )

    def _made_recorder(self, since: float | None = None) -> Recorder:
        journals = self._journals
        speaker = self._speaker = Speaker(
            self.resolved,
            self.session.session_id,
            opened=self._opened,
            apart=self._memory is not self._target,
            default_region=self._settings.caller.get("default_region"),
        )
        return Recorder(
            speaker.session,
            journal=None if journals is None else lambda: speaker.journal(journals),
            consent=self.consent,
            since=since,
            before_store=self._replies_first,
        )

    async def _replies_first(self) -> None:
        await self._source.lookup.idle()

    def _end_with(self, recorder: Recorder) -> None:
        """Finish this record too, when the job ends."""
        seconds = self._settings.end_seconds
        ending = Ending(self._ctx, recorder, deadline_seconds=seconds, then=self._after)
        self._endings.append(ending)

    def _refused(self) -> str | None:
        """Why nothing may be remembered now."""
        if not self.consent.recording:
            return NO_CONSENT
        self._anew.begin()
        return None if self._memory is self._target and not self._forgotten else NO_MEMORY

    def _made_tools(self) -> MemoryTools:
        return MemoryTools(self.session, sources=self._newest_words, **self._tool_settings)

    def _newest_words(self) -> list[ItemKey]:
        """The item that the caller's newest words are recorded as."""
        words = self._sessions.newest_words() if self.consent.recording else None
        if words is None:
            return []
        return [ItemKey(self.user.user_id, self.session.session_id, "message", words.id)]

    def _entered(self, session: AgentSession[Any]) -> None:
        """The first agent of a session enters."""
        if self._rest is not None:
            _log.error("a session draws on a call that is over; it is not recorded")
        elif self._sessions.enter(session):
            self.recorder.attach(session)
            attach_memory(session, self._source)

    # Becoming known

    async def _recognised(self, resolved: ResolvedCaller) -> None:
        """It became known who is calling: take their memory from here on."""
        before, self.resolved = self.resolved.caller, resolved
        other = not before.anonymous and before.user_id != resolved.caller.user_id
        if other:
            _log.warning("a call is of somebody else than its number said")
            await self._part_from(before.user_id)
        else:
            self._speaker.resolved = resolved
            await self._rebind(before.user_id)
            if self._forgetting:
                return  # they have asked for it, and until it is done nothing of them is told
        await self._preload(False)
        await self._give()
        if not self._userdata.has_place:
            await self._userdata.keep_in(self.session)

    def _is_anew(self) -> bool:
        """Whether somebody who asked to be forgotten has consented since, and is not known anew."""
        return self.consent.wanted and (self._forgetting or self._forgotten)

    async def _begin_anew(self) -> None:
        """Forget first what could not be forgotten, then find out under which id they are known
        now. Raises: store errors."""
        async with self._forget_lock:
            if self._forgetting:
                await self._forget(_FORGET_SECONDS)
        if self.consent.wanted:
            self.consent.give()
            if self._forgotten:
                await self._renew()

    async def _renew(self) -> None:
        region = self._settings.caller.get("default_region")
        caller = await self.resolved.fields.identify(self._opened.memory, default_region=region)
        before = self.resolved.caller.user_id
        self.resolved = replace(self.resolved, caller=caller, pending=False)
        self._speaker.resolved, self._forgotten = self.resolved, False
        await self._rebind(before)
        await self._userdata.keep_in(self.session)
        await self._give()

    async def _part_from(self, user_id: str) -> None:
        """From here on it is another user's call: what was said stays where it was said, and so
        does what was kept of the userdata."""
        was_kept = self._userdata.let_go()
        now = time.time()
        self.recorder.hand_over(now)
        self.recorder = self._made_recorder(since=now)
        self._end_with(self.recorder)
        for session in self._sessions.open:
            self.recorder.attach(session)
        if was_kept:
            self.userdata.clear()
        await self._rebind(user_id)
        self._source.retire()
        await self._userdata.keep_in(self.session)

    async def _rebind(self, user_id: str) -> None:
        """New handles for the caller, and tools that go by them instead of those of ``user_id``."""
        self.user = self._memory.user(self.resolved.caller)
        self.session = await self.user.session(self.session.session_id)
        if self._held is not None:
            await self._held.follow()
        if self._tools:
            self._tools.append(self._made_tools())
        for one in self._schemas:
            one.state.follow(user_id, self.session)

    async def _give(self) -> bool:
        """Let the agents go by what is known now; whether all do."""
        self._source = self._made_source()
        return await self._tell()

    async def _tell(self) -> bool:
        """Give the agents at work what their source has now; whether all have it."""
        told = True
        for session in self._sessions.open:
            self.recorder.attach(session)
            told &= await change_memory(session, self._source).tell()
        return told

    # The end

    async def _after(self, finished: Finished) -> None:
        """One of the records is done; after the last of them comes the rest."""
        del finished
        self._ended += 1
        if self._ended >= len(self._endings):
            await self._finished()

    async def _finished(self) -> None:
        """Do the rest once, whoever stops waiting for it."""
        if self._rest is None:
            self._rest = asyncio.ensure_future(self._finish())
            self._rest.add_done_callback(looked_at)
        await asyncio.shield(self._rest)

    async def _finish(self) -> None:
        """What is to be done after the record, each part for itself."""
        if self._endings:
            self._source.retire()
        parts: list[Awaitable[object]] = [
            tools.aclose(deadline_seconds=_OWN_SECONDS) for tools in self._tools
        ]
        parts.append(self._anew.stop())
        if self._watch is not None:
            parts.append(self._watch.aclose())
        if self._held is not None:
            grace = self._settings.grace_seconds if self._sessions.on_purpose else 0.0
            parts.append(self._held.aclose(over_seconds=grace))
        parts.append(asyncio.wait_for(self._save_userdata(), _OWN_SECONDS))
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error(
                    "a part of a call could not be ended",
                    extra={"error": type(outcome).__name__},
                )
        if self._memory is not self._target:
            await self._memory.aclose()
        await self._opened.close()

    async def _save_userdata(self) -> None:
        if self.consent.recording:
            await self._userdata.save()
