"""The summarising buffer: what no longer fits into the window is summarised, and keeps its facts.

The buffer asks nobody while items are put in or read. ``settle`` does the work, beside the
conversation: it writes a summary of the oldest half, checks it, and only then lets the turns go, in
one step. Until then, and whenever a model fails, the window is cut as any buffer is, and what was
cut stays queued.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from anyio.to_thread import run_sync as to_thread

from secondcall.checks import to_us
from secondcall.errors import InvalidValue, UnknownName, VersionConflict
from secondcall.shortterm.backlog import Held
from secondcall.shortterm.holding import SummarizedWindow, with_list
from secondcall.shortterm.kept import Head, resting_nodes
from secondcall.shortterm.keyfacts import KeyFact, KeyFactList
from secondcall.shortterm.levels import SummaryNode
from secondcall.shortterm.rounds import Made, Plan, settled_list
from secondcall.shortterm.summarizers import (
    ExtractiveSummarizer,
    ModelSummarizer,
    Summarizer,
)
from secondcall.shortterm.turns import is_system
from secondcall.types import Item, ItemKey, Message, RecordedItem, ToolCall

__all__ = [
    "ExtractiveSummarizer",
    "ModelSummarizer",
    "Summarizer",
    "SummarizingBuffer",
    "SummaryNode",
]

_MAX_ROUNDS = 64
_FLOOD = 8


class SummarizingBuffer(SummarizedWindow):
    """A chat buffer whose older part lives on in a summary, within one ``token_limit``.

    Of the limit, summaries take at most a quarter and key facts at most a fifth, and not more than
    ``key_fact_tokens``; the turns have the rest, and what the others leave. When the turns pass
    that, the oldest half is due to be summarised; with ``every`` also after so many complete turns.
    Whoever holds the buffer calls ``settle`` then; ``session.buffer()`` does so by itself.

    Without a ``summarizer`` sentences are chosen, by the same rules and with the same guarantees.
    Below a ``token_limit`` of 400 there is no room for a summary worth reading: nothing is
    summarised, and it is a plain ``ChatBuffer``.

    Putting and reading is safe from threads; one ``settle`` runs at a time.
    Raises: ``InvalidValue``.
    """

    def put(self, *items: Item) -> None:
        """Append items. One with a known id takes the place of the earlier one.

        Raises: ``InvalidValue``, ``TooLarge``; ``InvalidValue`` too for the buffer of a session,
        which is filled by recording.
        """
        if self._shelf is not None:
            raise InvalidValue("this buffer belongs to a session; session.record fills it")
        with self._lock:
            sizes = self._chat.take(items)
            for item, size in zip(items, sizes, strict=True):
                self._take(self._key_of(item), item, (0, self._backlog.last_place[1] + 1), size)
            if self._backlog.tokens > _FLOOD * self.token_limit:
                self._let_go()

    async def settle(self) -> bool:
        """Summarise what is due; whether anything changed.

        A summariser that fails is asked again after a while (1, 2, 4 … 60 seconds, by the clock),
        at the next call; after three failures sentences are chosen instead. Nothing is let go
        before what stands for it is kept. A second call while one is at work does nothing.

        Raises: what the store raises; never ``ModelError``.
        """
        with self._lock:
            if self._busy or self._shares.summaries == 0:
                return False
            self._busy = True
        try:
            return await self._settle()
        finally:
            self._busy, self._making = False, frozenset()

    async def edit_key_facts(self, change: Callable[[KeyFactList], None]) -> None:
        """Apply ``change`` to the key facts (add, remove, pin, replace) and keep the result.

        It is called again when another process changed them meanwhile. Raises: what ``change``
        raises, then nothing is changed; store errors.
        """
        while True:
            with self._lock:
                edited = self._list.copy()
            change(edited)
            moved = edited.overflow()
            if self._shelf is None:
                self._accept(with_list(self._head, edited), moved)
                return
            await self._shelf.move(moved)
            try:
                head = await self._shelf.save(with_list(self._head, edited), ())
            except VersionConflict:
                await self.reload()
                continue
            self._accept(head, moved)
            return

    async def expand(self, summary_id: str) -> list[RecordedItem]:
        """The items that a summary stands for, from the record, in order.

        Raises: ``UnknownName``; ``InvalidValue`` for a buffer without a record.
        """
        if self._shelf is None:
            raise InvalidValue("this buffer has no record to expand from; use session.buffer()")
        keys: list[ItemKey] = []
        waiting = [summary_id]
        while waiting:
            found = await self._shelf.nodes([waiting[0]])
            node = found.get(waiting.pop(0))
            if node is None:
                raise UnknownName(f"no summary has the id {summary_id!r}")
            keys.extend(node.items)
            waiting = [*node.children, *waiting]
        return await self._shelf.items(keys)

    async def reload(self, *, hidden: Collection[ItemKey] | None = None) -> None:
        """Take over the head as it is kept, and let go of what it already stands for.

        ``hidden`` are the items that this caller must not be shown, nor what rests on them;
        ``None`` leaves them as they were.
        """
        assert self._shelf is not None
        head = await self._shelf.load() or Head()
        if hidden is not None:
            self._hidden_items = frozenset(hidden)
        await self._hide(head)
        with self._lock:
            self._head = head
            self._list, self._meanwhile = self._new_list(head), None
            self._behind.difference_update(head.late)
            waiting = self._behind.union(head.late)
            self._backlog.drop(
                [
                    one.key
                    for one in self._backlog
                    if one.place <= head.boundary and one.key not in waiting
                ]
            )
            self._oldest_shown, self._expires_us = None, None
            self._hide_expired()
            self._refill()

    def feed(self, items: Sequence[RecordedItem]) -> None:
        """Take in what was recorded. A correction of what was summarised is summarised again."""
        with self._lock:
            for one in items:
                place = (to_us("at", one.at), one.position)
                held = self._backlog.get(one.key)
                if held is not None and held.item == one.item:
                    continue
                if one.key in self._making:
                    self._late.add(one.key)
                new = one.key not in self._backlog and not is_system(one.item)
                passed = new and place <= self._head.boundary and one.key not in self._head.late
                if passed and one.change > one.position:
                    self._late.add(one.key)
                else:
                    if passed and self._shelf is not None:
                        self._behind.add(one.key)
                    (size,) = self._chat.take([one.item])
                    self._take(one.key, one.item, place, size)

    @property
    def boundary(self) -> tuple[int, int]:
        """The place in reading order up to which summaries stand for what was said."""
        return self._head.boundary

    def held(self) -> frozenset[ItemKey]:
        """The keys of the items that no summary stands for yet."""
        with self._lock:
            return self._backlog.keys()

    def let_go(self, keys: Collection[ItemKey]) -> None:
        """Let go of items that may not be shown any more."""
        with self._lock:
            if keys:
                self._backlog.drop(keys)
                self._refill()

    def sort(self) -> None:
        """Put the window into reading order, whenever its items arrived."""
        with self._lock:
            self._refill()

    def discard(self, keys: Collection[ItemKey]) -> None:
        """Let go of items that were removed from the record, at once, and of what rests on them."""
        with self._lock:
            gone = frozenset(keys)
            self._backlog.drop(gone)
            self._late -= gone
            self._behind -= gone
            facts = self._list.facts
            self._list.forget(
                one.id for one in facts if one.sources and gone.issuperset(one.sources)
            )
            self._meanwhile = None
            self._refill()

    def _key_of(self, item: Item) -> ItemKey:
        """The item's own key, or for another call with the id of an answered one a key beside."""
        key, uses = _own_key(item), 1
        while isinstance(item, ToolCall) and self._is_other(self._backlog.get(key), item):
            uses += 1
            key = key._replace(id=f"{item.call_id}#{uses}")
        return key

    def _is_other(self, held: Held | None, call: ToolCall) -> bool:
        known = None if held is None else held.item
        if not isinstance(known, ToolCall) or known.output is None:
            return False
        return (known.name, known.arguments) != (call.name, call.arguments)

    async def _settle(self) -> bool:
        changed = False
        if self._shelf is not None:
            if self._late:
                late = frozenset(self._late)
                await self._shelf.drop(late, gone=False)
                self._late -= late
                await self.reload()
                changed = True
            self.feed(
                [
                    one
                    for one in await self._shelf.newest(self._head.boundary)
                    if one.key not in self._backlog
                ]
            )
            await self._note_late()
        for _ in range(_MAX_ROUNDS):
            with self._lock:
                plan = None if self._rounds.waits and self._is_patient() else self._plan()
            if plan is None:
                break
            if self._shelf is not None and self._head.version is None and self._rounds.asks:
                await self._note_begin()
                continue
            if plan.place is not None and self._shelf is not None:
                plan = await self._fetched(plan)
            with self._lock:
                self._making = frozenset(one.key for one in plan.held)
            made = await self._rounds.make(plan)
            if made is None:
                self._carry(plan)
                break
            await asyncio.sleep(0)
            await self._commit(plan, made)
            changed = True
        return changed

    async def _note_begin(self) -> None:
        """Keep where the part begins that waits to be summarised, before anybody is asked: should
        this process end meanwhile, the next one begins there."""
        assert self._shelf is not None
        with self._lock:
            at_us, position = next(iter(self._backlog)).place
            head = replace(self._head, boundary=(at_us, position - 1))
        try:
            self._accept(await self._shelf.save(head, ()), ())
        except VersionConflict:
            await self.reload()

    async def _note_late(self) -> None:
        """Name in the head what came late, so that the next to open the buffer has it too."""
        assert self._shelf is not None
        while self._behind:
            with self._lock:
                head = replace(self._head, late=self._late_keys())
            try:
                head = await self._shelf.save(head, ())
            except VersionConflict:
                await self.reload()
                continue
            self._accept(head, ())

    async def _fetched(self, plan: Plan) -> Plan:
        """The plan with the items that a node of level 0 stands for, as they are now."""
        assert self._shelf is not None
        assert plan.place is not None
        items = await self._shelf.items(plan.nodes[plan.place].items)
        held = [Held(one.key, one.item, (to_us("at", one.at), one.position), 0) for one in items]
        return replace(plan, held=held)

    async def _commit(self, plan: Plan, made: Made) -> None:
        """Keep what was made, and only then let go of what it stands for."""
        facts, moved = await self._settled(made)
        with self._lock:
            head = self._next_head(plan, made, facts)
        if self._shelf is not None:
            await self._shelf.move(moved)
            try:
                head = await self._shelf.save(head, made.written)
            except VersionConflict:
                await self.reload()
                return
            await self._verify(plan)
        facts = await to_thread(self._new_list, head)
        self._accept(head, moved, plan, facts)
        await self._hide(head)

    async def _settled(self, made: Made) -> tuple[KeyFactList, list[KeyFact]]:
        """The list with the facts found, as it is when nobody changes it meanwhile."""
        while True:
            with self._lock:
                before, copy = self._list, self._list.copy()
            settled = await to_thread(settled_list, copy, made.found, made.nodes)
            if self._list is before:
                return settled

    async def _verify(self, plan: Plan) -> None:
        """Drop what was removed from the record while it was being summarised."""
        assert self._shelf is not None
        keys = [one.key for one in plan.held]
        there = {one.key for one in await self._shelf.items(keys)}
        gone = frozenset(keys) - there - self._hidden_items
        if gone:
            await self._shelf.drop(gone, gone=True)
            await self.reload()

    async def _hide(self, head: Head) -> None:
        """Find the summaries that rest on what this caller must not be shown."""
        known: dict[str, SummaryNode] = {}
        waiting = [node.id for node in head.nodes if node.level] if self._hidden_items else []
        while waiting and self._shelf is not None:
            found = await self._shelf.nodes(waiting)
            known.update(found)
            waiting = [one for node in found.values() for one in node.children]
        with self._lock:
            self._resting_nodes = resting_nodes(known, head.nodes, self._hidden_items)
            self._hide_expired()


def _own_key(item: Item) -> ItemKey:
    if isinstance(item, Message):
        return ItemKey("", "", "message", item.id or secrets.token_hex(12))
    return ItemKey("", "", "tool_call", item.call_id)
