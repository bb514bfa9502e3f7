"""The items that no summary stands for yet, in reading order, and how many turns they are."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from secondcall.checks import from_us
from secondcall.shortterm.measure import Size
from secondcall.shortterm.turns import begins_turn, is_system, is_waiting
from secondcall.types import Item, ItemKey, Message, RecordedItem

__all__ = ["Backlog", "Held"]

MAX_HELD_CHARACTERS = 20_000
MAX_SYSTEM_ITEMS = 1_000


@dataclass(slots=True, eq=False)
class Held:
    """An item, its full name, its place in reading order (time in microseconds, position), and its
    tokens. Of a very long tool output the middle is left out; ``size`` is ``None`` then."""

    key: ItemKey
    item: Item
    place: tuple[int, int]
    tokens: int
    size: Size | None = None

    def __lt__(self, other: Held) -> bool:
        return self.place < other.place

    def recorded(self) -> RecordedItem:
        """The item as the record would give it."""
        at = self.item.at or from_us(self.place[0])
        return RecordedItem(
            key=self.key,
            item=self.item,
            at=at,
            change=self.place[1],
            position=self.place[1],
            recorded_at=at,
        )


class Backlog:
    """Items by reading order. Not safe from threads; its owner locks."""

    def __init__(self) -> None:
        self.system: list[Held] = []
        self._held: list[Held] = []
        self._by_key: dict[ItemKey, Held] = {}
        self.tokens = 0
        self.system_tokens = 0
        self.users = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held)

    @property
    def last_place(self) -> tuple[int, int]:
        """The place of the last item; (0, 0) when there is none."""
        return self._held[-1].place if self._held else (0, 0)

    @property
    def rests(self) -> bool:
        """Whether the last turn is complete: answered, with no tool still at work."""
        if not self._held:
            return False
        last = self._held[-1].item
        if not isinstance(last, Message) or last.role != "assistant":
            return False
        return not any(is_waiting(one.item) for one in self.turns()[-1])

    def put(self, held: Held) -> bool:
        """Take an item in, or into the place of the one that it corrects; whether it is new."""
        slim = _slim(held.item)
        if slim is not held.item:
            held.item, held.size = slim, None
        known = self._by_key.get(held.key)
        if known is not None:
            self._count(known, -1)
            known.item, known.tokens, known.size = held.item, held.tokens, held.size
            self._count(known, 1)
            return False
        if is_system(held.item):
            if len(self.system) >= MAX_SYSTEM_ITEMS:
                return False
            self.system.append(held)
        else:
            insort(self._held, held)
        self._by_key[held.key] = held
        self._count(held, 1)
        return True

    def get(self, key: ItemKey) -> Held | None:
        """What is held under a key, system messages among it."""
        return self._by_key.get(key)

    def keys(self) -> frozenset[ItemKey]:
        """The keys of all that is held, system messages among it."""
        return frozenset(self._by_key)

    def turns(self) -> list[list[Held]]:
        """The items by turn, oldest first; what came before the first user message is one."""
        found: list[list[Held]] = []
        for held in self._held:
            if begins_turn(held.item) or not found:
                found.append([])
            found[-1].append(held)
        return found

    def oldest_half(self, *, by_turns: bool, most_tokens: int) -> list[list[Held]]:
        """The oldest whole turns that make half of it, at least one and never the newest.

        Half of the tokens, at most ``most_tokens``, or half of the turns.
        """
        turns = self.turns()
        if by_turns:
            return turns[: max(1, len(turns) // 2)] if len(turns) > 1 else []
        wanted = min(self.tokens // 2, most_tokens)
        chosen: list[list[Held]] = []
        taken = 0
        for turn in turns[:-1]:
            size = sum(one.tokens for one in turn)
            if chosen and taken + size > wanted:
                break
            chosen.append(turn)
            taken += size
        return chosen

    def drop(self, keys: Collection[ItemKey]) -> None:
        """Let go of items."""
        gone = [held for key in keys if (held := self._by_key.pop(key, None)) is not None]
        for held in gone:
            self._count(held, -1)
        left = {id(held) for held in gone}
        self._held = [held for held in self._held if id(held) not in left]
        self.system = [held for held in self.system if id(held) not in left]

    def clear(self) -> None:
        """Hold nothing."""
        self.__init__()

    def _count(self, held: Held, sign: int) -> None:
        if is_system(held.item):
            self.system_tokens += sign * held.tokens
        else:
            self.tokens += sign * held.tokens
            self.users += sign * begins_turn(held.item)


def _slim(item: Item) -> Item:
    if isinstance(item, Message) or item.output is None:
        return item
    output = item.output
    if len(output) <= MAX_HELD_CHARACTERS:
        return item
    half = MAX_HELD_CHARACTERS // 2
    cut = f" (cut, {len(output) - 2 * half:,} characters more; the record has all of it) "
    return replace(item, output=f"{output[:half]}{cut}{output[-half:]}")
