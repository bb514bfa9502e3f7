"""What a slot of a workflow takes: types, in Python's form and as JSON brings them. Pure.

A value is taken in the declared type or in the form that JSON has for it (a date as text like
``2026-12-01``, a decimal as text or number, an enum member by its value), and given back in the
declared type, unchangeable. NaN and infinities are refused everywhere.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from typing import Any, Literal, Union, cast, get_args, get_origin

from secondcall.checks import check_json, check_text
from secondcall.errors import InvalidValue
from secondcall.state.codec import Tagged, encode, freeze, is_model, plain, untagged

__all__ = ["MAX_SLOT_BYTES", "Slot", "accept", "check_type", "json_schema_of", "type_name"]

MAX_SLOT_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Slot:
    """A named value of a workflow.

    ``type``: ``str``, ``int``, ``float``, ``bool``, ``Decimal``, ``date``, ``datetime`` (aware),
    ``time``, ``timedelta``, ``bytes``, an ``Enum``, a dataclass, ``Literal[...]``, unions of these,
    ``list[...]``, ``set[...]`` and ``dict[str, ...]``. Lists are given back as tuples. ``check`` is
    given each new value and says ``True``, or ``False`` or a reason in text that refuses it; it may
    also raise ``ValueError``. ``description`` is shown to models.
    """

    type: object = str
    check: Callable[[Any], object] | None = field(default=None, kw_only=True)
    description: str = field(default="", kw_only=True)

    def take(self, path: str, value: object) -> object:
        """The value in the declared type, checked. Raises: ``InvalidValue``, ``TooLarge``."""
        taken = accept(path, self.type, value)
        if self.check is None:
            return taken
        try:
            said = self.check(taken)
        except ValueError as error:
            raise InvalidValue(
                f"{path} was refused by its check ({type(error).__name__})"
            ) from None
        if said is True:
            return taken
        if isinstance(said, str) and said:
            raise InvalidValue(f"{path} was refused: {said}")
        if said is False:
            raise InvalidValue(f"{path} was refused by its check")
        if inspect.iscoroutine(said):
            said.close()
        raise InvalidValue(
            f"the check of {path} gave {type(said).__name__}, expected True, False or a reason"
        )


def check_type(declared: Any, *, wide: bool = False) -> str | None:
    """Why something is no type that a slot can have, or ``None``. ``wide``: that a field of the
    host's own can have, which may be a pydantic model or a dict with any keys too."""
    try:
        hash(declared)
    except TypeError:
        return f"a {_kind(declared)} is not a type that a slot can have"
    if declared in _SCALARS or _is_literal(declared) or declared in (Any, object):
        return None
    if _is_enum(declared):
        return None if len(declared) else f"the enum {declared.__name__} has no members"
    if _is_dataclass(declared):
        problems = (check_type(hint, wide=wide) for hint in _hints(declared).values())
        return next((one for one in problems if one), None)
    if wide and isinstance(declared, type) and is_model(declared):
        return None
    origin, inner = get_origin(declared), get_args(declared)
    if origin is dict and inner[0] is not str and not wide:
        return "the keys of a dict must be str"
    if origin in (list, set, frozenset, dict, Union, types.UnionType) or _is_row(declared):
        problems = (check_type(one, wide=wide) for one in inner if one is not ...)
        return next((one for one in problems if one), None)
    return f"{type_name(declared)} is not a type that a slot can have"


def accept(path: str, declared: Any, value: object, *, frozen: bool = True) -> object:
    """The value in the declared type; with ``frozen`` unchangeable, lists as tuples.

    Raises: ``InvalidValue`` naming the path and what is expected there, ``TooLarge``.
    """
    if declared in (Any, object):
        encode(path, value)
        return freeze(value) if frozen else value
    if declared in _SCALARS:
        return _SCALARS[declared].take(path, value)
    if _is_literal(declared):
        return _one_of(path, value, get_args(declared))
    if _is_enum(declared):
        return _member(path, declared, value)
    if _is_dataclass(declared):
        return _record(path, declared, value, frozen)
    if isinstance(declared, type) and is_model(declared):
        return _model(path, declared, value)
    return _container(path, declared, value, frozen)


def type_name(declared: Any) -> str:
    """What a value of a type looks like, for people and models."""
    if declared in _SCALARS:
        return _SCALARS[declared].name
    if declared in (Any, object):
        return "any value"
    if _is_literal(declared):
        return "one of " + ", ".join(repr(one) for one in get_args(declared))
    if _is_enum(declared):
        return "one of " + ", ".join(repr(untagged("a member", one)) for one in declared)
    if isinstance(declared, type) and get_origin(declared) is None:
        return declared.__name__
    inner = [one for one in get_args(declared) if one is not ...]
    match get_origin(declared):
        case origin if origin in (list, tuple):
            return f"a list, each {type_name(inner[0])}"
        case origin if origin in (set, frozenset):
            return f"a list without repetition, each {type_name(inner[0])}"
        case origin if origin is dict:
            return f"an object, each value {type_name(inner[1])}"
        case origin if origin in (Union, types.UnionType):
            return " or ".join(type_name(one) for one in inner)
        case _:
            return str(declared)


def json_schema_of(declared: Any) -> dict[str, Any]:
    """The JSON Schema of a type, in the form in which JSON brings it."""
    if declared in (Any, object):
        return {}
    if declared in _SCALARS:
        return dict(_SCALARS[declared].schema)
    if _is_literal(declared):
        return {"enum": [untagged("a choice", one) for one in get_args(declared)]}
    if _is_enum(declared):
        return {"enum": [untagged("a choice", member) for member in declared]}
    if _is_dataclass(declared):
        return _record_schema(declared)
    inner = get_args(declared)
    match get_origin(declared):
        case origin if origin in (list, tuple):
            return {"type": "array", "items": json_schema_of(inner[0])}
        case origin if origin in (set, frozenset):
            return {"type": "array", "items": json_schema_of(inner[0]), "uniqueItems": True}
        case origin if origin is dict:
            return {"type": "object", "additionalProperties": json_schema_of(inner[1])}
        case _:
            return {"anyOf": [json_schema_of(one) for one in inner]}


@dataclass(frozen=True, slots=True)
class _Scalar:
    name: str
    schema: Mapping[str, Any]
    take: Callable[[str, object], object]


def _wrong(path: str, expected: Any, value: object) -> InvalidValue:
    name = expected if isinstance(expected, str) else type_name(expected)
    return InvalidValue(f"{path} must be {name}, not {_kind(value)}")


def _kind(value: object) -> str:
    if isinstance(value, Tagged):
        return f"the {value.kind} {value.name}"
    kind = type(value).__name__
    return f"{kind} of another form" if isinstance(value, str) else kind


def _text(path: str, value: object) -> object:
    if not isinstance(value, str) or isinstance(value, Enum):
        raise _wrong(path, str, value)
    return check_text(path, value, max_bytes=MAX_SLOT_BYTES)


def _nothing(path: str, value: object) -> object:
    if value is not None:
        raise _wrong(path, types.NoneType, value)
    return None


def _bool(path: str, value: object) -> object:
    if not isinstance(value, bool):
        raise _wrong(path, bool, value)
    return value


def _int(path: str, value: object) -> object:
    if isinstance(value, bool | Enum) or not isinstance(value, int):
        raise _wrong(path, int, value)
    return check_json(path, value)


def _float(path: str, value: object) -> object:
    if isinstance(value, bool | Enum) or not isinstance(value, int | float):
        raise _wrong(path, float, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(f"{path} is {number}; only finite numbers are accepted")
    return number


def _decimal(path: str, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise _wrong(path, Decimal, value)
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        raise _wrong(path, Decimal, value) from None
    if not number.is_finite():
        raise InvalidValue(f"{path} is {number}; only finite numbers are accepted")
    return number


def _date(path: str, value: object) -> object:
    if isinstance(value, str):
        value = _parsed(path, date, date.fromisoformat, value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong(path, date, value)
    return value


def _datetime(path: str, value: object) -> object:
    if isinstance(value, str):
        value = _parsed(path, datetime, datetime.fromisoformat, value)
    if not isinstance(value, datetime):
        raise _wrong(path, datetime, value)
    if value.utcoffset() is None:
        raise InvalidValue(f"{path} is a time without a zone; end it with Z or an offset")
    return value


def _time(path: str, value: object) -> object:
    if isinstance(value, str):
        value = _parsed(path, time, time.fromisoformat, value)
    if not isinstance(value, time):
        raise _wrong(path, time, value)
    return value


def _span(path: str, value: object) -> object:
    if isinstance(value, timedelta):
        return value
    seconds = cast("float", _float(path, value))
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidValue(f"{path} is a span of time that is too long") from None


def _bytes(path: str, value: object) -> object:
    if isinstance(value, str):
        value = _parsed(path, bytes, lambda text: base64.b64decode(text, validate=True), value)
    if not isinstance(value, bytes):
        raise _wrong(path, bytes, value)
    return value


def _parsed(path: str, declared: object, parse: Callable[[str], object], value: str) -> object:
    try:
        return parse(value)
    except ValueError:
        raise _wrong(path, declared, value) from None


_SCALARS: Mapping[Any, _Scalar] = {
    str: _Scalar("text", {"type": "string"}, _text),
    bool: _Scalar("true or false", {"type": "boolean"}, _bool),
    int: _Scalar("a whole number", {"type": "integer"}, _int),
    float: _Scalar("a number", {"type": "number"}, _float),
    Decimal: _Scalar(
        "a decimal number like '12.50'",
        {"type": "string", "pattern": r"^-?\d+(\.\d+)?$", "description": "a decimal number"},
        _decimal,
    ),
    date: _Scalar("a date like 2026-12-01", {"type": "string", "format": "date"}, _date),
    datetime: _Scalar(
        "a time with zone like 2026-12-01T09:00:00Z",
        {"type": "string", "format": "date-time"},
        _datetime,
    ),
    time: _Scalar("a time of day like 09:30", {"type": "string", "format": "time"}, _time),
    timedelta: _Scalar(
        "a number of seconds", {"type": "number", "description": "a number of seconds"}, _span
    ),
    types.NoneType: _Scalar("nothing", {"type": "null"}, _nothing),
    bytes: _Scalar(
        "bytes in base64", {"type": "string", "contentEncoding": "base64"}, _bytes
    ),
}  # fmt: skip


def _one_of(path: str, value: object, choices: Sequence[object]) -> object:
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return choice
        if isinstance(choice, Enum) and _is_value_of(choice, _bare(value)):
            return choice
    raise InvalidValue(f"{path} must be one of {', '.join(repr(one) for one in choices)}")


def _member(path: str, declared: type[Enum], value: object) -> object:
    if isinstance(value, declared):
        return value
    bare = _bare(value)
    for member in declared:
        if _is_value_of(member, bare):
            return member
    for member in declared:
        if member.name == bare:
            return member
    if issubclass(declared, Flag) and type(bare) is int:  # several members in one
        try:
            return declared(bare)
        except ValueError:
            pass
    raise _wrong(path, declared, value)


def _bare(value: object) -> object:
    return value.value if isinstance(value, Tagged) and value.kind == "enum" else value


def _is_value_of(member: Enum, bare: object) -> bool:
    forms: tuple[object, object] = (member.value, untagged("a member", member))  # as JSON has it
    return any(type(one) is type(bare) and one == bare for one in forms)


def _model(path: str, declared: Any, value: object) -> object:
    if isinstance(value, declared):
        return value
    named = value.value if isinstance(value, Tagged) and value.kind == "record" else value
    if not isinstance(named, Mapping):
        raise _wrong(path, declared, value)
    try:
        return declared.model_validate(plain(cast("object", named)), by_name=True)
    except ValueError as error:
        raise InvalidValue(
            f"{path} does not make a {declared.__name__} ({type(error).__name__})"
        ) from None


def _record(path: str, declared: Any, value: object, frozen: bool) -> object:
    hints = _hints(declared)
    if isinstance(value, declared):
        given: Mapping[str, object] = {name: getattr(value, name) for name in hints}
    elif (
        isinstance(value, Tagged) and value.kind == "record" and value.name == declared.__qualname__
    ):
        stored = cast("Mapping[str, object]", value.value)
        given = {name: part for name, part in stored.items() if name in hints}
    elif isinstance(value, Mapping):
        given = cast("Mapping[str, object]", value)
    else:
        raise _wrong(path, declared, value)
    unknown = sorted(str(name)[:40] for name in given if name not in hints)
    if unknown:
        raise InvalidValue(
            f"{path} has no field {', '.join(unknown)}; it has {', '.join(sorted(hints))}"
        )
    taken = {
        name: accept(f"{path}.{name}", hints[name], part, frozen=frozen)
        if part is None or check_type(hints[name], wide=not frozen) is None
        else _untold(f"{path}.{name}", part)
        for name, part in given.items()
    }
    try:
        made = declared(**taken)
    except TypeError:
        lacking = sorted(_required(declared) - set(given))
        if not lacking:
            raise
        raise InvalidValue(f"{path} lacks {', '.join(lacking)}") from None
    except ValueError as error:
        raise InvalidValue(
            f"{path} was refused by {declared.__name__} ({type(error).__name__})"
        ) from None
    if not frozen or len(taken) == len(hints):
        return made
    defaults = {name: freeze(getattr(made, name)) for name in hints if name not in taken}
    return cast("object", dataclasses.replace(made, **defaults))


def _untold(path: str, value: object) -> object:
    """A value of a type that cannot be looked up or made: as it is, if it needs no class."""
    bare = plain(value)
    if bare != value:
        raise InvalidValue(
            f"{path} holds an enum or a record, and its declared type does not say where; use a "
            "type that slots can have"
        )
    return bare


def _container(path: str, declared: Any, value: object, frozen: bool) -> object:
    origin, inner = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        return _alternative(path, declared, value, frozen)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(path, declared, value)
        pairs = {
            accept(f"{path}, a key", inner[0], key, frozen=True): accept(
                f"{path}.{str(key)[:40]}", inner[1], part, frozen=frozen
            )
            for key, part in cast("Mapping[object, object]", value).items()
        }
        return types.MappingProxyType(pairs) if frozen else pairs
    if not isinstance(value, list | tuple | Set) or (
        isinstance(value, Set) and origin not in (set, frozenset)
    ):
        raise _wrong(path, declared, cast("object", value))
    parts = [
        accept(f"{path}[{number}]", inner[0], part, frozen=frozen)
        for number, part in enumerate(cast("Sequence[object]", value))
    ]
    if origin in (set, frozenset):
        return frozenset(parts) if frozen or origin is frozenset else set(parts)
    return tuple(parts) if frozen or origin is tuple else parts


def _alternative(path: str, declared: Any, value: object, frozen: bool) -> object:
    inner = get_args(declared)
    for one in inner:  # a value that is in its type already is not read as text for another
        if isinstance(one, type) and type(value) is one and get_origin(one) is None:
            return accept(path, one, value, frozen=frozen)
    for one in inner:
        try:
            return accept(path, one, value, frozen=frozen)
        except InvalidValue:
            continue
    raise _wrong(path, declared, value)


def _record_schema(declared: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: json_schema_of(hint) for name, hint in _hints(declared).items()},
        "required": sorted(_required(declared)),
        "additionalProperties": False,
    }


def _required(declared: Any) -> set[str]:
    return {
        one.name
        for one in dataclasses.fields(declared)
        if one.init
        and one.default is dataclasses.MISSING
        and one.default_factory is dataclasses.MISSING
    }


def _hints(declared: Any) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(declared)
    except NameError:  # classes of a function's inside cannot be looked up: take values as they are
        hints = {}
    return {
        one.name: hints.get(one.name, object) for one in dataclasses.fields(declared) if one.init
    }


def _is_enum(declared: Any) -> bool:
    return isinstance(declared, type) and issubclass(declared, Enum)


def _is_dataclass(declared: Any) -> bool:
    return isinstance(declared, type) and dataclasses.is_dataclass(declared)


def _is_literal(declared: Any) -> bool:
    return get_origin(declared) is Literal


def _is_row(declared: Any) -> bool:
    inner = get_args(declared)
    return get_origin(declared) is tuple and len(inner) == 2 and inner[1] is ...
