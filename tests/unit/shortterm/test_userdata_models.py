"""The user's own pydantic model as typed short-term memory; and none is imported without one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from secondcall import InvalidValue, TooLarge, UnknownName
from secondcall.shortterm.userdata import ShortTermMemory

pydantic: Any = import_module("pydantic")

Line: Any = pydantic.create_model("Line", text=(str, ""), tags=(list[str], []))
CallData: Any = pydantic.create_model(
    "CallData",
    name=(str, pydantic.Field("", alias="callerName")),
    tries=(int, 0),
    lines=(list[Line], []),
)


def test_a_model_works_in_every_verb() -> None:
    """Updating, counting, appending, reading and expiring work as for a dataclass."""
    now = [0.0]
    memory: ShortTermMemory[Any] = ShortTermMemory(CallData, monotonic=lambda: now[0])
    memory.update(lambda data: data.lines.append(Line(text="a")))
    memory.append("lines", Line(text="b", tags=["x"]), limit=5)
    memory.set(name="Ana")
    assert memory.increment("tries") == 1
    assert memory.get("lines.1.tags.0") == "x"
    memory.data.lines[0].tags.append("mine")
    assert memory.data == CallData(
        callerName="Ana", tries=1, lines=[Line(text="a"), Line(text="b", tags=["x"])]
    )
    now[0] = 300.0
    assert memory.data == CallData()


def test_a_model_is_bounded_and_guarded() -> None:
    """Limits reach into nested models; slips and extra fields are refused by name."""
    memory: ShortTermMemory[Any] = ShortTermMemory(CallData, max_entries=10)
    with pytest.raises(TooLarge, match=r"CallData\.lines holds more than 10 entries"):
        memory.update(lambda data: data.lines.append(Line(tags=["x"] * 10)))
    with pytest.raises(UnknownName):
        memory.set(nmae="x")
    extra = pydantic.create_model("Extra", __config__={"extra": "allow"}, a=(int, 0))
    needs = pydantic.create_model("Needs", a=(int, ...))
    for kind, said in ((extra, "allows extra fields"), (needs, r"Needs\.a has no default")):
        with pytest.raises(InvalidValue, match=said):
            ShortTermMemory(kind)


def test_a_frozen_model() -> None:
    """A frozen model is changed through new instances and through every verb."""
    frozen = pydantic.create_model("Frozen", __config__={"frozen": True}, count=(int, 0))
    memory: ShortTermMemory[Any] = ShortTermMemory(frozen)
    memory.increment("count")
    memory.update(lambda data: data.model_copy(update={"count": data.count + 1}))
    assert memory.data.count == 2
    memory.set(count=9)
    assert memory.data.count == 9


def test_a_model_round_trips() -> None:
    """Snapshot and restore keep nested models, and name a type that changed."""
    memory: ShortTermMemory[Any] = ShortTermMemory(CallData)
    memory.set(name="Ana", tries=2, lines=[Line(text="a")])
    snapshot = json.loads(json.dumps(memory.snapshot()))
    other: ShortTermMemory[Any] = ShortTermMemory(CallData)
    assert other.restore(snapshot).refused == {}
    assert other.data == memory.data
    snapshot["fields"]["tries"]["value"] = "two"
    assert list(other.restore(snapshot).refused) == ["tries"]


def test_pydantic_is_not_imported_for_a_dataclass() -> None:
    """A dataclass brings no pydantic into the process."""
    code = (
        "import sys; from dataclasses import dataclass, make_dataclass;"
        "from secondcall import ShortTermMemory;"
        "ShortTermMemory(make_dataclass('D', [('a', int, 0)])).snapshot();"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
