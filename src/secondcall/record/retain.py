"""Retention: how long items and facts are kept, checked at every read and swept for good.

A policy is the tenant's, or the user's own where there is one. Under a legal hold nothing is swept
or forgotten; what has run out is hidden all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast, get_args

from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, EntryKey
from secondcall.checks import parse_duration, to_us
from secondcall.errors import InvalidValue, StoreCorrupt, VersionConflict
from secondcall.races import Race
from secondcall.types import ItemKind

if TYPE_CHECKING:
    from secondcall.abc import Document, Epoch, Scope, Store

__all__ = [
    "POLICY",
    "REMOVAL_MARK",
    "Retention",
    "change_policy",
    "expired_keys",
    "parse_retention",
    "policy_in",
    "read_policy",
    "remove_items",
]

_KINDS = (*get_args(ItemKind), "fact", "state")
POLICY = ("retention", "policy")
"""The (kind, key) of the document that holds a user's own policy and hold."""
REMOVAL_MARK = DocumentWrite(kind="removal", key="last", body=b"{}", expected_version=ANY_VERSION)
"""Written with every removal: its version tells whoever builds segments that something went."""
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind (*message*, *tool_call*, *fact*) is kept, and of a *state* its earlier
    versions; a missing kind for ever."""

    keep: Mapping[str, timedelta] = field(default_factory=dict[str, timedelta])
    hold: bool = False
    own: bool = False
    """Whether the user has a policy of their own."""

    def cutoff_us(self, kind: str, now: datetime) -> int | None:
        """Items of this kind older than this have run out; ``None``: none ever does."""
        duration = self.keep.get(kind)
        if duration is None:
            return None
        try:
            return to_us("cutoff", now - duration)
        except OverflowError:
            return None

    def session_cutoff_us(self, now: datetime) -> int | None:
        """Sessions that ended before this have nothing left to show; ``None``: none has run out."""
        cutoffs = [self.cutoff_us(kind, now) for kind in get_args(ItemKind)]
        known = [one for one in cutoffs if one is not None]
        return min(known) if len(known) == len(cutoffs) else None


def parse_retention(value: object) -> Retention:
    """From ``"90d"``, a ``timedelta``, or one of them by kind: ``{"tool_call": "30d"}``.

    Raises: ``InvalidValue``.
    """
    if value is None:
        return Retention()
    if isinstance(value, Retention):
        return value
    if isinstance(value, Mapping):
        unknown = [kind for kind in value if kind not in _KINDS]  # pyright: ignore[reportUnknownVariableType] - any mapping may come
        if unknown:
            raise InvalidValue(f"retain has the kind {unknown[0]!r}, expected {', '.join(_KINDS)}")
        return Retention(
            {str(kind): parse_duration(f"retain.{kind}", one) for kind, one in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - checked by parse_duration
        )
    duration = parse_duration("retain", value)
    return Retention(dict.fromkeys(_KINDS, duration))


async def read_policy(store: Store, scope: Scope, default: Retention) -> Retention:
    """The user's own policy, or the tenant's, with the user's hold."""
    return policy_in(scope, await store.document(scope, *POLICY), default)


def policy_in(scope: Scope, document: Document | None, default: Retention) -> Retention:
    """The same from the user's ``POLICY`` document. Raises: ``StoreCorrupt``."""
    if document is None and not default.hold:
        return default
    policy = _decoded(scope, document)
    return policy if policy.own else replace(default, hold=policy.hold)


async def change_policy(
    store: Store,
    scope: Scope,
    change: Callable[[Retention], Retention],
    *,
    epoch: Epoch,
    now_us: int,
) -> None:
    """Change what is stored of a user's policy and hold, whoever else changes it meanwhile.

    Raises: ``VersionConflict`` after thirty seconds of lost races, ``UserErased``, store errors.
    """
    race = Race()
    while True:
        document = await store.document(scope, *POLICY)
        changed = change(_decoded(scope, document))
        keep = {kind: one.total_seconds() for kind, one in changed.keep.items()}
        body = {"v": 1, "keep": keep if changed.own else None, "hold": changed.hold}
        kind, key = POLICY
        version = None if document is None else document.version
        write = DocumentWrite(
            kind=kind, key=key, body=json.dumps(body).encode(), expected_version=version
        )
        try:
            await store.write(scope, Batch(documents=[write]), epoch=epoch, now_us=now_us)
        except VersionConflict:
            if not await race.goes_on():
                raise
            continue
        return


def _decoded(scope: Scope, document: Document | None) -> Retention:
    if document is None:
        return Retention()
    try:
        content = cast("dict[str, Any]", json.loads(document.body))
        keep = cast("dict[str, float] | None", content["keep"])
        durations = {kind: timedelta(seconds=seconds) for kind, seconds in (keep or {}).items()}
        hold = bool(content["hold"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorrupt(
            f"the stored retention policy of user {scope.name!r} cannot be read "
            f"({type(error).__name__}); run 'secondcall doctor'"
        ) from None
    return Retention(durations, hold=hold, own=keep is not None)


async def expired_keys(
    store: Store, scope: Scope, retention: Retention, now: datetime
) -> list[EntryKey]:
    """The items that have run out, oldest first."""
    cutoffs = {kind: retention.cutoff_us(kind, now) for kind in get_args(ItemKind)}
    newest = max((one for one in cutoffs.values() if one is not None), default=None)
    found: list[EntryKey] = []
    after: tuple[int, int] | None = None
    while newest is not None:
        page = await store.read(scope, until_us=newest, after=after, limit=_PAGE)
        for entry in page:
            cutoff = cutoffs[entry.key.kind]
            if cutoff is not None and entry.at_us < cutoff:
                found.append(entry.key)
        if len(page) < _PAGE:
            break
        after = (page[-1].at_us, page[-1].position)
    return found


async def remove_items(
    store: Store,
    scope: Scope,
    keys: list[EntryKey],
    *,
    epoch: Epoch,
    now_us: int,
    derived: Callable[[Sequence[EntryKey]], Sequence[DocumentWrite]] = lambda _: (),
) -> int:
    """Remove items from the record, page by page; how many were there. Segments are not touched.

    ``derived`` gives the deletions of what rests on a page's items; they go in the same batch.
    """
    removed = 0
    for start in range(0, len(keys), _PAGE):
        page = keys[start : start + _PAGE]
        batch = Batch(removals=page, documents=[REMOVAL_MARK, *derived(page)])
        removed += (await store.write(scope, batch, epoch=epoch, now_us=now_us)).removed
    return removed
