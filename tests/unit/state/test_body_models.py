"""A host's own pydantic model as the fields of a state."""

from __future__ import annotations

from dataclasses import field, make_dataclass, replace
from datetime import date
from importlib import import_module
from typing import Any

import pytest
from state_kit import KEY, NOW, Size, reloaded, stored

from secondcall import InvalidValue
from secondcall.state import Workflows
from secondcall.state.body import Fields, decode_state, fresh_state

pydantic: Any = import_module("pydantic")

Line: Any = pydantic.create_model("Line", name=(str, ""), price=(float, 0.0))
Guest: Any = pydantic.create_model(
    "Guest",
    name=(str, ""),
    born=(date | None, None),
    size=(Size, Size.SMALL),
    lines=(list[Line], []),
)
GUEST: Fields[Any] = Fields(Guest)


def _guest() -> Any:
    return fresh_state(KEY, GUEST, now=NOW, trust="verified", known=Workflows())


def test_a_model_comes_back_as_it_was() -> None:
    """Dates, enums and nested models come back equal and of their types."""
    full = _guest().with_fields(born="1990-05-04", size="l", lines=[{"name": "tea"}])
    assert full.fields.born == date(1990, 5, 4)
    back = reloaded(full, GUEST)
    assert back.fields == full.fields
    assert type(back.fields.lines[0]) is Line


def test_a_model_validates_each_change() -> None:
    """A value that the model refuses is refused by name, without being shown, as is an unknown
    field."""
    with pytest.raises(InvalidValue, match="born: not accepted by Guest") as refused:
        _guest().with_fields(born="a secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidValue, match="there is no field user_id; there are"):
        _guest().with_fields(user_id="bob")


def test_a_stored_value_that_fits_no_more_is_named() -> None:
    """Stored fields that a changed model refuses are an error that says what to do."""
    strict: Any = pydantic.create_model("Guest", name=(int, 0))
    one = stored(_guest().with_fields(name="Ana"), GUEST)
    with pytest.raises(InvalidValue, match="give a changed class a new version and a migration"):
        decode_state(one, Fields(strict), now=NOW, trust="verified", known=Workflows())


Aliased: Any = pydantic.create_model(
    "Aliased",
    __config__=pydantic.ConfigDict(extra="allow"),
    total=(int, pydantic.Field(0, alias="sum")),
)


Holder: Any = make_dataclass(
    "Holder",
    [
        ("line", Line, field(default_factory=Line)),
        ("lines", list[Line], field(default_factory=list[Any])),
        ("by_number", dict[int, Line], field(default_factory=dict[int, Any])),
        ("pair", tuple[int, str], field(default=(0, ""))),
    ],
)


def test_aliases_and_extras_come_back() -> None:
    """A field with an alias and one that the model did not declare are changed and read again."""
    fields: Fields[Any] = Fields(Aliased)
    state = fresh_state(KEY, fields, now=NOW, trust="verified", known=Workflows())
    changed = state.with_fields(total=5)
    assert changed.fields.total == 5
    changed = replace(changed, fields=Aliased(sum=6, more="x"))
    assert reloaded(changed, fields).fields == changed.fields


def test_models_inside_a_dataclass_come_back() -> None:
    """A dataclass may hold models, in lists and dicts too: they come back as such."""
    fields: Fields[Any] = Fields(Holder)
    state = fresh_state(KEY, fields, now=NOW, trust="verified", known=Workflows())
    full = Holder(Line(name="tea"), [Line(name="mug")], {7: Line(price=2)}, (1, "a"))
    assert reloaded(replace(state, fields=full), fields).fields == full


def test_what_would_come_back_as_something_else_is_refused() -> None:
    """A record where the declared type cannot say so is refused when it is written."""
    fields: Fields[Any] = Fields(Holder)
    state = fresh_state(KEY, fields, now=NOW, trust="verified", known=Workflows())
    pair: Any = (1, Line())
    with pytest.raises(InvalidValue, match=r"fields\.pair holds an enum or a record"):
        stored(replace(state, fields=Holder(pair=pair)), fields)
