"""The lines of a journal: items and what is known of them, each with its check sum. Pure."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from secondcall.checks import from_us, to_us
from secondcall.types import Item, JsonValue, Message, ToolCall

__all__ = [
    "Header",
    "Lines",
    "decode_lines",
    "encode_done",
    "encode_header",
    "encode_item",
    "key_of",
]

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Whose call it is. Without ``user_id`` the caller is found by ``who``; without ``epoch`` the
    store could not be asked for it."""

    tenant_id: str
    user_id: str | None
    session_id: str
    made_at: datetime
    who: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    epoch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What a journal says; ``damaged`` counts the lines that cannot be read."""

    header: Header | None
    items: Sequence[Item]
    damaged: int


def key_of(item: Item) -> tuple[str, str | None]:
    """What tells items of a session apart: their kind and id."""
    return ("message", item.id) if isinstance(item, Message) else ("tool_call", item.call_id)


def encode_header(header: Header) -> bytes:
    """The first line; one that comes later takes its place."""
    return _line(
        {
            "v": _VERSION,
            "tenant": header.tenant_id,
            "user": header.user_id,
            "session": header.session_id,
            "made": to_us("made_at", header.made_at),
            "who": header.who,
            "epoch": header.epoch,
        }
    )


def encode_item(item: Item) -> bytes:
    """One item."""
    at = None if item.at is None else to_us("at", item.at)
    if isinstance(item, Message):
        what: dict[str, object] = {
            "role": item.role,
            "text": item.text,
            "id": item.id,
            "speaker": item.speaker,
            "interrupted": item.interrupted,
        }
    else:
        what = {
            "name": item.name,
            "arguments": item.arguments,
            "call": item.call_id,
            "output": item.output,
            "is_error": item.is_error,
        }
    return _line({"at": at, "metadata": item.metadata, **what})


def encode_done(count: int) -> bytes:
    """That the store has the first ``count`` items."""
    return _line({"done": count})


def decode_lines(data: bytes) -> Lines:
    """What a journal says: whose call it is as it was known last, and the items that the store is
    not known to have, in the order of writing.

    A last line without an end is no damage: nobody was told that it is safe.
    """
    *whole, _ = data.split(b"\n")
    header: Header | None = None
    items: list[Item] = []
    done = damaged = 0
    for line in whole:
        found = _decoded(line)
        if found is None:
            damaged += 1
        elif "v" in found:
            header = _header(found) or header
        elif "done" in found:
            done = int(found["done"]) - damaged
        else:
            items.append(_item(found))
    return Lines(header=header, items=items[max(0, done) :], damaged=damaged)


def _header(found: Mapping[str, Any]) -> Header | None:
    if found.get("v") != _VERSION:
        return None
    return Header(
        tenant_id=found["tenant"],
        user_id=found["user"],
        session_id=found["session"],
        made_at=from_us(found["made"]),
        who=found["who"],
        epoch=found["epoch"],
    )


def _item(found: Mapping[str, Any]) -> Item:
    at = None if found["at"] is None else from_us(found["at"])
    if "role" in found:
        return Message(
            found["role"],
            found["text"],
            id=found["id"],
            speaker=found["speaker"],
            at=at,
            interrupted=found["interrupted"],
            metadata=found["metadata"],
        )
    return ToolCall(
        found["name"],
        found["arguments"],
        call_id=found["call"],
        output=found["output"],
        is_error=found["is_error"],
        at=at,
        metadata=found["metadata"],
    )


def _line(what: Mapping[str, object]) -> bytes:
    body = json.dumps(what, ensure_ascii=True, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _decoded(line: bytes) -> dict[str, Any] | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        found: object = json.loads(body)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
