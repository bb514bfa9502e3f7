"""What a summarising buffer holds: window, backlog, summaries and key facts; and what is due."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from secondcall.abc import TokenCounter
from secondcall.checks import check_limit, from_us, to_us
from secondcall.errors import InvalidValue
from secondcall.registry import default_counter
from secondcall.shortterm.backlog import Backlog, Held
from secondcall.shortterm.buffer import ChatBuffer
from secondcall.shortterm.kept import Head, Shelf
from secondcall.shortterm.keyfacts import (
    DEFAULT_KEY_FACT_TOKENS,
    KeyFact,
    KeyFactList,
    check,
    find_key_facts,
)
from secondcall.shortterm.levels import SummaryNode
from secondcall.shortterm.measure import Measure, Size
from secondcall.shortterm.report import BufferReport
from secondcall.shortterm.rounds import Made, Plan, Rounds, settled_list
from secondcall.shortterm.showing import Shares, show
from secondcall.shortterm.summarizers import (
    Summarizer,
)
from secondcall.shortterm.writing import SummaryWriter
from secondcall.types import Item, ItemKey, Message

if TYPE_CHECKING:
    from secondcall.abc import Clock


__all__ = ["SummarizedWindow", "with_list"]

_PATIENCE = 4
"""A backlog of so many token limits is not kept waiting for a model any more."""
_FLOOD = 8
_NAMED = 100
_MAX_LATE = 1_000


class _SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class _Safe(TokenCounter):
    """A counter that never fails."""

    def __init__(self, measure: Measure) -> None:
        self.id = "safe"
        self._measure = measure

    def count(self, text: str) -> int:
        return self._measure.count(text)


class SummarizedWindow:
    """The state of a summarising buffer and what is shown of it; see ``SummarizingBuffer``."""

    def __init__(
        self,
        token_limit: int = 3_000,
        *,
        summarizer: Summarizer | None = None,
        every: int | None = None,
        counter: TokenCounter | None = None,
        framing_tokens: int = 4,
        key_fact_tokens: int = DEFAULT_KEY_FACT_TOKENS,
        deadline_seconds: float = 30.0,
        clock: Clock | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        if every is not None:
            check_limit("every", every)
        check_limit("key_fact_tokens", key_fact_tokens, minimum=0)
        if not deadline_seconds > 0:
            raise InvalidValue(f"deadline_seconds is {deadline_seconds}, expected more than 0")
        counter = default_counter() if counter is None else counter
        self._chat = ChatBuffer(token_limit, counter=counter, framing_tokens=framing_tokens)
        self._measure = Measure(counter, token_limit=token_limit, framing_tokens=framing_tokens)
        self._framing = framing_tokens
        self._shares = Shares.of(token_limit, key_fact_tokens)
        self._every = every
        self._shelf = shelf
        writer = SummaryWriter(
            summarizer,
            _Safe(self._measure),
            clock=_SystemClock() if clock is None else clock,
            deadline_seconds=deadline_seconds,
        )
        self._rounds = Rounds(writer, self._shares, self._measure.count)
        self._lock = threading.RLock()
        self._busy = False
        self._backlog = Backlog()
        self._late: set[ItemKey] = set()
        """Items that changed after a summary was made of them."""
        self._behind: set[ItemKey] = set()
        """New items from before the boundary that the kept head does not name yet."""
        self._head = Head()
        self._list = self._new_list(self._head)
        self._meanwhile: KeyFactList | None = None
        self._oldest_shown: datetime | None = None
        self._expires_us: int | None = None
        """The time of the oldest of all that is shown; ``None`` when it is to be looked for."""
        self._hidden_items: frozenset[ItemKey] = frozenset()
        self._resting_nodes: frozenset[str] = frozenset()
        self._hidden_nodes: frozenset[str] = frozenset()
        self._making: frozenset[ItemKey] = frozenset()
        self._turns_since = 0
        self._moved: list[KeyFact] = []
        self._text: str | None = None
        self._front: int | None = None
        self._squeezed: int | None = None
        """What was left for the front when the newest turn did not leave room for all of it."""

    @property
    def token_limit(self) -> int:
        """What summaries, key facts and turns take together at most."""
        return self._chat.token_limit

    @property
    def tokens(self) -> int:
        """What they take now."""
        with self._lock:
            self._see()
            return self._chat.tokens + self._front_tokens()

    @property
    def key_facts(self) -> Sequence[KeyFact]:
        """The key facts of what was summarised, in order, those that a summary holds among them."""
        with self._lock:
            self._expire()
            return tuple(fact for fact in self._list.facts if self._may_show(fact))

    @property
    def summaries(self) -> Sequence[SummaryNode]:
        """The live summaries, oldest first. ``expand`` gives what each stands for."""
        with self._lock:
            self._expire()
            return tuple(
                node
                for node in self._head.nodes
                if node.level and node.id not in self._hidden_nodes
            )

    @property
    def left_out(self) -> Sequence[KeyFact]:
        """The key facts that this object moved out of the list since it was made, at most the
        newest 100: they are in the facts and in the record, and recall finds them."""
        with self._lock:
            return tuple(self._moved)

    def get(self) -> list[Item]:
        """System messages, then the newest whole turns that fit beside the summary, in order.

        Raises: ``OverBudget`` as ``ChatBuffer.get``.
        """
        with self._lock:
            self._see()
            return self._chat.get()

    def summary(self) -> str:
        """The summaries and the carried key facts as fenced, quoted data; empty for none.

        It belongs in front of what ``get`` gives and counts within the limit.
        """
        with self._lock:
            self._see()
            return self._shown_text()

    def explain(self) -> BufferReport:
        """What is held, what was cut or summarised, and why, with the tokens of each item. The
        summary's are the ``reserved_tokens``."""
        with self._lock:
            self._see()
            return self._chat.explain()

    def due(self) -> bool:
        """Whether ``settle`` has something to do now."""
        with self._lock:
            waiting = bool(self._late) or bool(self._behind)
            return not self._rounds.waits and (waiting or self._plan() is not None)

    def clear(self) -> None:
        """Hold nothing; what is kept in the store stays."""
        with self._lock:
            self._chat.clear()
            self._backlog.clear()
            self._late.clear()
            self._behind.clear()
            self._head = Head(boundary=self._head.boundary)
            self._list, self._meanwhile = self._new_list(self._head), None
            self._expires_us = None
            self._front_changed()

    def _plan(self) -> Plan | None:
        """What the next round is to summarise: what waits to be made anew, or the oldest half."""
        if self._shares.summaries == 0:
            return None
        place = next((n for n, node in enumerate(self._head.nodes) if node.level == 0), None)
        held: list[Held] = []
        if place is None:
            held = self._oldest()
            if not held:
                return None
        return Plan(
            held=held,
            place=place,
            nodes=self._head.nodes,
            facts=self._list.facts,
            head_version=self._head.version,
            patient=self._is_patient(),
        )

    def _oldest(self) -> list[Held]:
        backlog = self._backlog
        room = self.token_limit - self._front_tokens() - backlog.system_tokens
        over = backlog.tokens > max(room, 1)
        turned = self._every is not None and self._turns_since >= self._every and backlog.rests
        if not (over or turned) or (backlog.users < 2 and len(backlog) < 2):
            return []
        turns = backlog.oldest_half(by_turns=not over, most_tokens=max(1, self.token_limit // 2))
        if not turns and backlog.tokens > _FLOOD * self.token_limit:
            return list(backlog)[: len(backlog) // 2]
        return [one for turn in turns for one in turn]

    def _is_patient(self) -> bool:
        return self._backlog.tokens <= _PATIENCE * self.token_limit

    def _next_head(self, plan: Plan, made: Made, facts: KeyFactList) -> Head:
        boundary = self._head.boundary
        if plan.place is None:
            boundary = max(boundary, max(one.place for one in plan.held))
        return replace(
            with_list(self._head, facts),
            boundary=boundary,
            late=self._late_keys({one.key for one in plan.held}),
            nodes=tuple(made.nodes),
            version=plan.head_version,
            system=tuple(one.key for one in self._backlog.system),
        )

    def _late_keys(self, done: Collection[ItemKey] = ()) -> tuple[ItemKey, ...]:
        """The items from before the boundary that no summary stands for, but for those ``done``."""
        known = [*self._head.late, *(one for one in self._behind if one not in self._head.late)]
        return tuple(one for one in known if one not in done)[-_MAX_LATE:]

    def _accept(
        self,
        head: Head,
        moved: Sequence[KeyFact],
        plan: Plan | None = None,
        facts: KeyFactList | None = None,
    ) -> None:
        """Take over a head that was kept, unless a newer one was meanwhile; ``facts`` is its
        list."""
        with self._lock:
            if plan is not None and plan.place is None:
                self._backlog.drop([one.key for one in plan.held])
                self._turns_since = 0
            if head.version is not None and (self._head.version or 0) > head.version:
                return
            self._head = head
            self._behind.difference_update(head.late)
            if plan is not None:
                self._behind.difference_update(one.key for one in plan.held)
            self._list = self._new_list(head) if facts is None else facts
            self._meanwhile = None
            self._expires_us = None
            self._moved = [*self._moved, *moved][-_NAMED:]
            shown, left = self._chat.turn_count, len(self._backlog.turns())
            self._chat.drop_oldest(max(0, shown - left), why="a summary stands for it")
            self._front_changed()

    def _carry(self, plan: Plan) -> None:
        """Show the key facts of what waits for its summary; it may be out of the window already."""
        with self._lock:
            found = find_key_facts([one.recorded() for one in plan.held])
            self._meanwhile, _ = settled_list(self._list, found, self._head.nodes)
            self._front_changed()

    def _let_go(self) -> None:
        """Choose sentences for the oldest half, at once: nobody calls ``settle``."""
        plan = None if self._busy else self._plan()
        if plan is not None:
            made = self._rounds.at_once(plan)
            facts, moved = settled_list(self._list, made.found, made.nodes)
            self._accept(self._next_head(plan, made, facts), moved, plan)

    def _take(self, key: ItemKey, item: Item, place: tuple[int, int], size: Size) -> None:
        held = Held(key, item, place, size.tokens, size)
        if self._expires_us is not None:
            self._expires_us = min(self._expires_us, place[0])
        if self._backlog.put(held) and isinstance(item, Message) and item.role == "user":
            self._turns_since += 1
        if self._shares.summaries == 0:
            turns = self._backlog.turns()
            gone = turns[: max(0, len(turns) - max(1, self._chat.turn_count))]
            self._backlog.drop([one.key for turn in gone for one in turn])

    def _refill(self) -> None:
        """Fill the window anew, after something went from the backlog."""
        self._chat.clear()
        self._front_changed()
        held = [*self._backlog.system, *self._backlog]
        self._chat.take([one.item for one in held], [one.size for one in held])

    def _expire(self) -> None:
        """Let go of what has run out since the last look, and of what rests on it."""
        if self._shelf is None:
            return
        cutoffs = self._shelf.cutoffs()
        newest = max(cutoffs.values(), default=None)
        if newest is None or (self._expires_us is not None and newest <= self._expires_us):
            return
        self._oldest_shown = from_us(newest)
        held = [*self._backlog.system, *self._backlog]
        gone = [one.key for one in held if one.place[0] < cutoffs.get(one.key.kind, one.place[0])]
        self._backlog.drop(gone)
        self._expires_us = self._oldest_us(newest)
        self._hide_expired()
        if gone:
            self._refill()

    def _oldest_us(self, since_us: int) -> int:
        """The time of the oldest that is shown still."""
        held = [*self._backlog.system, *self._backlog]
        times = [one.place[0] for one in held]
        ats = [node.first_at for node in self._head.nodes] + [one.at for one in self._list.facts]
        times += [to_us("at", at) for at in ats if at is not None]
        return min((at for at in times if at >= since_us), default=1 << 62)

    def _hide_expired(self) -> None:
        """A summary that begins before the oldest item that may be shown rests on some that may
        not."""
        oldest = self._oldest_shown
        expired = [
            node.id
            for node in self._head.nodes
            if oldest is not None and node.first_at is not None and node.first_at < oldest
        ]
        self._hidden_nodes = self._resting_nodes | frozenset(expired)
        self._front_changed()

    def _front_changed(self) -> None:
        self._text = self._front = self._squeezed = None
        self._chat.reserve(self._front_tokens())

    def _front_tokens(self) -> int:
        if self._front is None:
            text = self._shown_text()
            self._front = self._measure.count(text) + self._framing if text else 0
        return self._front

    def _shown_text(self) -> str:
        """Summaries and key facts, as far as the system text and the newest turn leave room."""
        if self._text is None:
            text = self._text_within(self.token_limit)
            spare = self._chat.spare_tokens
            if text and self._measure.count(text) + self._framing > spare:
                text = self._text_within(max(0, spare - self._framing))
                self._squeezed = spare
            self._text = text
        return self._text

    def _text_within(self, most: int) -> str:
        return show(
            [node for node in self._head.nodes if node.id not in self._hidden_nodes],
            [fact for fact in self._shown_list().carried if self._may_show(fact)],
            moved=self._list.moved_count,
            kept=self._shelf is not None,
            shares=self._shares,
            count=self._measure.count,
            most=most,
        )

    def _see(self) -> None:
        self._expire()
        self._make_room()

    def _make_room(self) -> None:
        """Take back of the front what the newest turn needs, or show again what it leaves."""
        if not self._front_tokens() and self._squeezed is None:
            return
        spare = self._chat.spare_tokens
        if self._front_tokens() > spare or self._squeezed not in (None, spare):
            self._front_changed()

    def _shown_list(self) -> KeyFactList:
        return self._list if self._meanwhile is None else self._meanwhile

    def _may_show(self, fact: KeyFact) -> bool:
        oldest = self._oldest_shown
        expired = oldest is not None and fact.at is not None and fact.at < oldest
        return not expired and self._hidden_items.isdisjoint(fact.sources)

    def _new_list(self, head: Head) -> KeyFactList:
        facts = KeyFactList(
            head.facts,
            limit_tokens=self._shares.facts,
            count=self._measure.count,
            version=head.facts_version,
            removed=head.removed,
            moved_count=head.moved,
        )
        facts.hold(check(facts.facts, "\n".join(node.text for node in head.nodes)))
        return facts


def with_list(head: Head, facts: KeyFactList) -> Head:
    """The head with this list of key facts."""
    return replace(
        head,
        facts=facts.facts,
        facts_version=facts.version,
        removed=facts.removed,
        moved=facts.moved_count,
    )
