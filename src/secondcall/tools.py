"""What a model may call, bound to one user or session: no tool takes an id of either.

A tool has a name, a description and parameters as JSON Schema, and is called with the arguments
that the model wrote; what comes back is text for the model. A call that is refused, for whatever
the model did wrong, is answered with what is allowed and what is missing, so that the model can do
better; only failures of the store are raised, to the host.

``StateTools`` gives the tools for a state. Ask it for ``tools()`` each time a model is called:
their parameters are those of the present step.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from secondcall.errors import (
    IllegalTransition,
    NotConfirmed,
    StateError,
    UsageError,
    VersionConflict,
)
from secondcall.state.agent_state import AgentState
from secondcall.state.codec import untagged
from secondcall.state.export import slot_schemas
from secondcall.state.slots import type_name
from secondcall.types import Trust

if TYPE_CHECKING:
    from secondcall.memory import SessionMemory, UserMemory
    from secondcall.memory.stating import StateHandle
    from secondcall.state.workflow import Workflow

__all__ = ["StateTools", "Tool"]

Arguments = Mapping[str, object]
_MAX_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool for a model, of no framework.

    ``parameters`` is a JSON Schema of an object that takes nothing more than it names.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Arguments, Trust], Awaitable[str]] = field(repr=False)

    async def call(self, arguments: object, *, trust: Trust = "verified") -> str:
        """Call it with the arguments that a model wrote, as an object or as its JSON text.

        Say ``trust="claimed"`` when they rest on recalled or otherwise foreign text. Raises: store
        errors and ``UserErased`` only.
        """
        named = _read(arguments)
        if isinstance(named, str):
            return _refusal(named)
        allowed = cast("Mapping[str, Any]", self.parameters["properties"])
        strange = sorted(str(name)[:80] for name in named if name not in allowed)
        if strange:
            takes = ", ".join(allowed) or "no arguments"
            return _refusal(
                f"{self.name} does not take {', '.join(strange[:_MAX_NAMED])}; it takes {takes}. "
                "It is bound to this user and session already"
            )
        return await self.run(named, trust)


class StateTools:
    """The tools for the state of one session or user: reading it, moving on, filling slots.

    ``workflows`` are those that the model may start. ``name`` in front of the tools' names keeps
    two sets apart. A transition that needs confirmation is made only after the host called
    ``confirm`` for it, and only while the state is what was confirmed.
    """

    def __init__(
        self,
        bound: SessionMemory | UserMemory,
        *,
        workflows: Sequence[Workflow] = (),
        by: str = "model",
        name: str = "",
    ) -> None:
        self._state: StateHandle[Any] = bound.state
        self._workflows = {one.name: one for one in workflows}
        self._by = by
        self._prefix = name
        self._confirmed: tuple[str, AgentState[Any]] | None = None

    async def confirm(self, step: str, *, shown: AgentState[Any] | None = None) -> None:
        """The user confirmed, to the host itself, that the state may go to ``step``: the state that
        was ``shown``, or without one the state as it is now. Give what was shown wherever a model
        or somebody else could have changed the state while the user was asked.

        It holds for one transition. Any other change of the state, by a timer too, ends it: then
        what was confirmed is no longer what would be done.

        Raises: ``VersionConflict`` when the state is not what was shown, ``IllegalTransition`` when
        no transition leads to ``step``, store errors; then nothing is confirmed.
        """
        self._confirmed = None
        state = await self._state.load()
        if shown is not None and (state is None or not _same(shown, state)):
            found = None if state is None else state.version
            raise VersionConflict("the state", expected=shown.version, found=found)
        allowed = [] if state is None else [one.step for one in state.allowed]
        if state is None or step not in allowed:
            raise IllegalTransition(
                f"{step[:80]!r} cannot be confirmed, no transition leads there",
                workflow=None if state is None else state.workflow,
                step=None if state is None else state.step,
                allowed=allowed,
            )
        self._confirmed = (step, state)

    def revoke(self) -> None:
        """Take a confirmation back."""
        self._confirmed = None

    async def tools(self) -> list[Tool]:
        """``get_workflow_state``, ``update_workflow_state`` and ``fill_slots``, for the state as it
        is now. Raises: store errors."""
        state = await self._state.load()
        return [
            Tool(
                name=f"{self._prefix}get_workflow_state",
                description=(
                    "Read the state of the workflow: the present step, the slots that are filled, "
                    "the steps that are allowed next and what they still need."
                ),
                parameters=_object({}),
                run=self._get,
            ),
            Tool(
                name=f"{self._prefix}update_workflow_state",
                description=_update_text(state),
                parameters=self._update_parameters(state),
                run=self._update,
            ),
            Tool(
                name=f"{self._prefix}fill_slots",
                description=_fill_text(state),
                parameters=_object(_slots(state), least=1),
                run=self._fill,
            ),
        ]

    def _update_parameters(self, state: AgentState[Any] | None) -> dict[str, Any]:
        if state is not None and not state.ended:
            steps = [one.step for one in state.allowed]
            slots = {"slots": {**_object(_slots(state)), "description": "slots to fill first"}}
            if not steps:
                return _object({})
            return _object({"step": {"type": "string", "enum": steps}, **slots}, required=["step"])
        if not self._workflows:
            return _object({})
        return _object(
            {"start": {"type": "string", "enum": list(self._workflows)}}, required=["start"]
        )

    async def _get(self, arguments: Arguments, trust: Trust) -> str:
        del arguments, trust
        return self._told(await self._state.load(), {})

    async def _fill(self, arguments: Arguments, trust: Trust) -> str:
        del trust
        if not arguments:
            return _refusal("name at least one slot with its value")
        return await self._change(lambda state: state.fill(**arguments))

    async def _update(self, arguments: Arguments, trust: Trust) -> str:
        start, step = arguments.get("start"), arguments.get("step")
        slots = arguments.get("slots", {})
        if start is not None:
            workflow = self._workflows.get(start) if isinstance(start, str) else None
            if workflow is None:
                known = ", ".join(map(repr, self._workflows)) or "none"
                return _refusal(f"there is no such workflow to start; there are: {known}")
            return await self._change(lambda state: state.start(workflow))
        if not isinstance(step, str):
            return _refusal("name the step to go to, as text")
        if not isinstance(slots, Mapping):
            return _refusal("slots must be an object, each slot by its name")
        named = cast("Mapping[str, object]", slots)

        def advance(state: AgentState[Any]) -> AgentState[Any]:
            return self._advanced(state, step, named, trust)

        return await self._change(advance)

    def _advanced(
        self, state: AgentState[Any], step: str, slots: Mapping[str, object], trust: Trust
    ) -> AgentState[Any]:
        """The state one step on, confirmed only if the host confirmed just this."""
        held = self._confirmed
        confirmed = held is not None and held[0] == step and _same(held[1], state)
        if confirmed and slots and state.fill(**slots).slots != state.slots:
            raise NotConfirmed(
                "the slots would be others than the user confirmed; fill them first, then let the "
                "user confirm",
                workflow=state.workflow,
                step=state.step,
                allowed=[one.step for one in state.allowed],
            )
        return state.advance(step, slots=slots, confirmed=confirmed, trust=trust)

    async def _change(self, change: Callable[[AgentState[Any]], AgentState[Any]]) -> str:
        try:
            state = await self._state.update(change, by=self._by)
        except VersionConflict:
            return self._told(
                await self._state.load(),
                {"changed": False, "refused": "somebody else changed the state; look again"},
            )
        except UsageError as error:
            refused: dict[str, Any] = {"changed": False, "refused": _said(error)}
            if isinstance(error, StateError) and error.missing:
                refused["missing"] = list(error.missing)
            return self._told(await self._state.load(), refused)
        self._confirmed = None
        return self._told(state, {"changed": True})

    def _told(self, state: AgentState[Any] | None, first: dict[str, Any]) -> str:
        """The state as JSON for a model, after what happened."""
        told = {**first, **({"workflow": None} if state is None else _picture(state))}
        if (state is None or state.ended) and self._workflows:
            told["may_start"] = list(self._workflows)
        return _text(told)


def _picture(state: AgentState[Any]) -> dict[str, Any]:
    if state.workflow is None:
        return {"workflow": None}
    picture: dict[str, Any] = {
        "workflow": state.workflow,
        "step": state.step,
        "ended": state.ended,
        "slots": {name: untagged(name, value) for name, value in state.slots.items()},
    }
    empty = {name: kind for name, kind in _kinds(state).items() if name not in state.slots}
    if empty and not state.ended:
        picture["empty_slots"] = empty
    picture["allowed"] = [
        {
            "step": one.step,
            **({"missing": list(one.missing)} if one.missing else {}),
            **({"needs_confirmation": True} if one.needs_confirmation else {}),
            **({"needs_verified": True} if one.needs_verified else {}),
        }
        for one in state.allowed
    ]
    return picture


def _kinds(state: AgentState[Any]) -> dict[str, str]:
    workflow = _workflow(state)
    return {} if workflow is None else {n: type_name(s.type) for n, s in workflow.slots.items()}


def _workflow(state: AgentState[Any] | None) -> Workflow | None:
    if state is None or not state.frames:
        return None
    return state.known.find(state.frames[-1].workflow, state.frames[-1].version)


def _slots(state: AgentState[Any] | None) -> dict[str, Any]:
    workflow = _workflow(state)
    if workflow is None or state is None or state.ended:
        return {}
    return slot_schemas(workflow.slots)


def _update_text(state: AgentState[Any] | None) -> str:
    if state is None or state.ended:
        return "Start a workflow. Nothing else is possible while none runs."
    lines = [f"Move the workflow {state.workflow!r} on from its step {state.step!r}. Allowed now:"]
    for one in state.allowed:
        needs = [*(f"slot {name}" for name in one.missing)]
        needs += ["the user's confirmation, which is asked for outside of this tool"] * (
            one.needs_confirmation
        )
        needs += ["a caller whose identity is verified"] * one.needs_verified
        what = f" - {one.description}" if one.description else ""
        lines.append(f"{one.step}{what}" + (f" (needs {', '.join(needs)})" if needs else ""))
    return "\n".join(lines if state.allowed else ["No step can be reached from here by a tool."])


def _fill_text(state: AgentState[Any] | None) -> str:
    if state is None or state.ended:
        return "No workflow runs, so there are no slots to fill. Start one first."
    return (
        f"Fill slots of the workflow {state.workflow!r} with what the user said, without moving "
        "on. A value of null clears a slot."
    )


def _same(one: AgentState[Any], other: AgentState[Any]) -> bool:
    """Whether a user who saw the one knows the other."""
    return (one.version, one.updated_at, one.frames, one.fields) == (
        other.version, other.updated_at, other.frames, other.fields
    )  # fmt: skip


def _object(
    properties: Mapping[str, Any], *, required: Sequence[str] = (), least: int = 0
) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object", "properties": dict(properties), "additionalProperties": False
    }  # fmt: skip
    if required:
        schema["required"] = list(required)
    if least and properties:
        schema["minProperties"] = least
    return schema


def _read(arguments: object) -> Arguments | str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "the arguments are not JSON"
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        return "the arguments must be an object"
    return cast("Arguments", arguments)


def _said(error: UsageError) -> str:
    return error.problem if isinstance(error, StateError) else str(error)


def _refusal(why: str) -> str:
    return _text({"changed": False, "refused": why})


def _text(value: Mapping[str, Any]) -> str:
    """JSON in which no value can end a fence that a host puts around it, and which is UTF-8."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return text.encode(errors="backslashreplace").decode()
