"""How far facts were extracted: the queue behind the record, and what is next in it.

The record itself is the queue: whatever has a change number above the one in the partition's
document *extraction/position* waits for the model, however the process ended that recorded it. The
document also holds the claim of whoever is asking the model, the failures since the last success,
and the stretches that were put aside because they alone made the model fail.

*extraction/removed* is written with every removal of items and with every batch of facts, so that
facts of items that went meanwhile are not written after them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from secondcall.abc import ANY_VERSION, DocumentWrite, EntryKey
from secondcall.record.append import decode_entry
from secondcall.shortterm.wording import said
from secondcall.types import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from secondcall.abc import Scope, Store, StoredEntry
    from secondcall.types import RecordedItem

__all__ = [
    "KIND",
    "MAX_TURNS",
    "POSITION",
    "REMOVED",
    "REMOVED_MARK",
    "Position",
    "Stretch",
    "decode",
    "encode",
    "read_stretch",
]

KIND = "extraction"
POSITION, REMOVED = "position", "removed"
REMOVED_MARK = DocumentWrite(kind=KIND, key=REMOVED, body=b"{}", expected_version=ANY_VERSION)
MAX_TURNS = 20
"""At most so many messages of the user go into one prompt, ..."""
_MAX_CHARACTERS = 24_000
_ITEM_CHARACTERS = 3_000
_MAX_CHANGES = 400
_PAGE = 100
_BEFORE = 4
"""... and so many messages before them, so that "yes, that one" can be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Everything up to the change number ``after`` has been looked at.

    ``holder`` asks the model until ``until_us`` at most. ``tries`` failed in a row; before
    ``next_us`` nobody is to try again. ``aside`` are stretches (after, up to) that are tried once
    more after a success. ``counts`` add up what was told, ended, refused and passed over.
    """

    after: int
    tries: int = 0
    next_us: int = 0
    holder: str = ""
    until_us: int = 0
    aside: Sequence[tuple[int, int]] = ()
    counts: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The next piece of the queue: its messages, in order, and the change number it reaches to.

    ``before`` are some messages that came before it. ``turns`` counts the user's messages,
    ``sessions`` are those that it is of, ``more`` says that the queue goes on behind it, and
    ``recorded_us`` is when its last item was recorded.
    """

    upto: int
    items: Sequence[RecordedItem]
    before: Sequence[RecordedItem]
    turns: int
    sessions: Sequence[str]
    more: bool
    recorded_us: int


def encode(position: Position) -> bytes:
    """The stored form: JSON with a format number."""
    content = {
        "v": 1,
        "after": position.after,
        "tries": position.tries,
        "next_us": position.next_us,
        "holder": position.holder,
        "until_us": position.until_us,
        "aside": [list(one) for one in position.aside],
        "counts": dict(position.counts),
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode(body: bytes) -> Position | None:
    """The position of a document; ``None`` for what cannot be read: then a new one is made."""
    try:
        content = cast("dict[str, Any]", json.loads(body))
        if content["v"] != 1:
            return None
        return Position(
            after=int(content["after"]),
            tries=int(content["tries"]),
            next_us=int(content["next_us"]),
            holder=str(content["holder"]),
            until_us=int(content["until_us"]),
            aside=tuple((int(first), int(last)) for first, last in content["aside"]),
            counts={str(name): int(count) for name, count in content["counts"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


async def read_stretch(
    store: Store,
    scope: Scope,
    after: int,
    upto: int | None,
    *,
    max_turns: int,
    keeps: Callable[[StoredEntry], bool],
    repeated: Callable[[RecordedItem, str], bool],
) -> Stretch | None:
    """What follows the change number ``after``; ``None`` when nothing does.

    It ends before the user message that would be one too many. What was corrected or removed since
    is left out: a correction is a change of its own, further on. Items that do not ``keep``, and
    texts that only ``repeat`` what was recalled, are left out.
    """
    keys: dict[EntryKey, int] = {}
    turns = size = 0
    reached, more = after, False
    while not more:
        page = await store.changes(scope, after=reached, limit=_PAGE)
        for change in page:
            entry = change.entry
            if upto is not None and change.number > upto:
                return await _made(store, scope, keys, upto, turns, False, keeps, repeated)
            if change.kind == "entry" and entry is not None and entry.key.kind == "message":
                starts = _is_users(scope, entry)
                size += min(len(entry.body), _ITEM_CHARACTERS)
                full = turns == max_turns or size > _MAX_CHARACTERS
                if (turns and starts and full) or len(keys) == _MAX_CHANGES:
                    more = True
                    break
                turns += starts
                keys[entry.key] = change.number
            reached = change.number
        if len(page) < _PAGE:
            break
    if reached == after:
        return None
    return await _made(store, scope, keys, reached, turns, more, keeps, repeated)


async def _made(
    store: Store,
    scope: Scope,
    keys: Collection[EntryKey],
    upto: int,
    turns: int,
    more: bool,
    keeps: Callable[[StoredEntry], bool],
    repeated: Callable[[RecordedItem, str], bool],
) -> Stretch:
    entries = [
        entry
        for entry in (await store.entries(scope, list(keys)) if keys else ())
        if entry.change <= upto and keeps(entry)
    ]
    entries.sort(key=lambda one: (one.at_us, one.position))
    items = [decode_entry(scope.name, one) for one in entries]
    items = [one for one in items if _counts(one, repeated)]
    before: list[RecordedItem] = []
    if items:
        first = entries[0]
        page = await store.read(
            scope,
            session_id=first.key.session_id,
            after=(first.at_us, first.position),
            newest_first=True,
            limit=_BEFORE,
        )
        found = [decode_entry(scope.name, one) for one in page[::-1] if keeps(one)]
        before = [one for one in found if _counts(one, repeated)]
    return Stretch(
        upto=upto,
        items=items,
        before=before,
        turns=turns,
        sessions=list(dict.fromkeys(key.session_id for key in keys)),
        more=more,
        recorded_us=max((one.recorded_us for one in entries), default=0),
    )


def _counts(item: RecordedItem, repeated: Callable[[RecordedItem, str], bool]) -> bool:
    """Whether anything was said in an item: system text, tools and fenced text do not count."""
    message = item.item
    if not isinstance(message, Message) or message.role == "system":
        return False
    text = said(message.text)
    return any(one.isalnum() for one in text) and not repeated(item, text)


def _is_users(scope: Scope, entry: StoredEntry) -> bool:
    message = decode_entry(scope.name, entry).item
    return isinstance(message, Message) and message.role == "user"
