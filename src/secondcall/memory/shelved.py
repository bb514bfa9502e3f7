"""A buffer's summaries beside the record of its session, and the items that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from secondcall.abc import EntryKey
from secondcall.checks import to_us
from secondcall.facts.moved import KEY_FACT
from secondcall.facts.supersede import new_fact
from secondcall.memory.telling import tell
from secondcall.record.append import decode_entry
from secondcall.shortterm.kept import Head, Shelf, drop_items, read_head, read_nodes, write_head
from secondcall.types import ItemKey, ItemKind, RecordedItem

if TYPE_CHECKING:
    from secondcall.memory.shared import Place
    from secondcall.shortterm.keyfacts import KeyFact
    from secondcall.shortterm.levels import SummaryNode

__all__ = ["RecordShelf", "items_of", "place_of"]


class _Session(Protocol):
    """The buffered session that a shelf is of."""

    @property
    def place(self) -> Place:
        """The user whose session it is."""
        ...

    @property
    def session_id(self) -> str:
        """The session."""
        ...

    def cutoffs(self) -> Mapping[ItemKind, int]:
        """What was said before these times (microseconds) has run out, by kind of item."""
        ...

    async def newest(self, boundary: tuple[int, int]) -> list[RecordedItem]:
        """The items behind ``boundary``, in reading order."""
        ...


class RecordShelf(Shelf):
    """Keeps a buffer's summaries beside the record of its session."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._place = session.place

    async def load(self) -> Head | None:
        """The head, if there is one."""
        place = self._place
        return await read_head(place.shared.store, await place.home(), self._session.session_id)

    async def save(self, head: Head, nodes: Sequence[SummaryNode]) -> Head:
        """Write new nodes and the head in one step."""
        place = self._place
        return await write_head(
            place.shared.store,
            await place.home(),
            self._session.session_id,
            head,
            nodes,
            epoch=await place.epoch(),
            now_us=place.shared.now_us(),
        )

    async def nodes(self, ids: Collection[str]) -> Mapping[str, SummaryNode]:
        """Nodes by id, those that are there."""
        place = self._place
        return await read_nodes(
            place.shared.store, await place.home(), self._session.session_id, ids
        )

    async def items(self, keys: Sequence[ItemKey]) -> list[RecordedItem]:
        """The items with these keys that may be shown, in order."""
        return await items_of(self._place, keys)

    async def newest(self, boundary: tuple[int, int]) -> list[RecordedItem]:
        """The items behind ``boundary``; of very many the newest."""
        return await self._session.newest(boundary)

    async def move(self, facts: Sequence[KeyFact]) -> None:
        """Make facts of them, which recall finds."""
        sensitive = await self._place.sensitive_items() if facts else frozenset[ItemKey]()
        for fact in facts:
            remembered = new_fact(
                f"said {fact.id}",
                fact.text,
                kind="attribute",
                subject="user",
                now=self._place.shared.clock.now(),
                valid_from=fact.at,
                sensitive=not sensitive.isdisjoint(fact.sources),
                sources=fact.sources,
                metadata={KEY_FACT: True, "speaker": fact.speaker},
            )
            await tell(self._place, remembered)

    async def drop(self, keys: Collection[ItemKey], *, gone: bool) -> None:
        """Drop what rests on these items."""
        place = self._place
        await drop_items(
            place.shared.store,
            await place.home(),
            keys,
            epoch=await place.epoch(),
            now_us=place.shared.now_us(),
            gone=gone,
        )

    def cutoffs(self) -> Mapping[ItemKind, int]:
        """What was said before these times has run out, by kind."""
        return self._session.cutoffs()


async def items_of(place: Place, keys: Collection[ItemKey]) -> list[RecordedItem]:
    """Items of the record by key, in reading order, without what is gone, has run out or must not
    be shown."""
    verified = place.trust == "verified"
    hidden = frozenset[ItemKey]() if verified else await place.sensitive_items()
    policy, now = await place.retention(), place.shared.clock.now()
    found: list[RecordedItem] = []
    for scope in await place.scopes():
        wanted = [EntryKey(*key[1:]) for key in keys if key.user_id == scope.name]
        for entry in await place.shared.store.entries(scope, wanted) if wanted else ():
            cutoff = policy.cutoff_us(entry.key.kind, now)
            if cutoff is None or entry.at_us >= cutoff:
                found.append(decode_entry(scope.name, entry))
    found = [one for one in found if one.key not in hidden]
    return sorted(found, key=lambda one: (one.at, one.position))


def place_of(one: RecordedItem) -> tuple[int, int]:
    """Where an item stands in reading order: its time in microseconds, and its position."""
    return to_us("at", one.at), one.position
