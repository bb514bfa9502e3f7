"""The state of a session or user, as tools for a model.

Ask for ``tools()`` each time a model is called: their parameters are those of the present step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from secondcall.tools.tool import Arguments, Tool, object_schema, refusal, told
from secondcall.types import Trust

if TYPE_CHECKING:
    from secondcall.memory import SessionMemory, UserMemory
    from secondcall.memory.stating import StateHandle
    from secondcall.state.workflow import Workflow

__all__ = ["StateTools"]

_NAMES = ("get_workflow_state", "update_workflow_state", "fill_slots")


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
        self._bound = bound
        self._state: StateHandle[Any] = bound.state
        self._workflows = {one.name: one for one in workflows}
        self._by = by
        self._prefix = name
        self._confirmed: tuple[str, AgentState[Any]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools, which stay the same whatever the state is."""
        return tuple(f"{self._prefix}{one}" for one in _NAMES)

    def follow(self, user_id: str, session: SessionMemory) -> bool:
        """Go by ``session`` or its user from now on, if they are bound to those of ``user_id``: to
        the user, or to the session of the same id. Whether they were.

        For a conversation that turns out to be somebody else's, and after the user was forgotten.
        What was confirmed is not any more.
        """
        bound = self._bound
        if isinstance(bound, type(session)):
            if (bound.user.user_id, bound.session_id) != (user_id, session.session_id):
                return False
            self._bound = session
        elif cast("UserMemory", bound).user_id == user_id:
            self._bound = session.user
        else:
            return False
        self._state = self._bound.state
        self._confirmed = None
        return True

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
        get, update, fill = self.names
        return [
            Tool(
                name=get,
                description=(
                    "Read the state of the workflow: the present step, the slots that are filled, "
                    "the steps that are allowed next and what they still need."
                ),
                parameters=object_schema({}),
                run=self._get,
            ),
            Tool(
                name=update,
                description=_update_text(state),
                parameters=self._update_parameters(state),
                run=self._update,
            ),
            Tool(
                name=fill,
                description=_fill_text(state),
                parameters=object_schema(_slots(state), least=1),
                run=self._fill,
            ),
        ]

    def _update_parameters(self, state: AgentState[Any] | None) -> dict[str, Any]:
        if state is not None and not state.ended:
            steps = [one.step for one in state.allowed]
            slots = {
                "slots": {**object_schema(_slots(state)), "description": "slots to fill first"}
            }
            if not steps:
                return object_schema({})
            return object_schema(
                {"step": {"type": "string", "enum": steps}, **slots}, required=["step"]
            )
        if not self._workflows:
            return object_schema({})
        return object_schema(
            {"start": {"type": "string", "enum": list(self._workflows)}}, required=["start"]
        )

    async def _get(self, arguments: Arguments, trust: Trust) -> str:
        del arguments, trust
        return self._told(await self._state.load(), {})

    async def _fill(self, arguments: Arguments, trust: Trust) -> str:
        del trust
        if not arguments:
            return refusal("name at least one slot with its value")
        return await self._change(lambda state: state.fill(**arguments))

    async def _update(self, arguments: Arguments, trust: Trust) -> str:
        start, step = arguments.get("start"), arguments.get("step")
        slots = arguments.get("slots", {})
        if start is not None:
            workflow = self._workflows.get(start) if isinstance(start, str) else None
            if workflow is None:
                known = ", ".join(map(repr, self._workflows)) or "none"
                return refusal(f"there is no such workflow to start; there are: {known}")
            return await self._change(lambda state: state.start(workflow))
        if not isinstance(step, str):
            return refusal("name the step to go to, as text")
        if not isinstance(slots, Mapping):
            return refusal("slots must be an object, each slot by its name")
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
        picture = {**first, **({"workflow": None} if state is None else _picture(state))}
        if (state is None or state.ended) and self._workflows:
            picture["may_start"] = list(self._workflows)
        return told(picture)


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


def _said(error: UsageError) -> str:
    return error.problem if isinstance(error, StateError) else str(error)
