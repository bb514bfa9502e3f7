"""Finds facts with a model, in the background: nobody waits for it, nothing is lost by it.

Whatever is recorded is in the queue already (see ``extracted``). It is looked at when the user has
said so much, when a session is closed, and when a user comes back; then a stretch of it is claimed
by compare-and-set, the model is asked without any lock or transaction held, and what may stand of
its answer is written together with the new position in one batch. A model that fails is asked again
later, ever more seldom and for ever less at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from secondcall.abc import EntryKey
from secondcall.errors import UserErased, VersionConflict
from secondcall.facts.extract import is_extracted
from secondcall.facts.refusals import normalised
from secondcall.facts.sweep import remove_facts
from secondcall.memory.extraction import CLAIM_SECONDS, TURNS, Extraction
from secondcall.types import ItemKey, Message

if TYPE_CHECKING:
    from secondcall.abc import Scope
    from secondcall.memory.extraction import Outcome
    from secondcall.memory.shared import Place
    from secondcall.types import Item, RecalledItem, RecordedItem

__all__ = [
    "Extracting",
    "drop_extracted",
    "extract_at_close",
    "extract_waiting",
    "note_recalled",
    "note_recorded",
]

_WRITE_TRIES = 8
_MAX_USERS = 10_000
_MAX_SHOWN = 256
_REPEATED_WORDS = 4
"""Shorter texts, such as "yes, please", are said anew by anybody."""

_Name = tuple[str, str]


class Extracting:
    """What one process knows of the queues: who is due, what was shown, what is tried again."""

    def __init__(self) -> None:
        self.holder = secrets.token_hex(8)
        self.due: dict[_Name, str | None] = {}
        """Users whose queue is to be looked at: the session that goes on, ``None``: do it all."""
        self.turns: Counter[_Name] = Counter()
        self.shown: OrderedDict[_Name, OrderedDict[bytes, tuple[ItemKey, datetime]]] = OrderedDict()
        self._timers: dict[_Name, asyncio.TimerHandle] = {}

    def later(self, name: _Name, seconds: float, work: Callable[[], None]) -> None:
        """Do ``work`` after so long, and only the last that was asked for."""
        self._cancel(name)

        def run() -> None:
            self._timers.pop(name, None)
            work()

        if len(self._timers) < _MAX_USERS:
            self._timers[name] = asyncio.get_running_loop().call_later(seconds, run)

    def _cancel(self, name: _Name) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def forget(self, tenant_id: str, user_id: str) -> None:
        """Know nothing of a user any more."""
        name = (tenant_id, user_id)
        self._cancel(name)
        self.due.pop(name, None)
        self.turns.pop(name, None)
        self.shown.pop(name, None)

    def close(self) -> None:
        """Try nothing again: the queue is in the store."""
        for name in list(self._timers):
            self._cancel(name)


def note_recorded(place: Place, items: Iterable[Item], *, closed: bool) -> None:
    """Count what was recorded, and look for facts when there is enough, or at once in a session
    that is over."""
    if not _is_on(place):
        return
    name, state = _name(place), place.shared.extracting
    state.turns[name] += sum(isinstance(one, Message) and one.role == "user" for one in items)
    if closed or state.turns[name] >= TURNS:
        _start(place, None)


def note_recalled(place: Place, items: Iterable[RecalledItem]) -> None:
    """Remember what was shown, so that it is not taken for something that the user says anew."""
    if not _is_on(place):
        return
    shown = place.shared.extracting.shown
    mine = shown.setdefault(_name(place), OrderedDict())
    shown.move_to_end(_name(place))
    for one in items:
        if isinstance(one.item, Message):
            digest = _digest(one.item.text)
            known = mine.pop(digest, None)
            mine[digest] = (one.key, one.at) if known is None or one.at < known[1] else known
    while len(mine) > _MAX_SHOWN:
        mine.popitem(last=False)
    if len(shown) > _MAX_USERS:
        shown.popitem(last=False)


def extract_at_close(place: Place) -> None:
    """Look for facts in all that waits, in the background."""
    if _is_on(place):
        _start(place, None)


def extract_waiting(place: Place, session_id: str) -> None:
    """Take up what an earlier session left waiting, in the background; not what belongs to this
    one, which goes on, unless it has grown long."""
    if _is_on(place):
        _start(place, session_id)


async def drop_extracted(place: Place, scope: Scope, keys: Collection[EntryKey]) -> None:
    """Remove the facts that a model found in nothing but these items, ended ones included."""
    items = frozenset(ItemKey(scope.name, *key) for key in keys)
    header = await place.shared.store.header(scope)
    for attempt in range(_WRITE_TRIES) if header is not None else ():
        assert header is not None
        try:
            await remove_facts(
                place.shared.store,
                scope,
                lambda fact: is_extracted(fact) and items.issuperset(fact.sources),
                epoch=header.epoch,
                now_us=place.shared.now_us(),
            )
        except VersionConflict:
            if attempt == _WRITE_TRIES - 1:
                raise
            continue
        return


def _is_on(place: Place) -> bool:
    return place.shared.extract and place.shared.model is not None


def _name(place: Place) -> _Name:
    return (place.tenant_id, place.user_id)


def _start(place: Place, but: str | None) -> None:
    state, name = place.shared.extracting, _name(place)
    if but is None or name not in state.due:
        state.due[name] = but
    place.shared.background.start(("extract", *name), lambda: _work(place))


async def _work(place: Place) -> None:
    state, name = place.shared.extracting, _name(place)
    if name not in state.due:
        return
    but = state.due.pop(name)
    if but is None:
        state.turns.pop(name, None)
    model = place.shared.model
    place.look_again()
    for scope in await place.scopes() if model is not None else ():
        assert model is not None
        outcome: Outcome = "again"
        while outcome == "again":
            try:
                outcome = await Extraction(
                    place,
                    scope,
                    model,
                    later=partial(_look_later, place),
                    repeats=partial(_repeats, place),
                ).step(but)
            except UserErased:
                break
            except (
                VersionConflict
            ):  # another process is at it; it is looked whether it came through
                _look_later(place, CLAIM_SECONDS)
                break


def _look_later(place: Place, seconds: float) -> None:
    place.shared.extracting.later(_name(place), seconds, lambda: _start(place, None))


def _repeats(place: Place, item: RecordedItem, text: str) -> bool:
    """Whether an item says nothing but what an older one says, which was shown since."""
    shown = place.shared.extracting.shown.get(_name(place))
    found = None if shown is None else shown.get(_digest(text))
    if found is None or len(text.split()) < _REPEATED_WORDS:
        return False
    key, at = found
    return key != item.key and at <= item.at


def _digest(text: str) -> bytes:
    words = normalised(text).casefold()
    return hashlib.blake2b(words.encode("utf-8", "replace"), digest_size=8).digest()
