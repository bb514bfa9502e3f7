"""A session's list of messages: which items each one is, and the list that is to be made of it."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from secondcall.adapters.llama_index.jsonable import jsonable
from secondcall.adapters.llama_index.messages import chat_from_items, together
from secondcall.adapters.llama_index.oversize import KEY, digests
from secondcall.memory.listed import Arrangement
from secondcall.types import Item, Message, RecordedItem

if TYPE_CHECKING:
    from secondcall.adapters.llama_index.oversize import Stored
    from secondcall.memory.listed import Listing

__all__ = [
    "appended",
    "dropped",
    "is_dropped",
    "rearranged",
    "without_dropped",
    "without_unanswered",
]

_DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class _Group:
    """What was said with its calls and their results; two with one ``mark`` say the same."""

    items: Sequence[Item]
    recorded: Sequence[RecordedItem]
    mark: str


def appended(listing: Listing, items: Sequence[Item]) -> Sequence[Item] | None:
    """What is to be added to the list so that it says what the stored ``items`` say; ``None`` when
    that is not done by adding."""
    stands = _groups(without_dropped(one.item for one in listing.active))
    wanted = _groups(items)
    if [one.mark for one in stands] != [one.mark for one in wanted[: len(stands)]]:
        return None
    return [item for group in wanted[len(stands) :] for item in group.items]


def rearranged(listing: Listing, stored: Stored) -> Arrangement:
    """The list that says what the ``stored`` items say. What stands in it already, and says the
    same, is kept; the rest is new."""
    kept: defaultdict[str, deque[_Group]] = defaultdict(deque)
    stands = [one for one in listing.active if not is_dropped(one.item)]
    for group in _groups([one.item for one in stands], stands):
        kept[group.mark].append(group)
    active: list[RecordedItem | Item] = []
    for group in _groups(stored.items):
        same = kept[group.mark]
        active += same.popleft().recorded if same else group.items
    attached = stored.attached_to(active)
    return Arrangement(active=active, archived=listing.archived, attached=attached)


def dropped(question: Message) -> Message:
    """The question with a mark that it was dropped: the record keeps it, no list shows it."""
    own = question.metadata.get(KEY)
    marked = {**(own if isinstance(own, Mapping) else {}), _DROPPED: True}
    return replace(question, metadata={**question.metadata, KEY: marked})


def is_dropped(item: Item) -> bool:
    """Whether the item is a question that was dropped."""
    own = item.metadata.get(KEY)
    return isinstance(own, Mapping) and own.get(_DROPPED) is True


def without_dropped(items: Iterable[Item]) -> list[Item]:
    """The items without questions that were dropped, and the unanswered calls behind them."""
    found: list[Item] = []
    after_dropped = False
    for item in items:
        if is_dropped(item):
            after_dropped = True
        elif not (after_dropped and _waits(item)):
            after_dropped = False
            found.append(item)
    return found


def without_unanswered(listing: Listing) -> Arrangement | None:
    """The list without its last question, where nothing answers it; ``None`` where it is
    answered."""
    kept = list(listing.active)
    while kept and _waits(kept[-1].item):
        kept.pop()
    item = kept[-1].item if kept else None
    if isinstance(item, Message) and item.role == "user":
        kept.pop()
    if len(kept) == len(listing.active):
        return None
    return Arrangement(active=kept, archived=listing.archived)


def _waits(item: Item) -> bool:
    return not isinstance(item, Message) and item.output is None


def _groups(items: Sequence[Item], recorded: Sequence[RecordedItem] = ()) -> list[_Group]:
    found: list[_Group] = []
    place = 0
    while place < len(items):
        group = together(items, place)
        messages = chat_from_items(group, repaired=False)
        shown = [jsonable(message) for message in messages]
        mark = json.dumps([shown, digests(group)], sort_keys=True)
        found.append(_Group(group, recorded[place : place + len(group)], mark))
        place += len(group)
    return found
