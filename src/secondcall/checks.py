"""What every verb accepts: ids, times, texts, JSON and limits, checked in one place.

Each function gives the value in its stored form or raises an error that names the field. Knows only
``errors`` and ``types``.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from secondcall.errors import InvalidValue, TooLarge
from secondcall.types import JsonValue, Metadata

__all__ = [
    "MAX_ID_CHARACTERS",
    "MAX_METADATA_BYTES",
    "check_deadline",
    "check_id",
    "check_json",
    "check_limit",
    "check_metadata",
    "check_text",
    "from_us",
    "parse_duration",
    "to_us",
]

MAX_ID_CHARACTERS = 1_024
MAX_METADATA_BYTES = 16_384
_MAX_DEPTH = 32
_MAX_BITS = 1_024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def check_id(field: str, value: object) -> str:
    """An id: 1 to 1,024 characters of any kind but NUL and lone surrogates.

    Raises: ``InvalidValue``, ``TooLarge``.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be text, not {type(value).__name__}")
    if not value:
        raise InvalidValue(f"{field} must not be empty")
    if len(value) > MAX_ID_CHARACTERS:
        raise TooLarge(
            f"{field} has {len(value)} characters, at most {MAX_ID_CHARACTERS} are accepted"
        )
    if "\x00" in value:
        raise InvalidValue(f"{field} holds a NUL character at position {value.index(chr(0))}")
    position = _lone_surrogate(value)
    if position is not None:
        raise InvalidValue(
            f"{field} holds a lone surrogate at position {position}; send UTF-8 text"
        )
    return value


def check_text(field: str, value: object, *, max_bytes: int) -> str:
    """Text of at most ``max_bytes`` in UTF-8. Lone surrogates, which no UTF-8 text can hold, become
    U+FFFD; everything else stays as it is.

    Raises: ``InvalidValue``, ``TooLarge``.
    """
    if not isinstance(value, str):
        raise InvalidValue(f"{field} must be text, not {type(value).__name__}")
    if _lone_surrogate(value) is not None:
        value = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    size = len(value) if value.isascii() else len(value.encode())
    if size > max_bytes:
        raise TooLarge(
            f"{field} has {size:,} bytes, at most {max_bytes:,} are accepted; record it in parts, "
            "or keep it elsewhere and record a reference"
        )
    return value


def check_json(field: str, value: object) -> JsonValue:
    """A JSON value: text keys, finite numbers, at most 32 levels deep.

    Raises: ``InvalidValue`` naming the path of the offending part.
    """
    _check_json(field, value, 0)
    return cast("JsonValue", value)


def check_metadata(field: str, value: object) -> Metadata:
    """A JSON object of at most 16 KiB.

    Raises: ``InvalidValue``, ``TooLarge``.
    """
    if not isinstance(value, dict):
        raise InvalidValue(f"{field} must be a dict, not {type(value).__name__}")
    metadata = cast("dict[str, JsonValue]", value)
    if not metadata:
        return metadata
    check_json(field, metadata)
    size = len(json.dumps(metadata, ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        raise TooLarge(f"{field} has {size:,} bytes, at most {MAX_METADATA_BYTES:,} are accepted")
    return metadata


def check_limit(field: str, value: object, *, minimum: int = 1, maximum: int = 1_000_000) -> int:
    """A whole number between ``minimum`` and ``maximum``. Raises: ``InvalidValue``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"{field} must be a whole number, not {type(value).__name__}")
    if not minimum <= value <= maximum:
        raise InvalidValue(f"{field} is {value}, expected {minimum} to {maximum:,}")
    return value


def check_deadline(value: object) -> float | None:
    """Seconds from now, 0 or more; ``None`` for no limit. Raises: ``InvalidValue``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"deadline_seconds must be a number, not {type(value).__name__}")
    if not value >= 0:
        raise InvalidValue(f"deadline_seconds is {value}, expected 0 or more, or None for no limit")
    return value


def to_us(field: str, value: object) -> int:
    """Whole microseconds since 1970-01-01 UTC of an aware datetime.

    Raises: ``InvalidValue`` for a naive one, or one outside the years 1 to 9999 in UTC.
    """
    if not isinstance(value, datetime):
        raise InvalidValue(f"{field} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise InvalidValue(
            f"{field} is a naive datetime; give it a time zone, e.g. datetime.now(UTC)"
        )
    try:
        return (value.astimezone(UTC) - _EPOCH) // _MICROSECOND
    except OverflowError:
        raise InvalidValue(f"{field} is outside the years 1 to 9999 in UTC") from None


def from_us(value: int) -> datetime:
    """The aware UTC datetime of whole microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=value)


def parse_duration(field: str, value: object) -> timedelta:
    """A length of time: a ``timedelta``, or text like ``"90d"`` (s, m, h, d, w).

    Raises: ``InvalidValue``.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str) and value[-1:] in _UNITS and value[:-1].isdecimal():
        try:
            duration = timedelta(seconds=int(value[:-1]) * _UNITS[value[-1]])
        except OverflowError:
            raise InvalidValue(f"{field} {value!r} is too long") from None
    else:
        raise InvalidValue(f"{field} must be a timedelta or text like '90d', not {value!r}")
    if duration <= timedelta(0):
        raise InvalidValue(f"{field} must be longer than nothing")
    return duration


def _lone_surrogate(value: str) -> int | None:
    if value.isascii():
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def _check_json(path: str, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidValue(f"{path} is more than {_MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for key, part in cast("dict[object, object]", value).items():
            _check_json_key(path, key)
            _check_json(f"{path}.{str(key)[:40]}", part, depth + 1)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(cast("list[object]", value)):
            _check_json(f"{path}[{index}]", part, depth + 1)
    else:
        _check_json_scalar(path, value)


def _check_json_key(path: str, key: object) -> None:
    if not isinstance(key, str):
        raise InvalidValue(f"{path} has a key of type {type(key).__name__}, expected text")
    if _lone_surrogate(key) is not None:
        raise InvalidValue(f"{path} has a key with a lone surrogate; send UTF-8 text")


def _check_json_scalar(path: str, value: object) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidValue(f"{path} is {value}; JSON has only finite numbers")
    elif isinstance(value, str):
        if _lone_surrogate(value) is not None:
            raise InvalidValue(f"{path} holds a lone surrogate; send UTF-8 text")
    elif isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise InvalidValue(f"{path} is an integer of over {_MAX_BITS} bits; send it as text")
    elif value is not None:
        raise InvalidValue(f"{path} is a {type(value).__name__}, which JSON does not have")
