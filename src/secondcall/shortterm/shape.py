"""What the user's own type looks like: its fields, their defaults, and instances of it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from secondcall.errors import InvalidValue, UnknownName
from secondcall.shortterm.copying import Bounds, copied, copy_beside, is_model, record_fields

__all__ = ["OWN_NAMES", "Shape", "same"]

OWN_NAMES = ("flags", "intent", "messages")
"""What a short-term memory keeps beside the user's fields, and what they may not be called."""

T = TypeVar("T")


class Shape(Generic[T]):
    """A dataclass or pydantic model, each of whose fields has a default.

    Raises: ``InvalidValue`` naming the class, and the field where it is about one.
    """

    def __init__(self, kind: type[T]) -> None:
        names = record_fields(kind)
        if names is None:
            raise InvalidValue(
                f"{kind.__name__} is neither a dataclass nor a pydantic model; decorate it with "
                "@dataclass"
            )
        self.kind = kind
        self.names = names
        self.frozen = _is_frozen(kind)
        for name in names:
            self._check_field(name)
        if is_model(kind) and cast("Any", kind).model_config.get("extra") == "allow":
            raise InvalidValue(
                f"{kind.__name__} allows extra fields, which could grow without bound; take "
                "extra='allow' out of its model_config"
            )

    def _check_field(self, name: str) -> None:
        if name in OWN_NAMES:
            raise InvalidValue(
                f"{self.kind.__name__} has a field {name!r}, which ShortTermMemory keeps itself; "
                f"rename the field or use memory.{name}"
            )
        if _is_required(self.kind, name):
            raise InvalidValue(
                f"{self.kind.__name__}.{name} has no default; give it one, which is what it has "
                "before it is set and after it expires"
            )

    def check_names(self, what: str, names: Mapping[str, object]) -> None:
        """Raises: ``UnknownName`` for a name that is no field."""
        for name in names:
            if name not in self.names:
                raise UnknownName(
                    f"{what} has {name!r}, which is no field of {self.kind.__name__}; known are "
                    f"{', '.join(self.names)}"
                )

    def fresh(self) -> T:
        """A new instance with every field at its default."""
        try:
            return self.kind()
        except TypeError as error:
            raise InvalidValue(
                f"{self.kind.__name__}() cannot be made without arguments ({type(error).__name__})"
            ) from None

    def copied(self, data: T, bounds: Bounds | None = None) -> T:
        """A copy of an instance, each field held to ``bounds``.

        Raises: ``TooLarge`` and ``InvalidValue`` naming the field.
        """
        values = {name: self.field_of(data, name, bounds) for name in self.names}
        return self.owned(data, values, bounds)

    def field_of(self, data: T, name: str, bounds: Bounds | None = None) -> object:
        """A copy of one field. Raises: ``TooLarge`` and ``InvalidValue`` naming it."""
        if not hasattr(data, name):
            raise InvalidValue(f"{self.kind.__name__}.{name} was deleted; set it to a value")
        return copied(cast("object", getattr(data, name)), f"{self.kind.__name__}.{name}", bounds)

    def replaced(self, data: T, values: Mapping[str, object]) -> T:
        """Another instance with these fields changed, whatever guards the class has."""
        new = copy.copy(data)
        for name, value in values.items():
            object.__setattr__(new, name, value)
        return new

    def owned(self, data: T, values: Mapping[str, object], bounds: Bounds | None = None) -> T:
        """As ``replaced``, and what the instance holds beside its fields is copied too.

        Raises: ``TooLarge`` and ``InvalidValue`` naming the attribute.
        """
        new = self.replaced(data, values)
        label = self.kind.__name__
        copy_beside(data, new, self.names, lambda name, one: copied(one, f"{label}.{name}", bounds))
        return new

    def check_stray(self, before: T, after: T) -> None:
        """Raises: ``UnknownName`` for an attribute that is new and no field: a slip of the pen."""
        known = vars(before) if hasattr(before, "__dict__") else {}
        for name in vars(after) if hasattr(after, "__dict__") else {}:
            if name not in known and not hasattr(self.kind, name):
                self.check_names("the update", {name: None})


def same(one: object, other: object) -> bool:
    """Whether a field has kept its value; what cannot be compared counts as changed."""
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # whatever the == of a stranger's class raises
        return False


def _is_frozen(kind: type) -> bool:
    if is_model(kind):
        return bool(cast("Any", kind).model_config.get("frozen"))
    return bool(cast("Any", kind).__dataclass_params__.frozen)


def _is_required(kind: type, name: str) -> bool:
    if is_model(kind):
        return bool(cast("Any", kind).model_fields[name].is_required())
    field = next(one for one in dataclasses.fields(cast("Any", kind)) if one.name == name)
    return (
        field.init
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    )
