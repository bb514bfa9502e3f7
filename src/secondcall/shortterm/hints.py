"""The annotations of the user's type: which classes it names, and whether a value still fits."""

from __future__ import annotations

import collections.abc
import dataclasses
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, cast

from secondcall.shortterm.copying import is_model, is_namedtuple, record_fields

__all__ = ["Types", "fits", "hints_of"]

_UNIONS = (typing.Union, types.UnionType)


class Types:
    """The enums, named tuples, dataclasses and models that a type names, however deep, and those
    among its defaults: what a snapshot of it may hold, in this process and in the next."""

    def __init__(self, fresh: object) -> None:
        self._by_name: dict[str, type] = {}
        self._by_qualname: dict[str, list[type]] = {}
        self._learn(fresh, set())

    def _learn(self, value: object, seen: set[int]) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        self._add(type(value))
        for part in _parts(value):
            self._learn(part, seen)

    def name_of(self, kind: type) -> str | None:
        """What a class is called in a snapshot, or ``None`` for one that it cannot hold."""
        name = _name(kind)
        return name if self._by_name.get(name) is kind else None

    def find(self, name: str) -> type | None:
        """The class called so; one that moved to another module is found if its name is unique."""
        if name in self._by_name:
            return self._by_name[name]
        found = self._by_qualname.get(name.partition(":")[2], [])
        return found[0] if len(found) == 1 else None

    def build(
        self, kind: Any, values: Mapping[str, object], path: str, refused: type[Exception]
    ) -> object:
        """An instance with these fields, the others at their defaults, without running the class's
        own code. Raises: ``refused`` naming the field."""
        hints = hints_of(kind)
        for name, value in values.items():
            if not fits(value, hints.get(name)):
                raise refused(f"{path}.{name} is now of another type than {type(value).__name__}")
        if is_model(kind):
            return kind.model_construct().model_copy(update=dict(values))
        new: object = object.__new__(kind)
        for field in dataclasses.fields(kind):
            if field.name in values:
                object.__setattr__(new, field.name, values[field.name])
            elif field.default is not dataclasses.MISSING:
                object.__setattr__(new, field.name, field.default)
            elif field.default_factory is not dataclasses.MISSING:
                object.__setattr__(new, field.name, field.default_factory())
            else:
                raise refused(f"{path}.{field.name} is missing and has no default")
        return new

    def _add(self, kind: Any) -> None:
        known = issubclass(kind, Enum) or is_namedtuple(kind) or record_fields(kind) is not None
        if not known or self._by_name.setdefault(_name(kind), kind) is not kind:
            return
        same_name = self._by_qualname.setdefault(kind.__qualname__, [])
        if kind in same_name:
            return
        same_name.append(kind)
        for hint in hints_of(kind).values():
            for named in _named(hint):
                self._add(named)
        for child in kind.__subclasses__():
            self._add(child)


def hints_of(kind: Any) -> Mapping[str, object]:
    """The annotations of a class by field; ``None`` for one that names what cannot be found."""
    if is_model(kind):
        return {name: one.annotation for name, one in kind.model_fields.items()}
    if dataclasses.is_dataclass(kind):
        found = {field.name: field.type for field in dataclasses.fields(kind)}
    else:
        found = dict(getattr(kind, "__annotations__", {})) if is_namedtuple(kind) else {}
    return {name: _resolved(kind, hint) for name, hint in found.items()}


def fits(value: object, hint: object) -> bool:
    """Whether a value is of the type that an annotation says; what it cannot say fits."""
    if hint is None or hint is Any or isinstance(hint, str | typing.TypeVar):
        return True
    if hasattr(hint, "__supertype__"):  # NewType
        return fits(value, cast("Any", hint).__supertype__)
    if hasattr(hint, "__value__"):  # type X = ...
        return fits(value, cast("Any", hint).__value__)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        return _is_a(value, hint)
    if origin in _UNIONS:
        return any(value is None if one is type(None) else fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if origin in (typing.Annotated, typing.Final, typing.ClassVar):
        return fits(value, arguments[0])
    return _is_a(value, origin) and _parts_fit(value, arguments)


def _parts_fit(value: Any, arguments: tuple[Any, ...]) -> bool:
    if isinstance(value, collections.abc.Mapping) and len(arguments) == 2:
        pairs = cast("Mapping[object, object]", value).items()
        return all(fits(key, arguments[0]) and fits(one, arguments[1]) for key, one in pairs)
    if isinstance(value, tuple) and Ellipsis not in arguments:
        parts = cast("tuple[object, ...]", value)
        return len(parts) == len(arguments) and all(map(fits, parts, arguments))
    if isinstance(value, list | tuple | set | frozenset | collections.deque) and arguments:
        return all(fits(one, arguments[0]) for one in cast("list[object]", value))
    return True


def _is_a(value: object, kind: object) -> bool:
    if not isinstance(kind, type):
        return True
    if kind is float and type(value) is int:
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol or typed dict, which cannot be asked
        return True


def _resolved(kind: Any, hint: object) -> object:
    if not isinstance(hint, str):
        return hint
    for base in cast("type", kind).__mro__:
        names = dict(vars(base))
        module = sys.modules.get(base.__module__)
        probe = type("_Probe", (), {"__annotations__": {"it": hint}, "__module__": base.__module__})
        try:
            return typing.get_type_hints(
                probe, getattr(module, "__dict__", {}), names, include_extras=True
            )["it"]
        except Exception:  # an annotation may hold any expression, and a local name is not found
            continue
    return None


def _named(hint: object, depth: int = 0) -> Iterator[type]:
    if depth > 16:
        return
    if isinstance(hint, type):
        yield hint
    if hasattr(hint, "__value__"):
        yield from _named(cast("Any", hint).__value__, depth + 1)
    for one in typing.get_args(hint):
        yield from _named(one, depth + 1)
    origin = typing.get_origin(hint)
    if isinstance(origin, type):
        yield origin


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, collections.abc.Mapping):
        for key, one in cast("Mapping[object, object]", value).items():
            yield key
            yield one
    elif isinstance(value, list | tuple | set | frozenset | collections.deque):
        yield from cast("list[object]", value)
    else:
        for name in record_fields(type(value)) or ():
            yield getattr(value, name, None)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
