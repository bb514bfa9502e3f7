"""Plain values to JSON and back, each as the type it was.

What JSON has stands as itself; everything else is ``{"$": tag, "v": ...}``. Classes are found again
among those that the user's type names (``known_types``), never by importing what a snapshot says.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

from secondcall.shortterm.copying import MAX_DEPTH, is_namedtuple, record_fields
from secondcall.shortterm.hints import Types
from secondcall.types import JsonValue

__all__ = ["Undecodable", "Unencodable", "decode", "encode"]

_MAX_BITS = 1_024
_FACTORIES: Mapping[str, Callable[[], object]] = {
    kind.__name__: kind for kind in (int, float, str, list, dict, set)
}


class Unencodable(Exception):
    """A part of a value that no snapshot can hold; the text says which and why."""


class Undecodable(Exception):
    """A part of a snapshot that cannot be read as it is typed now; the text says which and why."""


def encode(value: object, path: str, types: Types, depth: int = 0) -> JsonValue:
    """The JSON form of a value. Raises: ``Unencodable``."""
    if depth > MAX_DEPTH:
        raise Unencodable(f"{path} is more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, bool):
        return value
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain(value, path)
    container = _CONTAINERS.get(type(value))
    if container is not None:
        return container(value, path, types, depth + 1)
    return _encode_known(value, path, types, depth + 1)


def decode(value: object, path: str, types: Types, depth: int = 0) -> object:
    """The value of a JSON form. Raises: ``Undecodable``."""
    if depth > 2 * MAX_DEPTH:
        raise Undecodable(f"{path} is more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        parts = cast("list[object]", value)
        return [decode(one, f"{path}[{n}]", types, depth + 1) for n, one in enumerate(parts)]
    if not isinstance(value, Mapping):
        return value
    tagged = cast("Mapping[str, object]", value)
    if "$" not in tagged:
        return {key: decode(one, f"{path}.{key}", types, depth + 1) for key, one in tagged.items()}
    try:
        return _decode_tagged(tagged, path, types, depth + 1)
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError) as error:
        raise Undecodable(
            f"{path} does not read as {tagged['$']} ({type(error).__name__})"
        ) from None


def _tag(tag: str, value: JsonValue, **more: JsonValue) -> JsonValue:
    return {"$": tag, "v": value, **more}


def _text(value: str, path: str) -> JsonValue:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unencodable(f"{path} holds a lone surrogate") from None
    return value


def _integer(value: int, path: str) -> JsonValue:
    if value.bit_length() > _MAX_BITS:
        raise Unencodable(f"{path} is an integer of over {_MAX_BITS} bits")
    return value


def _span(value: timedelta, path: str) -> JsonValue:
    return _tag("timedelta", [value.days, value.seconds, value.microseconds])


_PLAIN: Mapping[type, Callable[[Any, str], JsonValue]] = {
    str: _text,
    int: _integer,
    float: lambda value, path: value if math.isfinite(value) else _tag("float", str(value)),
    bytes: lambda value, path: _tag("bytes", base64.b64encode(value).decode()),
    bytearray: lambda value, path: _tag("bytearray", base64.b64encode(value).decode()),
    datetime: lambda value, path: _tag("datetime", value.isoformat()),
    date: lambda value, path: _tag("date", value.isoformat()),
    time: lambda value, path: _tag("time", value.isoformat()),
    timedelta: _span,
    Decimal: lambda value, path: _tag("decimal", str(value)),
    UUID: lambda value, path: _tag("uuid", str(value)),
}


_Container = Callable[[Any, str, Types, int], JsonValue]


def _encode_list(value: Any, path: str, types: Types, depth: int) -> list[JsonValue]:
    return [encode(one, f"{path}[{n}]", types, depth) for n, one in enumerate(value)]


def _encode_dict(value: dict[Any, Any], path: str, types: Types, depth: int) -> JsonValue:
    if all(type(key) is str and key != "$" for key in value):
        return {
            cast("str", _text(key, f"a key of {path}")): encode(one, f"{path}.{key}", types, depth)
            for key, one in value.items()
        }
    return _tag("dict", _pairs(value, path, types, depth))


def _pairs(value: Mapping[Any, Any], path: str, types: Types, depth: int) -> list[JsonValue]:
    return [
        [
            encode(key, f"key {n} of {path}", types, depth),
            encode(one, f"value {n} of {path}", types, depth),
        ]
        for n, (key, one) in enumerate(value.items())
    ]


def _listed(tag: str) -> _Container:
    return lambda value, path, types, depth: _tag(tag, _encode_list(value, path, types, depth))


def _paired(tag: str) -> _Container:
    return lambda value, path, types, depth: _tag(tag, _pairs(value, path, types, depth))


def _encode_deque(value: deque[Any], path: str, types: Types, depth: int) -> JsonValue:
    return _tag("deque", _encode_list(value, path, types, depth), limit=value.maxlen)


def _encode_defaultdict(
    value: defaultdict[Any, Any], path: str, types: Types, depth: int
) -> JsonValue:
    name = getattr(value.default_factory, "__name__", "")
    if _FACTORIES.get(name) is not value.default_factory:
        raise Unencodable(f"{path} is a defaultdict whose factory cannot be named")
    return _tag("defaultdict", _pairs(value, path, types, depth), factory=name)


def _encode_set(value: Any, path: str, types: Types, depth: int) -> JsonValue:
    parts = [encode(one, f"an entry of {path}", types, depth) for one in value]
    return _tag(type(value).__name__, sorted(parts, key=json.dumps))


_CONTAINERS: Mapping[type, _Container] = {
    list: _encode_list,
    dict: _encode_dict,
    tuple: _listed("tuple"),
    set: _encode_set,
    frozenset: _encode_set,
    deque: _encode_deque,
    Counter: _paired("counter"),
    OrderedDict: _paired("ordereddict"),
    defaultdict: _encode_defaultdict,
}


def _encode_known(value: object, path: str, types: Types, depth: int) -> JsonValue:
    kind = type(value)
    name = types.name_of(kind)
    if name is None:
        raise Unencodable(f"{path} is a {kind.__qualname__}, which a snapshot cannot hold")
    if isinstance(value, Enum):
        return _tag("enum", encode(value.value, path, types, depth), type=name)
    names = cast("Any", kind)._fields if is_namedtuple(kind) else record_fields(kind)
    parts: dict[str, JsonValue] = {
        one: encode(getattr(value, one), f"{path}.{one}", types, depth)
        for one in names or ()
        if hasattr(value, one)
    }
    return _tag("record", parts, type=name)


def _decode_tagged(tagged: Mapping[str, object], path: str, types: Types, depth: int) -> object:
    tag, held = tagged["$"], cast("Any", tagged["v"])
    if tag in _READERS:
        return _READERS[tag](held)
    if tag in ("enum", "record"):
        kind = types.find(str(tagged["type"]))
        if kind is None:
            raise Undecodable(f"{path} is of a class that is not known any more")
        if tag == "enum":
            return kind(decode(held, path, types, depth))
        return _decode_record(kind, held, path, types, depth)
    parts = cast("list[Any]", decode(held, path, types, depth))
    return _GATHERERS[cast("str", tag)](parts, tagged)


def _decode_record(
    kind: type, held: Mapping[str, object], path: str, types: Types, depth: int
) -> object:
    values = {one: decode(part, f"{path}.{one}", types, depth) for one, part in held.items()}
    if is_namedtuple(kind):
        return kind(**values)
    names = record_fields(kind) or ()
    for name in values:
        if name not in names:
            raise Undecodable(f"{path}.{name} is no field of {kind.__name__} any more")
    return types.build(kind, values, path, Undecodable)


_READERS: Mapping[object, Callable[[Any], object]] = {
    "float": float,
    "bytes": lambda held: base64.b64decode(held, validate=True),
    "bytearray": lambda held: bytearray(base64.b64decode(held, validate=True)),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda held: timedelta(*held),
    "decimal": Decimal,
    "uuid": UUID,
}
_GATHERERS: Mapping[str, Callable[[list[Any], Mapping[str, Any]], object]] = {
    "tuple": lambda parts, tagged: tuple(parts),
    "set": lambda parts, tagged: set(parts),
    "frozenset": lambda parts, tagged: frozenset(parts),
    "deque": lambda parts, tagged: deque(parts, tagged["limit"]),
    "dict": lambda parts, tagged: dict(parts),
    "counter": lambda parts, tagged: Counter(dict(parts)),
    "ordereddict": lambda parts, tagged: OrderedDict(parts),
    "defaultdict": lambda parts, tagged: defaultdict(_FACTORIES[tagged["factory"]], dict(parts)),
}
