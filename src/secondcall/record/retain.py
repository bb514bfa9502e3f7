"""Retention: how long items and facts are kept, checked at every read and swept for good.

A policy is the tenant's, or the user's own where there is one. Under a legal hold nothing is swept
or forgotten; what has run out is hidden all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, get_args

from secondcall.abc import ANY_VERSION, Batch, DocumentWrite, EntryKey
from secondcall.checks import parse_duration, to_us
from secondcall.errors import InvalidValue
from secondcall.types import ItemKind

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope, Store

__all__ = [
    "Retention",
    "expired_keys",
    "parse_retention",
    "policy_write",
    "read_policy",
    "remove_items",
]

_KINDS = (*get_args(ItemKind), "fact")
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How long each kind (*message*, *tool_call*, *fact*) is kept; a missing kind for ever."""

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
    """The user's own policy, or the tenant's."""
    document = await store.document(scope, "retention", "policy")
    if document is None:
        return default
    content = json.loads(document.body)
    keep = (
        default.keep
        if content["keep"] is None
        else {kind: timedelta(seconds=seconds) for kind, seconds in content["keep"].items()}
    )
    return Retention(keep, hold=content["hold"], own=content["keep"] is not None)


def policy_write(keep: Mapping[str, timedelta] | None, *, hold: bool) -> DocumentWrite:
    """A user's own policy as a document; with ``keep`` ``None`` the tenant's goes on."""
    seconds = None if keep is None else {kind: one.total_seconds() for kind, one in keep.items()}
    return DocumentWrite(
        kind="retention",
        key="policy",
        body=json.dumps({"v": 1, "keep": seconds, "hold": hold}).encode(),
        expected_version=ANY_VERSION,
    )


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
    store: Store, scope: Scope, keys: list[EntryKey], *, epoch: Epoch, now_us: int
) -> int:
    """Remove items from the record, page by page; how many were there. Segments are not touched."""
    removed = 0
    for start in range(0, len(keys), _PAGE):
        batch = Batch(removals=keys[start : start + _PAGE])
        removed += (await store.write(scope, batch, epoch=epoch, now_us=now_us)).removed
    return removed
