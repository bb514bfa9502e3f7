"""What can be wrong with the declaration of a workflow, all of it found at once. Pure."""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from secondcall.checks import check_id, parse_duration
from secondcall.errors import InvalidValue, TooLarge
from secondcall.state.slots import check_type

if TYPE_CHECKING:
    from secondcall.state.workflow import Step, Workflow

__all__ = ["MAX_NAME_CHARACTERS", "check_name", "find_problems"]

MAX_NAME_CHARACTERS = 128
_IDS = frozenset({"tenant_id", "user_id", "session_id"})
_SLOT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


def check_name(field: str, value: object) -> str:
    """The name of a workflow or step: 1 to 128 characters of one line. Raises: ``InvalidValue``."""
    name = check_id(field, value)
    if len(name) > MAX_NAME_CHARACTERS:
        raise TooLarge(
            f"{field} has {len(name)} characters, at most {MAX_NAME_CHARACTERS} are accepted"
        )
    if name != name.strip() or any(unicodedata.category(one) in ("Cc", "Zl", "Zp") for one in name):
        raise InvalidValue(f"{field} must be one line without white space at its ends: {name!r}")
    return name


def find_problems(workflow: Workflow) -> list[str]:
    """What is wrong, in the order of the declaration; empty if nothing is."""
    if not workflow.steps:
        return ["it has no steps"]
    problems = [
        *_names(workflow),
        *_slots(workflow),
        *_guards(workflow),
        *_ends(workflow),
        *_edges(workflow),
        *(one for name in workflow.steps for one in _step(workflow, name)),
    ]
    if problems:
        return problems  # what follows looks things up by names that are sound
    return [*_reach(workflow), *_promises(workflow), *_circles(workflow)]


def _names(workflow: Workflow) -> Iterator[str]:
    seen: dict[str, str] = {}
    for name in workflow.steps:
        try:
            check_name("a step's name", name)
        except InvalidValue as error:
            yield str(error)
            continue
        folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if folded in seen:
            yield f"the steps {seen[folded]!r} and {name!r} differ only in case or white space"
        if name == "*":
            yield "no step can be called '*': it stands for all of them"
        seen[folded] = name


def _slots(workflow: Workflow) -> Iterator[str]:
    for name, slot in workflow.slots.items():
        if not _SLOT_NAME.match(str(name)):
            yield f"slot {name!r} must be named by letters, digits and _, at most 64 of them"
        if name in _IDS:
            yield f"no slot can be called {name!r}: the tools of a model take no ids"
        wrong = check_type(slot.type)
        if wrong:
            yield f"slot {name!r}: {wrong}"
        if slot.check is not None and not _is_plain(slot.check):
            yield f"the check of slot {name!r} must be a plain function"


def _guards(workflow: Workflow) -> Iterator[str]:
    for name, guard in workflow.guards.items():
        if not _is_plain(guard):
            yield f"guard {name!r} must be a plain function that takes the state"
    for version, migration in workflow.migrations.items():
        if isinstance(version, bool) or not 0 < version < workflow.version:
            yield f"a migration leads from version {version!r}, which is no older one"
        if not _is_plain(migration):
            yield f"the migration from version {version!r} must be a plain function"


def _ends(workflow: Workflow) -> Iterator[str]:
    start, cancel = workflow.start, workflow.cancel
    if start not in workflow.steps:
        yield f"it starts at {start!r}, which is no step"
    elif workflow.steps[start].terminal:
        yield f"it starts at {start!r}, which is terminal"
    if cancel is None:
        return
    if cancel not in workflow.steps:
        yield f"cancel leads to {cancel!r}, which is no step"
    elif not workflow.steps[cancel].terminal:
        yield f"cancel leads to {cancel!r}, which is not terminal"


def _edges(workflow: Workflow) -> Iterator[str]:
    for step, targets in workflow.transitions.items():
        if step not in workflow.steps:
            yield f"a transition leaves {step!r}, which is no step"
        elif workflow.steps[step].terminal:
            yield f"a transition leaves {step!r}, which is terminal"
        for one in targets:
            if one.step not in workflow.steps:
                yield f"a transition from {step!r} leads to {one.step!r}, which is no step"
            for guard in one.guards:
                if guard not in workflow.guards:
                    yield (
                        f"the transition from {step!r} to {one.step!r} has the guard {guard!r}, "
                        "which is not given"
                    )


def _step(workflow: Workflow, name: str) -> Iterator[str]:
    step = workflow.steps[name]
    for field, names in (("requires", step.requires), ("shares", step.shares)):
        if isinstance(names, str):
            yield f"{field} of step {name!r} must be a list of slots, not text"
            continue
        yield from (
            f"step {name!r} {field} the slot {one!r}, which is not declared"
            for one in names
            if one not in workflow.slots
        )
        yield from (f"step {name!r} {field} the slot {one!r} twice" for one in _doubled(names))
    yield from _timer(workflow, name, step)
    yield from _run(workflow, name, step)
    leaves = workflow.transitions.get(name) or step.expires is not None or step.runs is not None
    if not step.terminal and not leaves:
        yield f"step {name!r} is a dead end: nothing leaves it and it is not terminal"


def _timer(workflow: Workflow, name: str, step: Step) -> Iterator[str]:
    if step.expires is None:
        if step.then is not None:
            yield f"step {name!r} says where it goes then, but not when it expires"
        return
    try:
        parse_duration("expires", step.expires)
    except InvalidValue as error:
        yield f"the timer of step {name!r}: {error}"
    if step.terminal:
        yield f"step {name!r} is terminal and cannot expire"
    if step.then is None:
        yield f"the timer of step {name!r} leads nowhere: name the step that comes then"
    elif step.then not in workflow.steps:
        yield f"the timer of step {name!r} leads to {step.then!r}, which is no step"


def _run(workflow: Workflow, name: str, step: Step) -> Iterator[str]:
    inner = step.runs
    if inner is None:
        if step.returns or step.shares:
            yield f"step {name!r} runs no workflow, so nothing returns and nothing is shared"
        return
    if step.terminal:
        yield f"step {name!r} is terminal and cannot run a workflow"
    ends = {one for one, inside in inner.steps.items() if inside.terminal}
    if not ends:
        yield f"step {name!r} runs {inner.name!r}, which has no terminal step and never returns"
    for end in sorted(ends - set(step.returns)):
        yield f"step {name!r} does not say where {inner.name!r} returns to from {end!r}"
    yield from _returns(workflow, name, inner, ends)
    for slot in step.shares:
        mine, other = workflow.slots.get(slot), inner.slots.get(slot)
        if mine is not None and (other is None or other.type != mine.type):
            yield f"step {name!r} shares the slot {slot!r}, which {inner.name!r} does not have so"


def _returns(workflow: Workflow, name: str, inner: Workflow, ends: set[str]) -> Iterator[str]:
    for end, target in workflow.steps[name].returns.items():
        if end not in ends:
            yield f"step {name!r} waits for {end!r}, which is no terminal step of {inner.name!r}"
        if target not in workflow.steps:
            yield f"step {name!r} returns to {target!r}, which is no step"


def _reach(workflow: Workflow) -> Iterator[str]:
    seen, waiting = {workflow.start}, [workflow.start]
    while waiting:
        name = waiting.pop()
        for target in (one.step for one in workflow.transitions.get(name, ())):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
        for target in _by_itself(workflow.steps[name]):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    for name in workflow.steps:
        if name not in seen:
            yield f"step {name!r} is unreachable from {workflow.start!r}"


def _promises(workflow: Workflow) -> Iterator[str]:
    """Steps that are entered by themselves: nobody can be told then that a slot is missing."""
    for name, step in workflow.steps.items():
        sure = set(step.requires)
        if step.then is not None:
            yield from _unsure(workflow, f"the timer of step {name!r}", step.then, sure)
        if step.runs is None:
            continue
        inner = step.runs
        handed = sure & set(step.shares)
        yield from _unsure(inner, f"step {name!r} runs {inner.name!r}", inner.start, handed)
        for end, target in step.returns.items():
            back = sure | (set(step.shares) & set(inner.steps[end].requires))
            yield from _unsure(workflow, f"step {name!r}, returning from {end!r}", target, back)


def _unsure(workflow: Workflow, what: str, target: str, sure: set[str]) -> Iterator[str]:
    lacking = [one for one in workflow.steps[target].requires if one not in sure]
    if lacking:
        yield (
            f"{what} leads to {target!r}, which requires {', '.join(map(repr, lacking))}: "
            "not sure to be filled then"
        )


def _circles(workflow: Workflow) -> Iterator[str]:
    """Circles that are gone round by time alone, for ever."""
    edges = {name: _by_time(workflow.steps[name]) for name in workflow.steps}
    for name in workflow.steps:
        if name in _closure(edges, edges[name]):
            yield f"step {name!r} comes back to itself by timers alone"


def _by_itself(step: Step) -> list[str]:
    """Where a step leads without a transition of its own workflow."""
    return [*([] if step.then is None else [step.then]), *step.returns.values()]


def _by_time(step: Step) -> set[str]:
    found: set[str] = set() if step.then is None else {step.then}
    if step.runs is not None:
        inner = step.runs
        edges = {name: _by_time(one) for name, one in inner.steps.items()}
        reached = _closure(edges, {inner.start})
        found |= {target for end, target in step.returns.items() if end in reached}
    return found


def _closure(edges: Mapping[str, set[str]], start: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(edges[name])
    return seen


def _doubled(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({one for one in listed if listed.count(one) > 1})


def _is_plain(function: object) -> bool:
    return callable(function) and not inspect.iscoroutinefunction(function)
