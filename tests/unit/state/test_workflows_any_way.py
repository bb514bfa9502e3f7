"""Workflows walked in every way by several actors: no path leads out of what is declared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from secondcall import InvalidValue, Memory, StateError, StateHandle, VersionConflict
from secondcall.state import AgentState, Step, To, Workflow
from secondcall.testing.fakes import FrozenClock

State = AgentState[Mapping[str, Any]]

INNER = Workflow(
    "inner",
    {
        "ask": Step(expires="3m", then="lost"),
        "sure": Step(requires=["b"]),
        "ok": Step(terminal=True, requires=["b"]),
        "lost": Step(terminal=True),
    },
    {"ask": ["sure", "lost"], "sure": ["ok", "ask"]},
    slots={"b": int},
)
OUTER = Workflow(
    "outer",
    {
        "one": Step(),
        "two": Step(requires=["a"], expires="10m", then="one"),
        "run": Step(
            requires=["a"], runs=INNER, returns={"ok": "three", "lost": "two"}, shares=["b"],
            expires="20m", then="gone",
        ),
        "three": Step(requires=["b"]),
        "end": Step(terminal=True, requires=["a", "b"]),
        "gone": Step(terminal=True),
    },
    {
        "one": ["two"],
        "two": ["one", "run"],
        "three": [To("end", guards=["even"], needs_confirmation=True), "two"],
        "*": ["gone"],
    },
    slots={"a": int, "b": int},
    guards={"even": lambda state: state.slots["b"] % 2 == 0},
    cancel="gone",
)  # fmt: skip
VALUES = st.none() | st.integers(0, 3)
STEPS = sorted({*INNER.steps, *OUTER.steps, "nowhere"})


class Model:
    """What a workflow may do, written down without the code under test."""

    def __init__(self) -> None:
        self.running = False
        self.frames: list[tuple[str, str, Mapping[str, Any], datetime]] = []

    def allowed(self) -> set[str]:
        """The steps that may follow the present one."""
        if not self.frames or self.ended():
            return set()
        workflow, step, _, _ = self.frames[-1]
        declared = {
            ("inner", "ask"): {"sure", "lost"},
            ("inner", "sure"): {"ok", "ask"},
            ("outer", "one"): {"two", "gone"},
            ("outer", "two"): {"one", "run", "gone"},
            ("outer", "three"): {"end", "two", "gone"},
        }
        return declared[workflow, step]

    def ended(self) -> bool:
        """Whether nothing runs."""
        return not self.frames or self.frames[-1][:2] in {("outer", "end"), ("outer", "gone")}


class Actors(RuleBasedStateMachine):
    """Several processes' handles on one state, and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FrozenClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.memory = Memory.open("memory://", clock=self.clock, workflows=[OUTER])
        self.runner.run(self.memory.__aenter__())
        self.versions = [0]
        self.held: dict[int, State] = {}

    def teardown(self) -> None:
        """Close what was opened."""
        self.runner.run(self.memory.aclose())
        self.runner.close()

    @initialize()
    def begin(self) -> None:
        """Each run begins with a workflow."""
        self._do(lambda state: state.start(OUTER))

    def _handle(self) -> StateHandle[Mapping[str, Any]]:
        async def handle() -> StateHandle[Mapping[str, Any]]:
            return (await self.memory.user("ana").session("s")).state

        return self.runner.run(handle())

    def _load(self) -> State:
        found = self.runner.run(self._handle().load())
        assert found is not None
        return found

    def _do(self, change: Callable[[State], State]) -> State | None:
        """Change it; a refusal must leave it byte for byte as it was."""
        handle = self._handle()
        before = self.runner.run(handle.load())
        try:
            return self.runner.run(handle.update(change))
        except (StateError, InvalidValue):
            assert self.runner.run(handle.load()) == before
            return None

    @rule(step=st.sampled_from(STEPS), a=VALUES, b=VALUES, confirmed=st.booleans())
    def advance(self, step: str, a: int | None, b: int | None, confirmed: bool) -> None:
        """A step is reached only from where it is allowed, with what it requires."""
        before = self._load()
        model = Model()
        model.frames = [(f.workflow, f.step, f.slots, f.entered_at) for f in before.frames]
        slots = {name: value for name, value in (("a", a), ("b", b)) if value is not None}
        after = self._do(lambda state: state.advance(step, slots=slots, confirmed=confirmed))
        here = before.frames[-1]
        filled: dict[str, Any] = {**here.slots, **slots}
        possible = step in model.allowed() and not (here.workflow == "inner" and "a" in slots)
        needs = {"two": {"a"}, "run": {"a"}, "sure": {"b"}, "ok": {"b"}, "three": {"b"}}
        needs["end"] = {"a", "b"}
        possible = possible and needs.get(step, set()) <= set(filled)
        if step == "end":
            possible = possible and confirmed and filled["b"] % 2 == 0
        assert (after is not None) == possible

    @rule(slots=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 3)))
    def fill(self, slots: dict[str, int | None]) -> None:
        """Slots are filled as given, or not at all."""
        after = self._do(lambda state: state.fill(**slots))
        if after is not None:
            assert {name: after.slots.get(name) for name in slots} == slots

    @rule()
    def back(self) -> None:
        """Back leads only over declared transitions."""
        self._do(lambda state: state.back())

    @rule()
    def cancel(self) -> None:
        """Cancel ends the whole."""
        after = self._do(lambda state: state.cancel())
        assert after is None or (after.step, after.ended) == ("gone", True)

    @rule()
    def start(self) -> None:
        """A workflow is started only when none runs."""
        running = not self._load().ended
        assert (self._do(lambda state: state.start(OUTER)) is None) == running

    @rule(minutes=st.integers(-30, 30))
    def wait(self, minutes: int) -> None:
        """Time passes, or jumps back."""
        self.clock.advance(timedelta(minutes=minutes))

    @rule(actor=st.integers(0, 2))
    def read(self, actor: int) -> None:
        """An actor reads and keeps what it read."""
        self.held[actor] = self._load()

    @rule(actor=st.integers(0, 2), step=st.sampled_from(STEPS))
    def save_what_was_read(self, actor: int, step: str) -> None:
        """What was read earlier is saved only if nobody changed it since."""
        held = self.held.pop(actor, None)
        if held is None:
            return
        stored = self._load().version
        try:
            changed = held.advance(step)
        except StateError:
            return
        if held.version == stored:
            self.runner.run(self._handle().save(changed))
        else:
            with pytest.raises(VersionConflict):
                self.runner.run(self._handle().save(changed))

    @rule(steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=4))
    def all_at_once(self, steps: list[str]) -> None:
        """Several actors at once: what is made of it is what some order of them makes."""

        async def everybody() -> list[State | BaseException]:
            handles = [(await self.memory.user("ana").session("s")).state for _ in steps]
            return await asyncio.gather(
                *(
                    one.update(lambda state, step=step: state.advance(step))
                    for one, step in zip(handles, steps, strict=True)
                ),
                return_exceptions=True,
            )

        before = self._load().version or 0
        results = self.runner.run(everybody())
        assert all(isinstance(one, AgentState | StateError) for one in results)
        saved: list[State] = [one for one in results if not isinstance(one, BaseException)]
        versions = sorted(one.version or 0 for one in saved)
        assert versions == list(range(before + 1, before + 1 + len(saved)))

    @invariant()
    def declared(self) -> None:
        """Wherever it is, it is declared, what is required is filled, and versions go up by one."""
        state = self._load()
        for depth, frame in enumerate(state.frames):
            workflow = {"outer": OUTER, "inner": INNER}[frame.workflow]
            step = workflow.steps[frame.step]
            assert set(step.requires) <= set(frame.slots) <= set(workflow.slots)
            assert (step.runs is not None) == (depth < len(state.frames) - 1)
        assert [frame.workflow for frame in state.frames] in (["outer"], ["outer", "inner"])
        assert state.version is not None
        assert state.version >= self.versions[-1]
        self.versions.append(state.version)


TestActors = Actors.TestCase
TestActors.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
