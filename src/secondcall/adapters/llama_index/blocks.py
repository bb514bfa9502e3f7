"""Memory blocks for LlamaIndex's ``Memory(memory_blocks=[...])``: a user's recall, facts, state.

``Memory`` asks its blocks for text at every ``get``, and gives them messages only when its own
queue overflows, perhaps twice, perhaps after an error in another block. So here

- whose memory it is, is said when the block is made, and which session, with every call: nothing of
  a call stays in a block, and blocks may be shared by any number of ``Memory`` objects;
- a message that comes again is not written again, and one that the session's record has already,
  as with ``SecondCallAsyncChatStore``, is not written at all. With that store recall finds a
  message at once; without it, only what has left the queue;
- a store that is down fails no turn, unless ``on_failure="raise"``: what could not be written is
  held, and written with the next call; what could not be read is left out; both are logged;
- no message is changed, and none of their ``additional_kwargs``.

What they give is fenced data, and is cut by whole lines when ``Memory`` asks for less.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory.memory import BaseMemoryBlock

from secondcall.adapters.llama_index.bound import Bound, bound_to
from secondcall.adapters.llama_index.rows import (
    RowItem,
    items_of_rows,
    mark_of_message,
    rows_from,
)
from secondcall.adapters.llama_index.wrappers import LlamaIndexCounter
from secondcall.context.render import CLOSING, OPENING, fact_line, fence, fit, item_line, quote
from secondcall.context.status import status_of
from secondcall.errors import OperationFailed, UserErased
from secondcall.types import Fact, Message

if TYPE_CHECKING:
    from secondcall.memory import Memory, UserMemory
    from secondcall.types import RecalledItem

__all__ = ["FactsMemoryBlock", "RecallMemoryBlock", "StateMemoryBlock"]

_log = logging.getLogger("secondcall")
_MAX_HELD = 10_000
_counter = LlamaIndexCounter()


class _UserBlock(BaseMemoryBlock[str]):
    """What the three blocks have in common: whose they are, and how they fail.

    Each says its constructor anew: for a pydantic class without one, type checkers make one of the
    fields, which has no ``url`` and no ``memory``.
    """

    name: str = "secondcall"
    priority: int = 1
    user_id: str
    tenant_id: str | None = None
    store: str | None = None
    handle: str | None = None
    max_tokens: int = 500
    on_failure: Literal["degrade", "raise"] = "degrade"
    _bound: Bound = PrivateAttr()

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        store: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        handle: str | None = None,
        **settings: Any,
    ) -> None:
        bound = bound_to(
            user_id=user_id,
            tenant_id=tenant_id,
            url=url,
            name=store,
            memory=memory,
            handle=handle,
        )
        located = {**bound.locator}
        located["store"] = located.pop("name")
        super().__init__(**located, **settings)
        self._bound = bound

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (self.model_dump(),)

    async def aput(
        self,
        messages: list[ChatMessage],
        from_short_term_memory: bool = False,
        session_id: str | None = None,
    ) -> None:
        """Take messages in, if this block takes any; they are not changed."""
        if not from_short_term_memory or self.accept_short_term_memory:
            await self._take(messages, session_id)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The content less so many tokens of last lines; ``None`` when nothing is left."""
        lines = content.split("\n")
        first, last = lines[0], lines[-1]
        rest = lines[1:-1]
        while rest and tokens_to_truncate > 0:
            tokens_to_truncate -= _counter.count(rest.pop() + "\n")
        return "\n".join([first, *rest, last]) if rest else None

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await self._take(messages, None)

    async def _take(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        """Blocks that only tell take nothing."""

    async def _told(self, work: Callable[[UserMemory], Awaitable[str]]) -> str:
        """What ``work`` gives; nothing when the store fails, unless failures are to be raised."""
        try:
            return await self._bound.run(work)
        except OperationFailed as error:
            if self.on_failure == "raise":
                raise
            _log.warning(
                "a memory block could not be read",
                extra={"block": type(self).__name__, "error": type(error).__name__},
            )
            return ""


class _RecordingBlock(_UserBlock):
    """A block whose messages are recorded, each once."""

    default_session_id: str = "llama_index"
    _held: deque[tuple[str, ChatMessage]] = PrivateAttr()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._held = deque(maxlen=_MAX_HELD)

    async def _take(self, messages: Sequence[ChatMessage], session_id: str | None) -> None:
        taken = [(self._session_of(one, session_id), one.model_copy(deep=True)) for one in messages]
        waiting = [*self._held, *taken]
        self._held.clear()
        by_session: dict[str, list[ChatMessage]] = {}
        for session, message in waiting:
            by_session.setdefault(session, []).append(_without_session(message))
        for session, ones in by_session.items():
            try:
                await self._bound.run(
                    lambda user, key=session, new=ones: self._record(user, key, new)
                )
            except OperationFailed as error:
                self._failed(error, session, ones)

    def _failed(self, error: OperationFailed, session: str, ones: Sequence[ChatMessage]) -> None:
        if not isinstance(error, UserErased):
            self._held.extend((session, one) for one in ones)
        if self.on_failure == "raise":
            raise error
        _log.warning(
            "messages could not be recorded; they are held and tried again with the next ones",
            extra={"messages": len(ones), "error": type(error).__name__},
        )

    def _session_of(self, message: ChatMessage, session_id: str | None) -> str:
        said = message.additional_kwargs.get("session_id")
        return session_id or (said if isinstance(said, str) and said else self.default_session_id)

    async def _record(self, user: UserMemory, key: str, messages: Sequence[ChatMessage]) -> None:
        session = await self._bound.session(user, key)
        listing = await session.listed().read()
        rows = rows_from([*listing.archived, *listing.active])
        there = {row.mark for row in rows}
        there |= {mark_of_message(_without_session(row.message)) for row in rows}
        new: list[RowItem] = []
        for message, made in zip(messages, items_of_rows(messages), strict=True):
            mark = mark_of_message(message)
            if mark not in there:
                there.add(mark)
                new.append(_named_after(mark, made))
        attached = {key: data for one in new for key, data in one.attached.items()}
        if new:
            await session.listed().append([one.item for one in new], attached)


class RecallMemoryBlock(_RecordingBlock):
    """What of all that was ever said answers the newest user message, as fenced text:
    ``RecallMemoryBlock(user_id=..., url=...)``.

    The store is given by ``url``, by ``store``, the name that ``secondcall.configure`` knows it
    under, or as an open ``memory``; without any of them it is that of ``SECONDCALL_URL``. Every
    session of the user is searched, with ``sessions="current"`` only the one that asks, with
    ``"others"`` all but that. What stands in the queue is not told again. At most ``limit`` items
    and ``max_tokens`` tokens come of it.
    """

    name: str = "recall"
    limit: int = 5
    sessions: Literal["all", "current", "others"] = "all"

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        store: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            user_id=user_id,
            url=url,
            store=store,
            memory=memory,
            tenant_id=tenant_id,
            **settings,
        )

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        question = _newest_words(messages or [])
        if not question:
            return ""
        session_id = block_kwargs.get("session_id")
        shown = {one.content for one in messages or [] if one.content}
        return await self._told(lambda user: self._recall(user, question, shown, session_id))

    async def _recall(
        self, user: UserMemory, question: str, shown: set[str], session_id: str | None
    ) -> str:
        found = await user.recall(
            question,
            limit=min(self.limit + len(shown), 200),
            sessions=[session_id or self.default_session_id]
            if self.sessions == "current"
            else None,
        )
        items = [one for one in found.items if self._is_new(one, shown, session_id)]
        facts = [one.fact for one in found.facts]
        return _fenced(facts, items[: self.limit], self.max_tokens)

    def _is_new(self, one: RecalledItem, shown: set[str], session_id: str | None) -> bool:
        if self.sessions == "others" and one.key.session_id == session_id:
            return False
        text = one.item.text if isinstance(one.item, Message) else one.item.output
        return text not in shown


class FactsMemoryBlock(_RecordingBlock):
    """What is true of the user now, promises and open issues first, as fenced text.

    Facts come from ``user.remember``, from the tools of ``MemoryTools``, and, where the memory was
    opened with a model, from what is recorded: a newer one ends the older one of the same kind, so
    "lives in Bergen" is not told beside "lives in Oslo". The store is given as for
    ``RecallMemoryBlock``.
    """

    name: str = "facts"

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        store: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            user_id=user_id,
            url=url,
            store=store,
            memory=memory,
            tenant_id=tenant_id,
            **settings,
        )

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        async def facts(user: UserMemory) -> str:
            ranked = sorted(await user.facts(), key=lambda fact: fact.valid_from, reverse=True)
            ranked.sort(key=lambda fact: _WEIGHT.get(fact.kind, 2))
            return _fenced(ranked, (), self.max_tokens)

        return await self._told(facts)


class StateMemoryBlock(_UserBlock):
    """Where the workflows of the session that asks and of the user stand, as fenced text.

    It is read anew at every ``get`` and stored in no message. Messages are not taken. The store is
    given as for ``RecallMemoryBlock``.
    """

    name: str = "state"
    accept_short_term_memory: bool = False

    def __init__(
        self,
        *,
        user_id: str,
        url: str | None = None,
        store: str | None = None,
        memory: Memory | None = None,
        tenant_id: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(
            user_id=user_id,
            url=url,
            store=store,
            memory=memory,
            tenant_id=tenant_id,
            **settings,
        )

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        session_id = block_kwargs.get("session_id")

        async def states(user: UserMemory) -> str:
            bound = [user.state]
            if session_id:
                bound.insert(0, (await self._bound.session(user, session_id)).state)
            found = [await one.load() for one in bound]
            status = status_of([one for one in found if one is not None])
            return status.within(self.max_tokens, _counter)[0]

        return await self._told(states)


_WEIGHT = {"promise": 0, "issue": 1}


def _newest_words(messages: Sequence[ChatMessage]) -> str:
    said = (one.content for one in reversed(messages) if one.role == MessageRole.USER)
    return next((text for text in said if text), "")


def _fenced(facts: Sequence[Fact], items: Sequence[RecalledItem], max_tokens: int) -> str:
    lines: list[str] = [*map(fact_line, facts), *map(_item_line, items)]
    budget = max_tokens - _counter.count(f"{OPENING}\n{CLOSING}\n")
    kept, _ = fit(lines, lambda line: line, budget_tokens=budget, counter=_counter)
    return fence(kept)


def _item_line(found: RecalledItem) -> str:
    notes = [note for note in (found.stale, found.to_confirm) if note is not None]
    return item_line(found.item, found.at, note="".join(f" ({quote(one)[1:-1]})" for one in notes))


def _without_session(message: ChatMessage) -> ChatMessage:
    """Without the mark that ``Memory`` puts into messages for its blocks."""
    if "session_id" not in message.additional_kwargs:
        return message
    kept = {
        name: value for name, value in message.additional_kwargs.items() if name != "session_id"
    }
    return message.model_copy(update={"additional_kwargs": kept})


def _named_after(mark: str, made: RowItem) -> RowItem:
    """The item under an id that the same message has again, so that a repeat changes nothing."""
    digest = hashlib.blake2b(mark.encode("utf-8", "replace"), digest_size=12).hexdigest()
    item = made.item
    named = replace(item, id=digest) if isinstance(item, Message) else replace(item, call_id=digest)
    return RowItem(named, made.data)
