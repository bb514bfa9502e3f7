"""One conversation as LlamaIndex calls it: puts of runs that overlap, gets for the run that asks.

A run puts its user message first and all the rest at its end, so two runs on one memory would mix
their turns. Each run is known by LlamaIndex's own run id; where another run's message came between,
its rest is recorded at the time of its own question, and so stands behind it in reading order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from secondcall.adapters.llama_index.listed import ListedTurns, Summarised
from secondcall.adapters.llama_index.listing import (
    appended,
    dropped,
    is_dropped,
    rearranged,
    without_dropped,
    without_unanswered,
)
from secondcall.adapters.llama_index.messages import ChatItems, chat_from_items
from secondcall.adapters.llama_index.oversize import apart_of, key_of, restored, stored
from secondcall.adapters.llama_index.runs import is_running
from secondcall.adapters.llama_index.view import Insert, Parts, Shown, view
from secondcall.context.assemble import beside
from secondcall.errors import OperationFailed, OverBudget, UserErased
from secondcall.record.append import MAX_BATCH_ITEMS
from secondcall.shortterm.summary import SummarizingBuffer
from secondcall.types import Caller, Item, Message, ToolCall, Trust

if TYPE_CHECKING:
    from datetime import datetime

    from secondcall.abc import TokenCounter
    from secondcall.context.parts import Context
    from secondcall.memory import Memory, SessionMemory, UserMemory
    from secondcall.memory.listed import ListedSession
    from secondcall.types import ItemKind

__all__ = ["OnFailure", "Scope", "Settings", "Talk"]

_log = logging.getLogger("secondcall")

OnFailure = Literal["raise", "degrade"]
_MAX_OPEN = 1_000
_MAX_GIVEN = 100
_LOOKED_BACK = 200
"""So many of the newest items are looked at for the run's own question, and for open calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose conversation it is."""

    tenant_id: str
    user_id: str
    session_id: str
    trust: Trust

    def user_of(self, memory: Memory) -> UserMemory:
        """The user in a memory. Raises: ``InvalidValue``."""
        tenant = memory.tenant(self.tenant_id)
        if self.trust == "verified":
            return tenant.user(self.user_id)
        return tenant.user(Caller(user_id=self.user_id, trust=self.trust, known=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a get gives: ``window`` tokens less ``reserve``, split by ``shares``."""

    window: int
    reserve: int
    shares: tuple[float, float, float]
    recall_limit: int
    summarise: bool
    insert: Insert
    deadline_seconds: float | None
    on_failure: OnFailure

    @property
    def named_shares(self) -> dict[str, float]:
        """The shares by layer."""
        return dict(zip(("buffer", "recall", "state"), self.shares, strict=True))

    @property
    def buffer_tokens(self) -> int:
        """What the turns and their summary may take."""
        return max(1, int((self.window - self.reserve) * self.shares[0]))


@dataclass(slots=True)
class _Turn:
    """A run's turn: its question's id, its last item, whether it was answered."""

    user_id: str
    last: tuple[str, str]
    answered: bool = False


@dataclass(slots=True)
class _Opened:
    """The session in a memory that is open."""

    memory: Memory
    session: SessionMemory
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    buffer: SummarizingBuffer | None = None


class Talk:
    """Puts and gets of one session. Every method runs in the loop of ``memory``."""

    def __init__(self, scope: Scope, settings: Settings) -> None:
        self._scope = scope
        self._settings = settings
        self._items = ChatItems()
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._opened: _Opened | None = None
        self._given: dict[str, tuple[ChatMessage, ChatMessage]] = {}
        """By run the question as it was given to it, which it may write into, and as it is."""
        self._unwritten: list[Item] = []
        self._last_view: list[ChatMessage] = []
        self._attached: Mapping[tuple[ItemKind, str], bytes] = {}
        self._listed = ListedTurns()

    @property
    def counter(self) -> TokenCounter | None:
        """What the memory counts tokens with; ``None`` before its first use."""
        return None if self._opened is None else self._opened.memory.counter

    async def put(self, memory: Memory, messages: Sequence[ChatMessage], run: str | None) -> None:
        """Record messages, all of them or none. Nothing for none.

        Raises: as ``SessionMemory.record``; store errors only without *degrade*. After
        ``UserErased`` the next call begins with a new user.
        """
        opened = await self._open(memory)
        async with opened.lock:
            await self._know_open_calls(opened.session, messages)
            items = self._items.items(messages)
            try:
                if items:
                    await self._record(opened, items, run)
            except UserErased:
                self._begin_anew()
                raise

    async def get(self, memory: Memory, question: str | None, run: str | None) -> list[ChatMessage]:
        """What a model is shown next.

        Raises: ``OverBudget`` naming the part that does not fit; store errors without *degrade*.
        """
        try:
            opened = await self._open(memory)
            found = await self._view(opened, question, run)
        except UserErased:
            self._begin_anew()
            raise
        except OperationFailed as error:
            if self._settings.on_failure == "raise":
                raise
            self._failed("read", error)
            held = ChatItems().items(self._last_view)
            context = Parts([*held, *self._unwritten])
            return view(context, Shown(), insert=self._settings.insert)
        if self._settings.on_failure == "degrade":
            self._last_view = [message.model_copy(deep=True) for message in found]
        return self._as_written(found, run)

    def _as_written(self, found: list[ChatMessage], run: str | None) -> list[ChatMessage]:
        """The view with the run's question as the run has written it: an agent writes its state
        into the message that it is given, once, and means it for all of the run."""
        turn = None if run is None else self._turns.get(run)
        if run is None or turn is None or turn.answered or not found:
            return found
        given, asked = self._given.get(run, (None, None))
        if given is None:
            if found[-1].role is MessageRole.USER:
                self._given[run] = found[-1], found[-1].model_copy(deep=True)
            if len(self._given) > _MAX_GIVEN:
                del self._given[next(iter(self._given))]
        elif given != asked and asked in found:
            place = len(found) - 1 - found[::-1].index(asked)
            found[place] = given.model_copy(deep=True)
        return found

    async def all(self, memory: Memory) -> list[ChatMessage]:
        """The whole list, as it was put."""
        opened = await self._open(memory)
        listed = opened.session.listed()
        items = without_dropped(one.item for one in (await listed.read()).active)
        attached = await listed.attached(apart_of(items))
        return chat_from_items(restored(items, attached, outputs=True), repaired=False)

    async def set(self, memory: Memory, messages: Sequence[ChatMessage]) -> None:
        """Make the list these messages, in one step: those that are in it stay the same items, the
        others are recorded. What is no longer in the list stays in the record."""
        opened = await self._open(memory)
        async with opened.lock:
            self._items = ChatItems()
            made = stored(self._items.items(messages))
            listed = opened.session.listed()
            more = appended(await listed.read(), made.items)
            if more is None:
                await listed.arrange(lambda stands: rearranged(stands, made))
            elif more:
                await listed.append(more, made.attached_to(more))
            self._turns.clear()

    async def reset(self, memory: Memory) -> None:
        """Remove this session's items from the record, and what rests on them."""
        opened = await self._open(memory)
        async with opened.lock:
            await opened.session.listed().clear()
        self._begin_anew()

    async def drop_unanswered(self, memory: Memory) -> int:
        """Take the last question out of the list when nothing answers it; how many items went."""
        opened = await self._open(memory)
        listed = opened.session.listed()
        async with opened.lock:
            for turn in self._turns.values():
                turn.answered = True
            if not await listed.is_rearranged():
                return await self._drop_question(opened.session)
            before = await listed.arrange(without_unanswered)
            wanted = without_unanswered(before)
            return 0 if wanted is None else len(before.active) - len(wanted.active)

    async def _drop_question(self, session: SessionMemory) -> int:
        """Mark the question, which costs the conversation neither its order nor its summary."""
        newest = session.user.items(session_id=session.session_id, newest_first=True)
        count = 0
        async for one in newest:
            count += 1
            if isinstance(one.item, ToolCall) and one.item.output is None:
                continue
            if not isinstance(one.item, Message) or one.item.role != "user":
                break
            if is_dropped(one.item):
                break
            await session.record(dropped(one.item))
            return count
        return 0

    async def _open(self, memory: Memory) -> _Opened:
        """The session; of another memory than the last time, which was closed meanwhile, anew."""
        if self._opened is None or self._opened.memory is not memory:
            session = await self._scope.user_of(memory).session(self._scope.session_id)
            if self._opened is None or self._opened.memory is not memory:
                self._opened = _Opened(memory, session)
        return self._opened

    async def _know_open_calls(
        self, session: SessionMemory, messages: Sequence[ChatMessage]
    ) -> None:
        """Look for the calls of results that come without them: they were put by somebody else."""
        if self._items.waiting or not messages or messages[0].role is not MessageRole.TOOL:
            return
        newest = await session.items(limit=_LOOKED_BACK, newest_first=True)
        calls = [one.item for one in reversed(newest) if isinstance(one.item, ToolCall)]
        self._items = ChatItems(call for call in calls if call.output is None)

    async def _record(self, opened: _Opened, items: Sequence[Item], run: str | None) -> None:
        turn = self._turn(items, run)
        asks = isinstance(items[0], Message) and items[0].role == "user"
        try:
            at = None
            if turn is not None and not asks:
                at = await self._time_of(opened.session, turn)
            placed = [replace(item, at=at) if at else item for item in items]
            await self._write(opened.session, [*self._unwritten, *placed])
            self._unwritten.clear()
            if at is not None and opened.buffer is not None:
                opened.buffer.sort()
        except OperationFailed as error:
            if self._settings.on_failure == "raise":
                raise
            self._unwritten.extend(items)
            self._failed("write", error)
        if turn is not None:
            last = items[-1]
            turn.last = key_of(last)
            turn.answered = isinstance(last, Message) and last.role == "assistant"
            if turn.answered and run is not None:
                self._given.pop(run, None)

    async def _write(self, session: SessionMemory, items: Sequence[Item]) -> None:
        made = stored(items)
        for start in range(0, len(items), MAX_BATCH_ITEMS):
            batch = made.items[start : start + MAX_BATCH_ITEMS]
            attached = made.attached_to(batch)
            if attached:
                await session.listed().append(batch, attached)
            else:
                await session.record(*batch)

    def _turn(self, items: Sequence[Item], run: str | None) -> _Turn | None:
        """The turn of a run; begun by its question."""
        if run is None:
            return None
        asked = items[0]
        if isinstance(asked, Message) and asked.role == "user":
            user_id = asked.id or ""
            self._turns[run] = _Turn(user_id, ("message", user_id))
            while len(self._turns) > _MAX_OPEN:
                self._turns.popitem(last=False)
        return self._turns.get(run)

    async def _time_of(self, session: SessionMemory, turn: _Turn) -> datetime | None:
        """When the turn's last item was recorded, if another question was recorded after it."""
        between = False
        looked = 0
        newest = session.user.items(session_id=session.session_id, newest_first=True)
        async for one in newest:
            looked += 1
            if (one.key.kind, one.key.id) == turn.last:
                return one.at if between else None
            if looked == _LOOKED_BACK:
                break
            if isinstance(one.item, Message) and one.item.role == "user":
                between = True
        return None

    async def _view(
        self, opened: _Opened, question: str | None, run: str | None
    ) -> list[ChatMessage]:
        turn = None if run is None else self._turns.get(run)
        others = [
            one.user_id
            for other, one in self._turns.items()
            if other != run and not one.answered and is_running(other)
        ]
        if question is None and turn is not None and others:
            question = await self._words_of(opened.session, turn)
        own = None if turn is None else turn.user_id
        context, places = await self._shown(opened, question, own)
        context = replace(
            context, items=await self._whole(opened.session, without_dropped(context.items))
        )
        shown = Shown(own=own, others=others, places=places)
        return view(context, shown, insert=self._settings.insert)

    async def _shown(
        self, opened: _Opened, question: str | None, own: str | None
    ) -> tuple[Parts, Mapping[tuple[ItemKind, str], int]]:
        """What is shown, and the places of its items where the list was put in order."""
        listed = opened.session.listed()
        settings, counter, turns = self._settings, opened.memory.counter, self._listed
        room = settings.window - settings.reserve
        if not await listed.is_rearranged():
            return await self._shown_of_record(opened, question), {}
        turns.take(await listed.read())
        if question is None:
            question = turns.question(own)
        try:
            context = await self._context(opened, question)
            remembered = Parts((), "", context.state, context.recall)
            taken = context.tokens["state"] + context.tokens["recall"]
        except OverBudget:  # of the record, which has more than the list
            context, remembered, taken = None, Parts(()), 0
        try:
            shown = self._turns_within(listed, room - taken, counter)
        except OverBudget:
            remembered, shown = Parts(()), self._turns_within(listed, room, counter)
        if context is not None and remembered.recall:
            recall = beside(context, turns.last_keys, counter)
            remembered = replace(remembered, recall=recall)
        places = {key_of(item): place for place, item in enumerate(shown.items)}
        return replace(remembered, items=shown.items, summary=shown.summary), places

    async def _shown_of_record(self, opened: _Opened, question: str | None) -> Parts:
        listed, counter, turns = opened.session.listed(), opened.memory.counter, self._listed
        room = self._settings.window - self._settings.reserve
        try:
            found = await self._context(opened, question)
            items = found.items
            if items and is_dropped(items[-1]):
                turns.take(await listed.read())
                taken = sum(found.tokens[layer] for layer in ("state", "recall", "summary"))
                items = turns.within(room - taken, counter)
            return Parts(items, found.summary, found.state, found.recall)
        except OverBudget:  # there calls that were made together are counted one by one
            turns.take(await listed.read())
            return Parts(turns.within(room, counter))

    def _turns_within(self, listed: ListedSession, limit: int, counter: TokenCounter) -> Summarised:
        """The newest turns of the list, with a summary of the others where they do not all fit."""
        items = self._listed.within(limit, counter)
        if not self._settings.summarise or self._listed.is_whole:
            return Summarised(items, "")
        try:
            found = self._listed.summarised(listed, self._settings.buffer_tokens, limit, counter)
        except OverBudget:  # the newest turn takes more than the buffer's share
            found = None
        return Summarised(self._listed.within(limit, counter), "") if found is None else found

    async def _whole(self, session: SessionMemory, items: Sequence[Item]) -> Sequence[Item]:
        """The items with what is attached to them; that of the last time is not read again."""
        wanted = apart_of(items)
        missing = [key for key in wanted if key not in self._attached]
        read: Mapping[tuple[ItemKind, str], bytes] = {}
        if missing:
            read = await session.listed().attached(missing)
        held = {**self._attached, **read}
        self._attached = {key: held[key] for key in wanted if key in held}
        return restored(items, self._attached) if wanted else items

    async def _words_of(self, session: SessionMemory, turn: _Turn) -> str | None:
        """The run's own question, when another one may be newer."""
        for one in await session.items(limit=_LOOKED_BACK, newest_first=True):
            if one.key.id == turn.user_id and isinstance(one.item, Message):
                return one.item.text
        return None

    async def _context(self, opened: _Opened, question: str | None) -> Context:
        settings = self._settings
        if settings.summarise and opened.buffer is None:
            buffer = await opened.session.buffer(settings.buffer_tokens)
            opened.buffer = buffer if isinstance(buffer, SummarizingBuffer) else None
        try:
            return await opened.session.context(
                question,
                window=settings.window,
                reserve=settings.reserve,
                shares=settings.named_shares,
                limit=settings.recall_limit,
                deadline_seconds=settings.deadline_seconds,
            )
        except OverBudget:  # the newest turn is larger than its share: it gets all there is
            plain = await opened.session.user.session(opened.session.session_id)
            return await plain.context(
                "",
                window=settings.window,
                reserve=settings.reserve,
                shares={"buffer": 1.0},
                limit=settings.recall_limit,
            )

    def _begin_anew(self) -> None:
        """Know nothing of a user who was forgotten; the next call begins with a new one."""
        self._opened, self._items = None, ChatItems()
        self._turns.clear()
        self._given.clear()
        self._unwritten.clear()
        self._last_view = []
        self._attached = {}
        self._listed = ListedTurns()

    def _failed(self, what: str, error: OperationFailed) -> None:
        _log.error(
            "the store failed; the conversation goes on with what this process holds",
            extra={
                "operation": what,
                "error": type(error).__name__,
                "session_id": self._scope.session_id,
                "unwritten_items": len(self._unwritten),
            },
        )
