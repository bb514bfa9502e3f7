"""How a state moves through its workflows: entering, running out of time, going in and out. Pure.

A place is a stack of *frames*, outermost first: the last one is where the state is, each other one
waits in a step that runs the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from secondcall.errors import InvalidValue, MissingSlots
from secondcall.state.workflow import Workflow

__all__ = [
    "MAX_TRAIL",
    "Find",
    "Frame",
    "deadline",
    "enter",
    "next_deadline",
    "promised",
    "run_out",
]

MAX_TRAIL = 20
"""So many steps back a frame remembers."""

Find = Callable[[str, int], Workflow]
Frames = tuple["Frame", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where one workflow is: its step, its slots, since when, and the steps before.

    ``extra`` is what a newer release wrote beside it, and ``stored`` its JSON as it was read, for
    what that wrote inside, and for what this process does not understand.
    """

    workflow: str
    version: int
    step: str
    slots: Mapping[str, object]
    entered_at: datetime
    trail: Sequence[str] = ()
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    stored: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)


def enter(frames: Frames, step: str, at: datetime, find: Find, *, trail: Sequence[str]) -> Frames:
    """The frames after the innermost one entered ``step``, with what follows by itself: a workflow
    that the step runs begins, one that has ended returns.

    Raises: ``MissingSlots`` when the step's required slots are not filled.
    """
    frames = (*frames[:-1], _moved(frames[-1], step, at, trail))
    while True:
        frame = frames[-1]
        workflow = find(frame.workflow, frame.version)
        declared = workflow.steps[frame.step]
        lacking = [one for one in declared.requires if one not in frame.slots]
        if lacking:
            raise MissingSlots(
                f"{frame.step!r} requires {', '.join(map(repr, lacking))}",
                workflow=frame.workflow,
                step=frame.step,
                missing=lacking,
            )
        if declared.runs is not None:
            frames = (*frames, begin(declared.runs, at, _shared(frame, declared.shares)))
        elif declared.terminal and len(frames) > 1:
            frames = _returned(frames, at, find)
        else:
            return frames


def begin(workflow: Workflow, at: datetime, slots: Mapping[str, object]) -> Frame:
    """A frame at a workflow's start."""
    return Frame(
        workflow=workflow.name,
        version=workflow.version,
        step=workflow.start,
        slots=MappingProxyType(dict(slots)),
        entered_at=at,
    )


def deadline(frame: Frame, find: Find) -> datetime | None:
    """When a frame's step runs out."""
    span = find(frame.workflow, frame.version).span(frame.step)
    if span is None:
        return None
    try:
        return frame.entered_at + span
    except OverflowError:
        return None


def next_deadline(frames: Frames, find: Find) -> datetime | None:
    """When the first of all frames runs out."""
    due = [one for one in (deadline(frame, find) for frame in frames) if one is not None]
    return min(due, default=None)


def run_out(frames: Frames, now: datetime, find: Find) -> Frames:
    """The frames as they are once every timer up to ``now`` has gone off, in the order of time.

    A workflow that waits takes along those it runs when its own step runs out.
    """
    while True:
        due = [(deadline(frame, find), -depth) for depth, frame in enumerate(frames)]
        gone_off = [(at, depth) for at, depth in due if at is not None and at <= now]
        if not gone_off:
            return frames
        at, depth = min(gone_off, key=lambda one: (one[0], -one[1]))  # the outermost of equal ones
        frames = frames[: 1 - depth]
        frame = frames[-1]
        then = find(frame.workflow, frame.version).steps[frame.step].then
        if then is None:
            raise AssertionError("a timer that leads nowhere is refused when it is declared")
        frames = enter(frames, then, at, find, trail=_longer(frame))


def promised(frames: Frames, find: Find) -> Sequence[str]:
    """The slots that waiting workflows require and share with the innermost one: it may change
    them, but not clear them, since whoever waits is still in its step."""
    owed: dict[str, None] = {}
    for frame in frames[:-1]:
        step = find(frame.workflow, frame.version).steps.get(frame.step)
        if step is not None:
            owed = dict.fromkeys(one for one in (*owed, *step.requires) if one in step.shares)
    return list(owed)


def _longer(frame: Frame) -> Sequence[str]:
    return (*frame.trail, frame.step)[-MAX_TRAIL:]


def _moved(frame: Frame, step: str, at: datetime, trail: Sequence[str]) -> Frame:
    return replace(frame, step=step, entered_at=at, trail=tuple(trail))


def _shared(frame: Frame, names: Sequence[str]) -> dict[str, object]:
    return {name: frame.slots[name] for name in names if name in frame.slots}


def _returned(frames: Frames, at: datetime, find: Find) -> Frames:
    inner, outer = frames[-1], frames[-2]
    step = find(outer.workflow, outer.version).steps[outer.step]
    target = step.returns.get(inner.step)
    if target is None:
        raise InvalidValue(
            f"workflow {outer.workflow!r} does not say where {inner.workflow!r} returns to from "
            f"{inner.step!r}"
        )
    kept = {name: value for name, value in outer.slots.items() if name not in step.shares}
    slots = MappingProxyType({**kept, **_shared(inner, step.shares)})
    return (*frames[:-2], _moved(replace(outer, slots=slots), target, at, outer.trail))
