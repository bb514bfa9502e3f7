"""Values to JSON and back: dates, decimals, bytes, enums, sets and records, each with its tag.

What JSON has is written as it is. Everything else is an object with the key ``$``, which names the
tag: ``{"$": "date", "v": "2026-12-01"}``. A record or an enum that nobody claims stays a ``Tagged``
and is written again as it was read, so that no release loses what a newer one wrote. Pure.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, cast

from secondcall.checks import check_json
from secondcall.errors import InvalidValue, StoreCorrupt

__all__ = [
    "Tagged",
    "decode",
    "encode",
    "freeze",
    "is_model",
    "keep_unknown",
    "model_values",
    "plain",
    "untagged",
]

_MAX_DEPTH = 32
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Tagged:
    """A stored enum member or record before its class is known: the name of the class and the value
    (of a record: its fields by name)."""

    kind: Literal["enum", "record"]
    name: str
    value: object

    def __hash__(self) -> int:
        """By the name alone, so that records of whatever content can be in a set or a key."""
        return hash((self.kind, self.name))


def encode(path: str, value: object, depth: int = 0) -> Any:
    """The JSON form of a value. Raises: ``InvalidValue`` naming the path of what has none."""
    if depth > _MAX_DEPTH:
        raise InvalidValue(f"{path} is more than {_MAX_DEPTH} levels deep")
    if value is None or (isinstance(value, bool | int | float | str) and not _is_enum(value)):
        return check_json(path, value)
    if isinstance(value, Mapping):
        return _encode_mapping(path, cast("Mapping[object, object]", value), depth)
    if isinstance(value, list | tuple):
        kind = type(cast("object", value))
        if hasattr(kind, "_fields"):
            raise InvalidValue(
                f"{path} is the named tuple {kind.__name__}, which would come back as a "
                "bare tuple; make it a dataclass"
            )
        return _encode_list(path, cast("list[object] | tuple[object, ...]", value), depth)
    if isinstance(value, Set):
        parts = [encode(path, part, depth + 1) for part in cast("Set[object]", value)]
        return {"$": "set", "v": sorted(parts, key=_dumps)}
    if isinstance(value, Tagged):
        return _tag(value.kind, encode(path, value.value, depth + 1), t=value.name)
    if isinstance(value, Enum):
        return _tag("enum", encode(path, value.value, depth + 1), t=type(value).__qualname__)
    if not isinstance(value, type) and (dataclasses.is_dataclass(value) or is_model(type(value))):
        fields = {
            name: encode(f"{path}.{name}", part, depth + 1)
            for name, part in _record_values(value).items()
        }
        return _tag("record", fields, t=type(value).__qualname__)
    return _encode_scalar(path, value)


def decode(raw: Any) -> object:
    """The value of its JSON form; enums and records as ``Tagged``, lists as ``list``.

    Raises: ``StoreCorrupt`` for what ``encode`` never writes.
    """
    if isinstance(raw, list):
        return [decode(part) for part in cast("list[Any]", raw)]
    if not isinstance(raw, dict):
        return cast("object", raw)
    pairs = cast("dict[str, Any]", raw)
    if "$" not in pairs:
        return {name: decode(part) for name, part in pairs.items()}
    tag, value = pairs["$"], pairs.get("v")
    try:
        if tag in ("enum", "record"):
            if tag == "record" and (not isinstance(value, dict) or "$" in value):
                raise TypeError
            return Tagged(tag, _text(pairs.get("t")), decode(value))
        return _DECODERS[tag](value)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"a stored value with the tag {str(tag)[:40]!r} cannot be read ({type(error).__name__})"
        ) from None


def freeze(value: object) -> object:
    """The same value, unchangeable: lists as tuples, sets as frozensets, mappings read-only."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return MappingProxyType({key: freeze(part) for key, part in pairs.items()})
    if isinstance(value, list | tuple):
        return tuple(freeze(part) for part in cast("list[object]", value))
    if isinstance(value, Set):
        return frozenset(cast("Set[object]", value))
    return value


def plain(value: object) -> object:
    """The same value with each ``Tagged`` as its bare value, and containers that can be changed."""
    if isinstance(value, Tagged):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list):
        return [plain(part) for part in cast("list[object]", value)]
    if isinstance(value, tuple):
        return tuple(plain(part) for part in cast("tuple[object, ...]", value))
    return value


def untagged(path: str, value: object) -> Any:
    """The JSON of a value as a model or a person reads it: without tags, a duration in seconds.

    Raises: ``InvalidValue`` naming the path of what has none.
    """
    return _bare(encode(path, value))


def _bare(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_bare(part) for part in cast("list[Any]", raw)]
    if not isinstance(raw, dict):
        return raw
    pairs = cast("dict[str, Any]", raw)
    if pairs.get("$") == "timedelta":
        return pairs["v"] / 1_000_000
    if "$" in pairs:
        return _bare(pairs["v"])
    return {key: _bare(part) for key, part in pairs.items()}


def keep_unknown(old: Any, new: Any) -> Any:
    """The JSON ``new`` with what the records of ``old`` hold that those of ``new`` do not know.

    A release always writes every field that it knows, so what is missing was a newer one's.
    """
    if isinstance(old, list) and isinstance(new, list):
        return _keep_in_list(cast("list[Any]", old), cast("list[Any]", new))
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    before, now = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    merged = {key: keep_unknown(before.get(key), part) for key, part in now.items()}
    if now.get("$") == "record" == before.get("$") and before.get("t") == now.get("t"):
        merged["v"] = {**before["v"], **merged["v"]}
    return merged


def _keep_in_list(old: list[Any], new: list[Any]) -> list[Any]:
    """Parts that did not change are found from both ends; of those between, which may be others,
    each is taken for the one at its place only where none was added or removed."""
    start, most = 0, min(len(old), len(new))
    while start < most and _covers(old[start], new[start]):
        start += 1
    end = 0
    while end < most - start and _covers(old[-1 - end], new[-1 - end]):
        end += 1
    between_old, between = old[start : len(old) - end], new[start : len(new) - end]
    if len(between_old) == len(between):
        between = [keep_unknown(*pair) for pair in zip(between_old, between, strict=True)]
    return [*old[:start], *between, *old[len(old) - end :]]


def _covers(old: Any, new: Any) -> bool:
    """Whether ``old`` is ``new``, but for what its records hold more."""
    if isinstance(old, list) and isinstance(new, list):
        olds, news = cast("list[Any]", old), cast("list[Any]", new)
        return len(olds) == len(news) and all(map(_covers, olds, news))
    if not isinstance(old, dict) or not isinstance(new, dict):
        return cast("bool", type(cast("object", old)) is type(cast("object", new)) and old == new)
    before, now = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
    if now.get("$") == "record" == before.get("$") and before.get("t") == now.get("t"):
        held, known = before["v"], now["v"]
        return all(name in held and _covers(held[name], part) for name, part in known.items())
    return before.keys() == now.keys() and all(_covers(before[key], now[key]) for key in now)


def is_model(kind: type) -> bool:
    """Whether a class is a pydantic model, without loading pydantic for it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def model_values(model: object) -> dict[str, object]:
    """The fields of a pydantic model, one level deep."""
    return dict(cast("Any", model))


def _record_values(value: object) -> dict[str, object]:
    if is_model(type(value)):
        return model_values(value)
    fields = dataclasses.fields(cast("Any", value))
    return {field.name: getattr(value, field.name) for field in fields if field.init}


def _encode_mapping(path: str, value: Mapping[object, object], depth: int) -> Any:
    if "$" not in value and all(isinstance(key, str) for key in value):
        return {
            check_json(path, {key: None}) and key: encode(
                f"{path}.{str(key)[:40]}", part, depth + 1
            )
            for key, part in value.items()
        }
    pairs = [
        [
            encode(f"{path}, a key", key, depth + 1),
            encode(f"{path}[{str(key)[:40]}]", part, depth + 1),
        ]
        for key, part in value.items()
    ]
    return {"$": "map", "v": pairs}


def _encode_list(path: str, value: list[object] | tuple[object, ...], depth: int) -> Any:
    parts = [encode(f"{path}[{number}]", part, depth + 1) for number, part in enumerate(value)]
    return parts if isinstance(value, list) else {"$": "tuple", "v": parts}


def _encode_scalar(path: str, value: object) -> Any:
    match value:
        case datetime():
            if value.utcoffset() is None:
                raise InvalidValue(
                    f"{path} is a naive datetime; give it a time zone, e.g. datetime.now(UTC)"
                )
            return _tag("datetime", value.isoformat())
        case date():
            return _tag("date", value.isoformat())
        case time():
            return _tag("time", value.isoformat())
        case timedelta():
            return _tag("timedelta", value // _MICROSECOND)
        case Decimal():
            if not value.is_finite():
                raise InvalidValue(f"{path} is {value}; only finite numbers are accepted")
            return _tag("decimal", str(value))
        case bytes() | bytearray():
            return _tag("bytes", base64.b64encode(value).decode())
        case _:
            raise InvalidValue(f"{path} is a {type(value).__name__}, which a state cannot hold")


def _tag(tag: str, value: Any, **more: str) -> dict[str, Any]:
    return {"$": tag, **more, "v": value}


def _is_enum(value: object) -> bool:
    return isinstance(value, Enum)


def _dumps(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _finite(value: object) -> Decimal:
    number = Decimal(_text(value))
    if not number.is_finite():
        raise ValueError
    return number


def _aware(value: object) -> datetime:
    moment = datetime.fromisoformat(_text(value))
    if moment.utcoffset() is None:
        raise ValueError
    return moment


def _whole(value: object) -> int:
    if not isinstance(value, int) or math.isnan(value):
        raise TypeError
    return value


_DECODERS: Mapping[str, Callable[[Any], object]] = {
    "date": lambda value: date.fromisoformat(_text(value)),
    "datetime": _aware,
    "time": lambda value: time.fromisoformat(_text(value)),
    "timedelta": lambda value: timedelta(microseconds=_whole(value)),
    "decimal": _finite,
    "bytes": lambda value: base64.b64decode(_text(value), validate=True),
    "tuple": lambda value: tuple(decode(part) for part in value),
    "set": lambda value: frozenset(_hashable(decode(part)) for part in value),
    "map": lambda value: {_hashable(decode(key)): decode(part) for key, part in value},
}


def _hashable(value: object) -> object:
    return freeze(cast("object", value)) if isinstance(value, list) else value
