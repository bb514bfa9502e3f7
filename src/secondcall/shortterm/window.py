"""What a buffer holds: system messages, and the newest turns that fit.

Putting an item in costs the same however much was put in before. What leaves is gone from memory;
of it only a number of ids is remembered, so that a late correction of it is not taken for news.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from secondcall.shortterm.measure import Size, cut_marker
from secondcall.shortterm.report import Fate, ItemReport
from secondcall.shortterm.turns import begins_turn, is_system, is_waiting
from secondcall.types import Item, Message

__all__ = ["MAX_HELD_ITEMS", "MAX_REMEMBERED_IDS", "Entry", "Turn", "Window"]

MAX_HELD_ITEMS = 10_000
MAX_REMEMBERED_IDS = 20_000
_LISTED_LEAVERS = 50
_HOPELESS = 4
"""A turn, or the system text, of so many times the limit cannot be shown; it grows no further."""


@dataclass(slots=True, eq=False)
class Entry:
    """One item with its size. ``characters`` is the full length of a tool's output, of which
    ``item`` may hold only the beginning; ``host_id`` is the call id that the host gave it, ``use``
    the how manieth use of it this is."""

    item: Item
    size: Size
    characters: int = 0
    host_id: str = ""
    use: int = 1
    sequence: int = 0
    turn: Turn | None = None
    marker_tokens: int | None = None

    @property
    def waiting(self) -> bool:
        """Whether it is a tool call without its output, which is not shown."""
        return is_waiting(self.item)

    @property
    def tokens(self) -> int:
        """What it takes when shown whole."""
        return 0 if self.waiting else self.size.tokens

    def full_item(self) -> Item:
        """The item as far as it is held, with a marker where its output is not whole."""
        item = self.item
        if isinstance(item, Message) or item.output is None or self.characters <= len(item.output):
            return item
        marker = cut_marker(self.characters - len(item.output))
        return replace(item, output=f"{item.output} {marker}")

    def report(self, fate: Fate, why: str, *, shown: int = 0) -> ItemReport:
        """What is said of it."""
        item = self.item
        message = isinstance(item, Message)
        return ItemReport(
            kind="message" if message else "tool_call",
            id=item.id if message else item.call_id,
            label=item.role if message else f"tool {item.name}",
            fate=fate,
            why=why,
            tokens=self.size.tokens,
            shown_tokens=shown,
            estimated=self.size.estimated,
        )


@dataclass(slots=True, eq=False)
class Turn:
    """The items of one turn; the opening has no user message. ``tokens`` is what it takes whole,
    ``firm_tokens`` that without outputs but with waiting calls, ``lost_tokens`` what it refused to
    hold, ``shown`` how many of its items are not waiting."""

    user: Entry | None = None
    entries: deque[Entry] = field(default_factory=deque[Entry])
    tokens: int = 0
    firm_tokens: int = 0
    lost_tokens: int = 0
    shown: int = 0

    def count(self, entry: Entry, sign: int) -> None:
        """Take an item into the sums, or out of them."""
        self.tokens += sign * entry.tokens
        self.firm_tokens += sign * entry.size.firm
        self.shown += 0 if entry.waiting else sign


class Window:
    """The items held for one limit. Not safe from threads; its owner locks."""

    def __init__(self, token_limit: int, on_cut: Callable[[Sequence[Item]], None] | None) -> None:
        self._limit = token_limit
        self._on_cut = on_cut
        self.reserved = 0
        self.clear()

    def clear(self) -> None:
        """Hold nothing, and forget what left."""
        self.system: list[Entry] = []
        self.turns: deque[Turn] = deque()
        self.counts: Counter[Fate] = Counter()
        self.cut_tokens = 0
        self.leavers: deque[ItemReport] = deque(maxlen=_LISTED_LEAVERS)
        self._gone: dict[int, None] = {}
        self._sequence = 0
        self._system_lost_tokens = 0
        self._let_go()

    def _let_go(self) -> None:
        self.system.clear()
        self.turns.clear()
        self._system_held_tokens = 0
        self._held = 0
        self._turn_tokens = 0
        self._messages: dict[str, Entry] = {}
        self._calls: dict[str, list[Entry]] = {}
        self._call_ids: set[str] = set()

    @property
    def system_tokens(self) -> int:
        """What the system messages take, held or not."""
        return self._system_held_tokens + self._system_lost_tokens

    @property
    def room(self) -> int:
        """The tokens that the turns may take."""
        return self._limit - self.reserved - self.system_tokens

    @property
    def held(self) -> int:
        """How many items there are in memory."""
        return self._held

    def entries(self) -> Iterator[Entry]:
        """All that is held, in order, system messages first."""
        yield from self.system
        for turn in self.turns:
            yield from turn.entries

    def put(self, entry: Entry) -> None:
        """Append an item, or put it into the place of the one that it corrects."""
        known = self._known(entry.item)
        if known is not None:
            self._replace(known, entry)
        elif _fingerprint(entry) in self._gone:
            self._leave(entry, "ignored", "it corrects an item that was cut before")
        else:
            self._sequence += 1
            entry.sequence = self._sequence
            self._append(entry)
        self.make_room()

    def drop(self, turns: int, fate: Fate, why: str) -> None:
        """Let go of the oldest turns, of which the opening is one; never of the newest."""
        for _ in range(min(turns, len(self.turns) - 1)):
            self._cut_turn(fate, why)

    def remove(self, goes: Callable[[Item], bool]) -> int:
        """Let go of the items that ``goes`` says yes to; how many there were."""
        held = list(self.entries())
        kept = [entry for entry in held if not goes(entry.item)]
        if len(kept) < len(held):
            self._regroup(kept)
            self.make_room()
        return len(held) - len(kept)

    def make_room(self) -> None:
        """Cut the oldest turns until the rest fits or only the newest is left."""
        cut: list[Item] = []
        while len(self.turns) > 1 and (
            self._turn_tokens > self.room
            or self._held > MAX_HELD_ITEMS
            or self.turns[-2].lost_tokens
        ):
            cut += self._cut_turn("cut", "older than the newest whole turns that fit")
        if len(self.turns) == 1 and self.turns[0].user is None:
            cut += self._cut_opening(self.turns[0])
        if cut and self._on_cut is not None:
            self._on_cut(cut)

    def _known(self, item: Item) -> Entry | None:
        if isinstance(item, Message):
            return None if item.id is None else self._messages.get(item.id)
        uses = self._calls.get(item.call_id, [])
        for use in reversed(uses):
            if _call_of(use.item) == _call_of(item):
                return use
        return uses[-1] if uses and uses[-1].waiting else None

    def _append(self, entry: Entry) -> None:
        item = entry.item
        if is_system(item):
            if self.system_tokens > _HOPELESS * self._limit or len(self.system) >= MAX_HELD_ITEMS:
                self._system_lost_tokens += entry.tokens
                self._leave(entry, "cut", "the system text is too long to be held")
                return
            self.system.append(entry)
            self._count(entry, 1)
        else:
            turn = self._turn_for(entry)
            if turn.user is not entry and turn.user is not None and self._is_hopeless(turn):
                turn.lost_tokens += entry.size.tokens
                self._leave(entry, "cut", "the newest turn is too long to be held")
                return
            entry.turn = turn
            turn.entries.append(entry)
            self._count(entry, 1)
        self._held += 1
        self._name(entry)

    def _turn_for(self, entry: Entry) -> Turn:
        if begins_turn(entry.item):
            self.turns.append(Turn(user=entry))
        elif not self.turns:
            self.turns.append(Turn())
        return self.turns[-1]

    def _is_hopeless(self, turn: Turn) -> bool:
        return turn.firm_tokens > _HOPELESS * self._limit or len(turn.entries) >= MAX_HELD_ITEMS

    def _count(self, entry: Entry, sign: int) -> None:
        if entry.turn is None:
            self._system_held_tokens += sign * entry.tokens
        else:
            entry.turn.count(entry, sign)
            self._turn_tokens += sign * entry.tokens

    def _replace(self, known: Entry, entry: Entry) -> None:
        item = entry.item
        moves = is_system(known.item) != is_system(item) or begins_turn(known.item) != begins_turn(
            item
        )
        self._count(known, -1)
        if not isinstance(item, Message) and not isinstance(known.item, Message):
            item = replace(item, call_id=known.item.call_id)
        known.item, known.size, known.characters = item, entry.size, entry.characters
        known.marker_tokens = None
        self._count(known, 1)
        if moves:
            self._regroup(list(self.entries()))  # a correction changed who said something

    def _regroup(self, held: Sequence[Entry]) -> None:
        """Sort what is held from now on into turns anew."""
        held = sorted(held, key=lambda entry: entry.sequence)
        lost_tokens = self.turns[-1].lost_tokens if self.turns else 0
        self._let_go()
        for entry in held:
            entry.turn = None
            self._append(entry)
        if self.turns:
            self.turns[-1].lost_tokens += lost_tokens

    def _cut_turn(self, fate: Fate, why: str) -> list[Item]:
        turn = self.turns.popleft()
        for entry in turn.entries:
            self._forget(entry, fate, why)
        return [entry.full_item() for entry in turn.entries]

    def _cut_opening(self, turn: Turn) -> list[Item]:
        """As long as there is no user message, items are cut one by one; never the newest shown."""
        cut: list[Item] = []
        while len(turn.entries) > 1 and (
            (turn.tokens > self.room and turn.shown > 1) or self._is_hopeless(turn)
        ):
            entry = turn.entries.popleft()
            self._forget(entry, "cut", "older than the newest items that fit; nobody spoke yet")
            turn.count(entry, -1)
            cut.append(entry.full_item())
        return cut

    def _forget(self, entry: Entry, fate: Fate, why: str) -> None:
        self._turn_tokens -= entry.tokens
        self._held -= 1
        self._unname(entry)
        self._leave(entry, fate, why)

    def _leave(self, entry: Entry, fate: Fate, why: str) -> None:
        self.counts[fate] += 1
        self.leavers.append(entry.report(fate, why))
        if fate == "ignored":
            return
        self.cut_tokens += entry.size.tokens
        if isinstance(entry.item, Message) and entry.item.id is None:
            return
        self._gone[_fingerprint(entry)] = None
        if len(self._gone) > MAX_REMEMBERED_IDS:
            del self._gone[next(iter(self._gone))]

    def _name(self, entry: Entry) -> None:
        """Make the item known by its id; a call id that is in use gets a number behind it."""
        item = entry.item
        if isinstance(item, Message):
            if item.id is not None:
                self._messages[item.id] = entry
            return
        uses = self._calls.setdefault(entry.host_id, [])
        entry.use = max(entry.use, uses[-1].use + 1 if uses else 1)
        given = _numbered(entry.host_id, entry.use)
        while given in self._call_ids:
            entry.use += 1
            given = _numbered(entry.host_id, entry.use)
        entry.item = replace(item, call_id=given)
        uses.append(entry)
        self._call_ids.add(given)

    def _unname(self, entry: Entry) -> None:
        item = entry.item
        if isinstance(item, Message):
            if item.id is not None:
                self._messages.pop(item.id, None)
            return
        self._call_ids.discard(item.call_id)
        uses = self._calls[entry.host_id]
        uses.remove(entry)
        if not uses:
            del self._calls[entry.host_id]


def _numbered(call_id: str, use: int) -> str:
    return call_id if use == 1 else f"{call_id}#{use}"


def _call_of(item: Item) -> tuple[str, str]:
    if isinstance(item, Message):
        return "", ""
    return item.name, json.dumps(item.arguments, sort_keys=True)


def _fingerprint(entry: Entry) -> int:
    item = entry.item
    if isinstance(item, Message):
        return hash(("message", item.id)) if item.id is not None else 0
    return hash(("tool_call", entry.host_id, *_call_of(item)))
