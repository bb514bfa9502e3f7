"""What model calls used, as it is stored and added up. Pure.

A document of kind *usage* holds some calls; its key begins with the time of the first. A document
whose key ends in ``.day`` holds a day's calls added up.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from secondcall.abc import Document, DocumentWrite
from secondcall.checks import from_us
from secondcall.usage import Call, Layer, Usage, UsageCall, UsageTotal

__all__ = [
    "DAY_US",
    "KIND",
    "Row",
    "Tally",
    "added_up",
    "can_be_added",
    "decode",
    "deletion",
    "ends_us",
    "first_key",
    "is_day",
    "new_document",
    "sound",
]

KIND = "usage"
DAY_US = 86_400 * 1_000_000
_log = logging.getLogger("secondcall")
_DAY_MARK = ".day"
_MAX_RAW_CHARACTERS = 2_000
_MAX_DAY_ROWS = 1_000
_RECENT_CALLS = 1_000
_MAX_NAME_CHARACTERS = 256
_MAX_TOKENS = 1 << 53
_KEY_OFFSET = 10**17
"""Makes every time of the years 1 to 9999 a number without a sign, so that keys sort by time."""


@dataclass(frozen=True, slots=True)
class Row:
    """One call, or ``count`` of them added up, the last of them ``at_us``."""

    at_us: int
    session_id: str
    layer: Layer
    call: Call
    count: int = 1


class Tally:
    """Adds rows up: all of them, and by layer, session and model."""

    def __init__(self) -> None:
        self._all = _Sum()
        self._layers: dict[str, _Sum] = defaultdict(_Sum)
        self._sessions: dict[str, _Sum] = defaultdict(_Sum)
        self._models: dict[str, _Sum] = defaultdict(_Sum)
        self._recent: list[UsageCall] = []

    def add(self, user_id: str, row: Row, *, single: bool) -> None:
        """Count one row; a ``single`` call is also kept as it is, if it is among the newest."""
        call = row.call
        sums = (self._layers[row.layer], self._sessions[row.session_id], self._models[call.model])
        for one in (self._all, *sums):
            one.add(row)
        if single:
            at = from_us(row.at_us)
            self._recent.append(
                UsageCall(
                    at=at, user_id=user_id, session_id=row.session_id, layer=row.layer, call=call
                )
            )
            if len(self._recent) > 2 * _RECENT_CALLS:
                self._recent = self._newest()

    def usage(self, since: datetime | None) -> Usage:
        """What was counted."""
        return Usage(
            total=self._all.total(),
            layers=_totals(self._layers),
            sessions=_totals(self._sessions),
            models=_totals(self._models),
            recent=self._newest(),
            since=since,
        )

    def _newest(self) -> list[UsageCall]:
        return sorted(self._recent, key=lambda one: one.at)[-_RECENT_CALLS:]


class _Sum:
    def __init__(self) -> None:
        self.calls = self.input_tokens = self.output_tokens = 0
        self.costs: list[float] = []

    def add(self, row: Row) -> None:
        self.calls += row.count
        self.input_tokens += row.call.input_tokens
        self.output_tokens += row.call.output_tokens
        if row.call.cost is not None:
            self.costs.append(row.call.cost)

    def total(self) -> UsageTotal:
        return UsageTotal(
            calls=self.calls,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost=math.fsum(self.costs) if self.costs else None,
        )


def _totals(sums: Mapping[str, _Sum]) -> dict[str, UsageTotal]:
    return {name: sums[name].total() for name in sorted(sums)}


def sound(call: Call) -> Call:
    """The call with names and numbers that can be kept and added up, whatever an endpoint sent."""
    cost: object = call.cost
    usable = isinstance(cost, int | float) and not isinstance(cost, bool) and math.isfinite(cost)
    return Call(
        model=str(call.model)[:_MAX_NAME_CHARACTERS],
        operation=call.operation,
        input_tokens=_whole(call.input_tokens),
        output_tokens=_whole(call.output_tokens),
        cost=float(cast("float", cost)) if usable else None,
        raw=call.raw,
    )


def _whole(value: object) -> int:
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_TOKENS
    return cast("int", value) if usable else 0


def _key(at_us: int, mark: str) -> str:
    return f"{max(0, at_us + _KEY_OFFSET):018d}{mark}"


def is_day(document: Document) -> bool:
    """Whether a document holds a day's calls added up."""
    return document.key.endswith(_DAY_MARK)


def ends_us(document: Document) -> int:
    """About when the last call of a document was; a day's at its end."""
    at_us = int(document.key.partition(".")[0]) - _KEY_OFFSET
    return at_us + DAY_US if is_day(document) else at_us


def first_key(since_us: int) -> str:
    """No document that holds a call of this time or later has this key or a lower one.

    A batch is named by its first call, and its others may be of the next day.
    """
    return _key(since_us - since_us % DAY_US - DAY_US - 1, "")


def new_document(rows: Sequence[Row], *, keep_us: int) -> DocumentWrite:
    """A document with some calls, under a key of its own."""
    key = _key(rows[0].at_us, f".{secrets.token_hex(6)}")
    return DocumentWrite(
        kind=KIND,
        key=key,
        body=_encode(rows),
        expected_version=None,
        expires_us=rows[-1].at_us + keep_us,
    )


def deletion(document: Document) -> DocumentWrite:
    """Deletes a document as it was read."""
    return DocumentWrite(kind=KIND, key=document.key, body=None, expected_version=document.version)


def can_be_added(documents: Sequence[Document], days: Mapping[str, Document]) -> list[Document]:
    """Those of which all can be read, as can what there is of their days."""
    unreadable = {key for key, day in days.items() if not decode(day)}
    return [
        one
        for one in documents
        if (rows := decode(one))
        and unreadable.isdisjoint(_key(row.at_us - row.at_us % DAY_US, _DAY_MARK) for row in rows)
    ]


def added_up(
    documents: Sequence[Document], days: Mapping[str, Document], *, keep_us: int
) -> Iterable[DocumentWrite]:
    """One document for each day: what there is of it already, and ``documents``."""
    by_day: dict[int, list[Row]] = defaultdict(list)
    for document in documents:
        for row in decode(document):
            by_day[row.at_us - row.at_us % DAY_US].append(row)
    for day_us, rows in by_day.items():
        key = _key(day_us, _DAY_MARK)
        old = days.get(key)
        if old is not None:
            rows[:0] = decode(old)
        yield DocumentWrite(
            kind=KIND,
            key=key,
            body=_encode(_grouped(rows)),
            expected_version=None if old is None else old.version,
            expires_us=day_us + DAY_US + keep_us,
        )


def _grouped(rows: Sequence[Row]) -> list[Row]:
    """One row for each layer, session, model and operation; without the sessions when they are
    very many."""
    groups: dict[tuple[Layer, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.layer, row.session_id, row.call.model, row.call.operation].append(row)
    if len(groups) > _MAX_DAY_ROWS and any(row.session_id for row in rows):
        return _grouped([Row(one.at_us, "", one.layer, one.call, one.count) for one in rows])
    return [_one(group) for group in groups.values()]


def _one(rows: Sequence[Row]) -> Row:
    costs = [row.call.cost for row in rows if row.call.cost is not None]
    call = Call(
        model=rows[0].call.model,
        operation=rows[0].call.operation,
        input_tokens=sum(row.call.input_tokens for row in rows),
        output_tokens=sum(row.call.output_tokens for row in rows),
        cost=math.fsum(costs) if costs else None,
    )
    last_us = max(row.at_us for row in rows)
    count = sum(row.count for row in rows)
    return Row(last_us, rows[0].session_id, rows[0].layer, call, count)


def _encode(rows: Iterable[Row]) -> bytes:
    return json.dumps(
        [
            {
                "at": row.at_us,
                "session": row.session_id,
                "layer": row.layer,
                "model": row.call.model,
                "operation": row.call.operation,
                "in": row.call.input_tokens,
                "out": row.call.output_tokens,
                "cost": row.call.cost,
                "count": row.count,
                "raw": _bounded(row.call.raw),
            }
            for row in rows
        ]
    ).encode()


def _bounded(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The raw object, if it is one and of a size that a count of tokens has."""
    try:
        return (
            dict(raw) if len(json.dumps(dict(raw), allow_nan=False)) <= _MAX_RAW_CHARACTERS else {}
        )
    except (TypeError, ValueError, RecursionError):
        return {}


def decode(document: Document) -> list[Row]:
    """The rows of a document; one that cannot be read counts for nothing and is left alone."""
    try:
        found = cast("list[dict[str, Any]]", json.loads(document.body))
        return [
            Row(
                one["at"],
                one["session"],
                one["layer"],
                Call(
                    model=one["model"],
                    operation=one["operation"],
                    input_tokens=one["in"],
                    output_tokens=one["out"],
                    cost=one["cost"],
                    raw=one["raw"],
                ),
                one["count"],
            )
            for one in found
        ]
    except (ValueError, KeyError, TypeError):
        _log.warning("a usage document cannot be read", extra={"error": "StoreCorrupt"})
        return []
