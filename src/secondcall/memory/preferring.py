"""Preferences as a state sees them: a view of the facts of that kind, and writing them there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from secondcall.abc import ANY_VERSION, Batch, DocumentWrite
from secondcall.abc_state import StatefulStore
from secondcall.errors import UnknownName
from secondcall.facts.chain import holds_at, predicate_key, stands
from secondcall.facts.read import all_facts, facts_at, history, listed, standing
from secondcall.facts.supersede import new_fact
from secondcall.memory.telling import end, may_see, shown, tell

if TYPE_CHECKING:
    from secondcall.abc import Document, Scope
    from secondcall.abc_state import StateKey, StoredState
    from secondcall.memory.shared import Place
    from secondcall.state.agent_state import Preferred
    from secondcall.types import Fact, JsonValue

__all__ = ["prefer", "preferences", "seen_names", "state_and_preferences", "sweep_told"]

_MAX_PREFERENCES = 10_000
_PAGE = 500
_TOLD = "state_told"
_TOLD_FOR = timedelta(days=30)
"""So long an update under a key may be tried again."""


async def state_and_preferences(
    place: Place, key: StateKey
) -> tuple[StoredState | None, Mapping[str, JsonValue]] | None:
    """Both of a user of one partition whose store keeps both, in one read; else ``None``."""
    shared = place.shared
    shared.state_store()
    together = isinstance(shared.store, StatefulStore) and not shared.states_apart
    if not together or len(await place.scopes()) > 1:
        return None
    stored, page = await cast("StatefulStore", shared.store).state_and_documents(
        key, "fact_standing", prefix="preference/", limit=_MAX_PREFERENCES
    )
    return stored, await preferences(place, page)


async def preferences(
    place: Place, page: Sequence[Document] | None = None
) -> Mapping[str, JsonValue]:
    """The user's current preferences by predicate, without those that this caller may not see; of a
    predicate with several values a tuple of them. ``page`` is the list of those that stand, if it
    was read already."""
    scopes, now = await place.scopes(), place.shared.clock.now()
    store = place.shared.store
    if page is None:
        found = await standing(store, scopes, ["preference"], limit=_MAX_PREFERENCES, now=now)
    else:
        if place.standing is None or place.standing[0] != page:
            place.standing = page, await listed(page)
        found = [fact for fact in place.standing[1] if stands(fact, now)]
    if any(fact.valid_from > now for fact in found):
        found = await facts_at(store, scopes, now, kinds=["preference"])
    view: dict[str, JsonValue] = {}
    for fact in await shown(place, found):
        if fact.subject != "user" or not holds_at(fact, now):
            continue
        if fact.multi:
            before = view.get(fact.predicate, ())
            view[fact.predicate] = (*(before if isinstance(before, tuple) else ()), fact.value)
        else:
            view[fact.predicate] = fact.value
    return MappingProxyType(view)


async def prefer(
    place: Place,
    preferred: Sequence[Preferred],
    *,
    told: dict[str, JsonValue],
    key: tuple[str | None, str] | None,
) -> None:
    """Make these preferences facts, as ``remember`` does; all are checked before any is told. What
    is in ``told`` already is not told again: after a lost race somebody else may have said
    something newer. With a ``key``, of a session and an update, each value is told once for all
    updates under it, in whichever process.

    Raises: ``InvalidValue``, ``TooLarge``, ``UserErased``, store errors.
    """
    facts = [_fact(place, one) for one in preferred]
    for one, fact in zip(preferred, facts, strict=True):
        if one.name in told and told[one.name] == one.value:
            continue
        await _tell_once(place, one, fact, key)
        told[one.name] = one.value


async def seen_names(place: Place) -> Callable[[str], bool]:
    """Whether this caller may know that there is, or was, a preference of a name."""
    if place.trust == "verified":
        return lambda _: True
    visible = await may_see(place)
    shown, hidden = set[str](), set[str]()
    for fact in await all_facts(place.shared.store, await place.scopes()):
        (shown if visible(fact) else hidden).add(predicate_key(fact.subject, fact.predicate))
    return lambda name: predicate_key("user", name) in shown - hidden


async def sweep_told(place: Place, scope: Scope) -> None:
    """Delete the marks of updates that are too long ago to be tried again."""
    shared = place.shared
    header = await shared.store.header(scope)
    if header is None:
        return
    now_us, after = shared.now_us(), ""
    while page := await shared.store.documents(scope, _TOLD, after=after, limit=_PAGE):
        after = page[-1].key
        old = [one for one in page if one.expires_us is not None and one.expires_us <= now_us]
        gone = [
            DocumentWrite(kind=_TOLD, key=one.key, body=None, expected_version=ANY_VERSION)
            for one in old
        ]
        if gone:
            await shared.store.write(
                scope, Batch(documents=gone), epoch=header.epoch, now_us=now_us
            )


def _fact(place: Place, one: Preferred) -> Fact:
    return new_fact(
        one.name,
        one.value,
        kind="preference",
        subject="user",
        now=place.shared.clock.now(),
        sources=one.sources,
        sensitive=one.sensitive,
    )


async def _tell_once(
    place: Place, one: Preferred, fact: Fact, key: tuple[str | None, str] | None
) -> None:
    mark = None if key is None else _mark(key, one)
    if mark is not None and await _is_told(place, mark):
        return
    if one.value is None:
        await _end(place, one.name)
    elif mark is None:
        await tell(place, fact)
        return
    else:
        with suppress(_Told):
            await tell(place, fact, also=partial(_marking, place, mark))
    if mark is not None and not await _is_told(place, mark):
        batch = Batch(documents=[_written(place, mark, ANY_VERSION)])
        await place.shared.store.write(
            await place.home(), batch, epoch=await place.epoch(), now_us=place.shared.now_us()
        )


class _Told(Exception):
    """Somebody else told the preference, under the same key, in the meantime."""


async def _marking(place: Place, mark: str) -> Sequence[DocumentWrite]:
    """The mark, to be written with the fact, so that neither is ever there alone."""
    if await _is_told(place, mark):
        raise _Told
    there = await place.shared.store.document(await place.home(), _TOLD, mark)
    return [_written(place, mark, None if there is None else there.version)]


async def _is_told(place: Place, mark: str) -> bool:
    now_us = place.shared.now_us()
    for scope in await place.scopes():
        found = await place.shared.store.document(scope, _TOLD, mark)
        if found is not None and (found.expires_us is None or found.expires_us > now_us):
            return True
    return False


def _written(place: Place, mark: str, expected: int | None) -> DocumentWrite:
    until = place.shared.now_us() + _TOLD_FOR // timedelta(microseconds=1)
    return DocumentWrite(
        kind=_TOLD, key=mark, body=b"{}", expected_version=expected, expires_us=until
    )


async def _end(place: Place, name: str) -> None:
    """End what holds, each of several values."""
    now = place.shared.clock.now()
    known = await history(place.shared.store, await place.scopes(), name, subject="user")
    several = [fact.value for fact in known if fact.multi and holds_at(fact, now)]
    for value in several or [None]:
        with suppress(UnknownName):
            await end(place, name, "user", value=value)


def _mark(key: tuple[str | None, str], one: Preferred) -> str:
    """The document that says that an update under this key has told a preference."""
    whole = json.dumps([*key, one.name, one.value], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:40]
