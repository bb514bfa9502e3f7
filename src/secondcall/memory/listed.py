"""A session as a list that can be rearranged, while its record only grows.

Hosts that keep a chat as a list replace it, insert into it, archive its beginning. None of that may
cost the originals, so the list is not the record: it is an *arrangement*, one small document beside
it. The document names, in order, which of the items up to a change number are in the list and which
are archived; every later item follows in the order of recording. So appending is recording and
never touches the document; rearranging writes new items and the document in one step, by
compare-and-set; and an item that the list no longer has is still in the record, and recalled.
Only ``remove`` and ``clear`` take items out of the record.

The order is that of change numbers, not of clocks: two machines whose clocks differ do not shuffle
a list.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from secondcall.abc import ANY_VERSION, Batch, DocumentWrite
from secondcall.errors import SchemaTooNew, StoreCorrupt, VersionConflict
from secondcall.memory.attached import attachment_writes, read_attached
from secondcall.memory.following import changes_since, reach
from secondcall.races import Race
from secondcall.record.append import decode_entry
from secondcall.shortterm.summary import ModelSummarizer, SummarizingBuffer
from secondcall.types import Item, ItemKey, ItemKind, RecordedItem

if TYPE_CHECKING:
    from secondcall.abc import Change, Document, NewEntry
    from secondcall.memory.attached import Attached
    from secondcall.memory.following import Reach
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory
    from secondcall.types import Recorded

    Beside = Callable[[Sequence[NewEntry]], Sequence[DocumentWrite]]
    Append = Callable[[Sequence[Item], Beside], Awaitable[Recorded]]

__all__ = ["Arrangement", "ListedSession", "Listing"]

_KIND = "listing"
_FORMAT = 1
_REMOVED_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The list as it stands: what is in it and what is archived, each in order."""

    active: Sequence[RecordedItem]
    archived: Sequence[RecordedItem] = ()
    placed: int = 0
    """So many of the active items stand where an arrangement put them; the others came later."""
    version: int | None = None
    """Moves on with every arrangement; ``None`` before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A list as it is to be: items that are recorded, and new ones among them."""

    active: Sequence[RecordedItem | Item]
    archived: Sequence[RecordedItem | Item] = ()
    attached: Attached = field(default_factory=dict[tuple[ItemKind, str], bytes])
    """What goes with the new items; see ``ListedSession.append``."""


class ListedSession:
    """One session as a list. Made by ``session.listed()``."""

    def __init__(self, user: UserMemory, place: Place, session_id: str, append: Append) -> None:
        self._user = user
        self._place = place
        self._session_id = session_id
        self._append = append
        self._seen: _Seen | None = None
        # never changed, only replaced: reads may overlap, in several loops too

    async def read(self) -> Listing:
        """The list; where nothing changed the same object as the last time, where items came the
        same with them behind it. Raises: ``StoreCorrupt``, ``SchemaTooNew``, store errors."""
        document = await self._document()
        while True:
            held = self._seen
            seen, fresh = await self._look(held)
            again = await self._document()
            if _version(again) == _version(document):
                break
            document = again
        before = None if held is None else held.listing
        if before is not None and fresh is not None and before.version == _version(document):
            found = replace(before, active=[*before.active, *fresh]) if fresh else before
        else:
            found = _arranged(await self._shown(seen.items), document)
        # What may run out, be hidden or stand in several partitions is put together each time.
        seen = replace(seen, listing=found if await self._only_grows() else None)
        self._seen = seen
        return found

    async def is_rearranged(self) -> bool:
        """Whether the list was ever made other than by recording: one small read."""
        return await self._document() is not None

    async def append(
        self, items: Sequence[Item], attached: Attached = MappingProxyType({})
    ) -> Recorded:
        """As ``session.record``, with bytes for some of the items, by their kind and id: what
        metadata has no room for, up to 128 MiB an item. They are written in the same step, seen by
        no prompt, summary or search, and removed with their item.

        Raises: as ``session.record``; ``InvalidValue`` for bytes of no item; ``TooLarge``.
        """
        with self._place.shared.in_flight():
            return await self._append(
                items, lambda entries: attachment_writes(self._session_id, entries, attached)
            )

    async def attached(self, keys: Sequence[tuple[ItemKind, str]]) -> Attached:
        """What is attached to items of this session, by kind and id; those without are left out.

        Raises: ``StoreCorrupt``, store errors.
        """
        self._place.look_again()
        scopes = await self._place.scopes()
        wanted = [ItemKey(scope.name, self._session_id, *key) for scope in scopes for key in keys]
        found = await read_attached(self._place.shared.store, scopes, wanted)
        return {(key.kind, key.id): data for key, data in found.items()}

    async def arrange(self, change: Callable[[Listing], Arrangement | None]) -> Listing:
        """Make the list what ``change`` gives for it as it stands; ``None`` leaves it. What was in
        the list before, as ``change`` saw it.

        New items and the order are written in one step, or not at all. ``change`` is called again
        when somebody else rearranged meanwhile; what was recorded meanwhile is at the end.

        Raises: ``VersionConflict`` after thirty seconds of lost races, ``InvalidValue``,
        ``TooLarge``, ``UserErased``, store errors.
        """
        race = Race()
        while True:
            stands, document = await self._all(), await self._document()
            before = _arranged(stands, document)
            wanted = change(before)
            if wanted is None:
                return before
            try:
                await self._write(wanted, stands, None if document is None else document.version)
            except VersionConflict:
                if not await race.goes_on():
                    raise
                continue
            return before

    def buffer(self, token_limit: int) -> SummarizingBuffer:
        """An empty buffer with the memory's model, for a holder that puts the list into it: what it
        summarises is kept nowhere. See ``settle``."""
        shared = self._place.shared
        return SummarizingBuffer(
            token_limit,
            summarizer=None if shared.model is None else ModelSummarizer(shared.model),
            counter=shared.counter,
            clock=shared.clock,
        )

    def settle(self, buffer: SummarizingBuffer) -> None:
        """Begin to summarise in the background, if there is something to."""

        async def work() -> None:
            with self._place.metered("buffer", self._session_id):
                await buffer.settle()

        if buffer.due():
            self._place.shared.background.start(("summarise a list", id(buffer)), work)

    async def remove(self, keys: Sequence[ItemKey]) -> int:
        """Remove items from the list and the record, and whatever rests on them; how many were
        there. Up to 500 go in one step. Raises: ``InvalidValue`` under a legal hold."""
        return await self._user.remove(keys) if keys else 0

    async def clear(self) -> int:
        """Remove every item of the session from the record, replaced and archived ones too; how
        many there were. Raises: ``InvalidValue`` under a legal hold."""
        removed = await self.remove([one.key for one in await self._all()])
        if await self._document() is not None:
            write = DocumentWrite(
                kind=_KIND, key=self._session_id, body=None, expected_version=ANY_VERSION
            )
            await self._store_alone(write)
        return removed

    async def _write(
        self, wanted: Arrangement, stands: Sequence[RecordedItem], version: int | None
    ) -> None:
        fresh = [
            one for one in (*wanted.active, *wanted.archived) if not isinstance(one, RecordedItem)
        ]
        if not fresh:
            await self._store_alone(_written(self._session_id, wanted, stands, (), version))
            return

        def beside(entries: Sequence[NewEntry]) -> list[DocumentWrite]:
            listing = _written(self._session_id, wanted, stands, entries, version)
            return [listing, *attachment_writes(self._session_id, entries, wanted.attached)]

        with self._place.shared.in_flight():
            await self._append(fresh, beside)

    async def _store_alone(self, write: DocumentWrite) -> None:
        shared = self._place.shared
        scope, epoch = await self._place.home(), await self._place.epoch()
        with shared.in_flight():
            await shared.store.write(
                scope, Batch(documents=[write]), epoch=epoch, now_us=shared.now_us()
            )

    async def _document(self) -> Document | None:
        store = self._place.shared.store
        return await store.document(await self._place.home(), _KIND, self._session_id)

    async def _all(self) -> list[RecordedItem]:
        """Every item of the session, in the order of recording, partition by partition."""
        seen, _ = await self._look(self._seen)
        self._seen = seen
        return await self._shown(seen.items)

    async def _look(self, seen: _Seen | None) -> tuple[_Seen, Sequence[RecordedItem] | None]:
        """The items as they are now, and those that were new since ``seen``; ``None`` where
        anything else happened too."""
        self._place.look_again()
        now = await reach(self._place)
        changes = None if seen is None else await changes_since(self._place, seen.reach, now)
        if seen is None or changes is None:
            entries = self._user.items(session_id=self._session_id)
            return _Seen(now, {one.key: one async for one in entries}), None
        return self._changed(seen, now, changes)

    def _changed(
        self, seen: _Seen, now: Reach, changes: Sequence[tuple[str, Change]]
    ) -> tuple[_Seen, Sequence[RecordedItem] | None]:
        own = [
            (ItemKey(user_id, *change.key), change)
            for user_id, change in changes
            if change.key is not None and change.key.session_id == self._session_id
        ]
        if not own:
            return _Seen(now, seen.items), ()
        items = dict(seen.items)
        fresh: list[RecordedItem] = []
        grows = True
        for key, change in own:
            if change.kind == "removal":
                grows = items.pop(key, None) is None and grows
            elif change.kind == "entry" and change.entry is not None and change.entry.body:
                grows = grows and key not in items
                items[key] = decode_entry(key.user_id, change.entry)
                fresh.append(items[key])
        return _Seen(now, items), fresh if grows else None

    async def _only_grows(self) -> bool:
        place = self._place
        policy = await place.retention()
        return place.trust == "verified" and not policy.keep and len(await place.scopes()) == 1

    async def _shown(self, items: Mapping[ItemKey, RecordedItem]) -> list[RecordedItem]:
        """Those that this caller may see and that have not run out."""
        place = self._place
        policy, now_us = await place.retention(), place.shared.clock.now()
        hidden = (
            frozenset[ItemKey]() if place.trust == "verified" else await place.sensitive_items()
        )
        order = {scope.name: -number for number, scope in enumerate(await place.scopes())}
        cutoffs = {kind: policy.cutoff_us(kind, now_us) for kind in ("message", "tool_call")}
        shown = [
            one
            for one in items.values()
            if one.key not in hidden and not _has_run_out(one, cutoffs)
        ]
        shown.sort(key=lambda one: (order.get(one.key.user_id, -len(order)), one.position))
        return shown


@dataclass(frozen=True, slots=True)
class _Seen:
    """How far the record was, the session's items then, and the list that they made."""

    reach: Reach
    items: Mapping[ItemKey, RecordedItem]
    listing: Listing | None = None


def _version(document: Document | None) -> int | None:
    return None if document is None else document.version


def _has_run_out(item: RecordedItem, cutoffs: Mapping[str, int | None]) -> bool:
    cutoff = cutoffs[item.key.kind]
    return cutoff is not None and item.at.timestamp() * 1e6 < cutoff


def _arranged(items: Sequence[RecordedItem], document: Document | None) -> Listing:
    """Items in the order that the document gives them, and what came after it behind them."""
    if document is None:
        return Listing(active=items)
    body = _read(document)
    through = cast("dict[str, int]", body["through"])
    named = {(one.key.kind, one.key.id): one for one in items}
    active = _chosen(body["active"], items, named)
    archived = _chosen(body["archived"], items, named)
    placed = {one.key for one in (*active, *archived)}
    later = [
        one
        for one in items
        if one.key not in placed and one.position > through.get(one.key.user_id, 0)
    ]
    return Listing(
        active=[*active, *later],
        archived=archived,
        placed=len(active),
        version=document.version,
    )


def _chosen(
    references: Iterable[Sequence[Any]],
    items: Sequence[RecordedItem],
    named: Mapping[tuple[str, str], RecordedItem],
) -> list[RecordedItem]:
    found: list[RecordedItem] = []
    for reference in references:
        if len(reference) == 2:
            one = named.get((reference[0], reference[1]))
            found += [] if one is None else [one]
            continue
        user_id, first, last = reference
        found += [
            one for one in items if one.key.user_id == user_id and first <= one.position <= last
        ]
    return found


def _written(
    session_id: str,
    wanted: Arrangement,
    stands: Sequence[RecordedItem],
    entries: Sequence[NewEntry],
    version: int | None,
) -> DocumentWrite:
    fresh = iter(entries)
    places = {one.key: number for number, one in enumerate(stands)}
    through: dict[str, int] = {}
    for one in stands:
        through[one.key.user_id] = max(one.position, through.get(one.key.user_id, 0))
    body = {
        "v": _FORMAT,
        "through": through,
        "active": _references(wanted.active, places, fresh),
        "archived": _references(wanted.archived, places, fresh),
    }
    return DocumentWrite(
        kind=_KIND,
        key=session_id,
        body=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        expected_version=version,
    )


def _references(
    items: Sequence[RecordedItem | Item],
    places: Mapping[ItemKey, int],
    fresh: Iterable[NewEntry],
) -> list[list[object]]:
    """Runs of items that stand side by side in the record, as (user id, first position, last
    position), and new ones as (kind, id)."""
    found: list[list[object]] = []
    next_place = -1
    entries = iter(fresh)
    for one in items:
        if not isinstance(one, RecordedItem):
            entry = next(entries)
            found.append([entry.key.kind, entry.key.id])
            next_place = -1
            continue
        place = places[one.key]
        if place == next_place and found[-1][0] == one.key.user_id:
            found[-1][2] = one.position
        else:
            found.append([one.key.user_id, one.position, one.position])
        next_place = place + 1
    return found


def _read(document: Document) -> dict[str, Any]:
    try:
        body = cast("dict[str, Any]", json.loads(document.body))
        if body["v"] > _FORMAT:
            raise SchemaTooNew(
                f"the listing of session {document.key!r} has format {body['v']}, this release "
                f"reads {_FORMAT}; upgrade secondcall"
            )
        for part in ("through", "active", "archived"):
            body[part] = body[part]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(
            f"the stored listing of session {document.key!r} cannot be read "
            f"({type(error).__name__}); run 'secondcall doctor'"
        ) from None
    return body
