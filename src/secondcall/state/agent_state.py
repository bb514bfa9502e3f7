"""``AgentState``: what is true now for a user or a session, and the verbs that change it. Pure.

A state never changes: each verb gives a new one, or raises and nothing has happened. It is stored
only by ``session.state.update``, ``session.state.save`` and their twins of the user.
"""

from __future__ import annotations

import dataclasses
import inspect
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from secondcall.checks import check_id, check_json, from_us, to_us
from secondcall.errors import (
    GuardFailed,
    IllegalTransition,
    InvalidValue,
    MissingSlots,
    NotConfirmed,
    StateError,
    UnknownName,
)
from secondcall.state.codec import encode, freeze, is_model, model_values
from secondcall.state.known import Workflows
from secondcall.state.moves import (
    MAX_TRAIL,
    Frame,
    begin,
    enter,
    next_deadline,
    promised,
    run_out,
)
from secondcall.state.workflow import To, Workflow
from secondcall.types import ItemKey, JsonValue, Trust

if TYPE_CHECKING:
    from secondcall.abc_state import StoredState

__all__ = ["AgentState", "Allowed", "Preferred"]

F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A step that can be reached from the present one, and what it still takes."""

    step: str
    missing: Sequence[str] = ()
    needs_confirmation: bool = False
    needs_verified: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferred:
    """A preference as a state's change states it; a ``value`` of ``None`` ends it."""

    name: str
    value: JsonValue
    sources: Sequence[ItemKey] = ()
    sensitive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState(Generic[F]):
    """What is true now. ``session_id`` ``None``: user-wide, it outlives sessions.

    ``version`` is the stored one, ``None`` before the first save; ``now`` is the moment from which
    this state is seen, never before ``updated_at``. ``fields`` are the host's own. ``preferences``
    are the user's current facts of that kind, by predicate. ``frames`` are where the workflows
    stand, outermost first; ``workflow``, ``step`` and ``slots`` are those of the innermost. After
    ``expires_at`` the state is absent.
    """

    tenant_id: str
    user_id: str
    session_id: str | None
    fields: F
    now: datetime
    version: int | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None
    expires_at: datetime | None = None
    frames: tuple[Frame, ...] = ()
    preferences: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    preferred: tuple[Preferred, ...] = ()
    """The changes of preferences that are not written yet."""
    trust: Trust = "verified"
    known: Workflows = field(default_factory=Workflows, repr=False, compare=False)
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What a newer release wrote beside all this; it is written again."""
    origin: tuple[StoredState, AgentState[F]] | None = field(
        default=None, repr=False, compare=False
    )
    """What it was read from: the stored bytes, and the state in them before any timer went off."""
    stored_fields: Any = field(default=None, repr=False)
    """The JSON of ``fields`` as it was read, for what a newer release wrote inside."""

    @property
    def workflow(self) -> str | None:
        """The name of the workflow that runs, or that ended last."""
        return self.frames[-1].workflow if self.frames else None

    @property
    def workflow_version(self) -> int | None:
        """The version that the workflow was started with."""
        return self.frames[-1].version if self.frames else None

    @property
    def step(self) -> str | None:
        """The step that the workflow is in."""
        return self.frames[-1].step if self.frames else None

    @property
    def slots(self) -> Mapping[str, Any]:
        """The filled slots of the workflow, by name."""
        return self.frames[-1].slots if self.frames else MappingProxyType({})

    @property
    def stack(self) -> Sequence[Frame]:
        """The workflows that wait for this one to return, outermost first."""
        return self.frames[:-1]

    @property
    def ended(self) -> bool:
        """Whether no workflow runs: none was started, or the last one is in a terminal step.

        Raises: ``UnknownName``, ``SchemaTooNew`` when the workflow is not known here.
        """
        return not self.frames or self._declared().steps[self.frames[-1].step].terminal

    @property
    def due_at(self) -> datetime | None:
        """When the next timer goes off. Raises: as ``ended``."""
        return next_deadline(self.frames, self.known.find)

    @property
    def allowed(self) -> Sequence[Allowed]:
        """The steps that can be reached from here, in the order of the declaration. Raises: as
        ``ended``."""
        if not self.frames:
            return ()
        workflow, filled = self._declared(), self.frames[-1].slots
        return tuple(
            Allowed(
                step=one.step,
                missing=tuple(
                    name for name in workflow.steps[one.step].requires if name not in filled
                ),
                needs_confirmation=one.needs_confirmation,
                needs_verified=one.needs_verified,
                description=workflow.steps[one.step].description,
            )
            for one in workflow.transitions.get(self.frames[-1].step, ())
        )

    def start(self, workflow: Workflow, /, **slots: object) -> AgentState[F]:
        """Start a workflow at its first step, with these slots filled.

        Raises: ``IllegalTransition`` while another one runs, ``MissingSlots``, ``InvalidValue``.
        """
        if not isinstance(workflow, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"start takes a Workflow, not {type(workflow).__name__}")
        if not self.ended:
            self._refuse(
                IllegalTransition,
                f"{workflow.name!r} cannot be started before {self.workflow!r} is finished or "
                "cancelled",
            )
        known = self.known.including(workflow)
        frame = begin(workflow, self.now, {})
        fresh = replace(self, known=known, frames=(frame,))._filled(slots)
        try:
            frames = enter(fresh.frames, workflow.start, self.now, known.find, trail=())
        except MissingSlots as error:
            self._refuse(MissingSlots, error.problem, missing=error.missing)
        return replace(fresh, frames=frames)

    def fill(self, /, **slots: object) -> AgentState[F]:
        """Fill slots of the workflow that runs; ``None`` clears one.

        Raises: ``InvalidValue`` for an unknown slot or a wrong value, ``TooLarge``,
        ``MissingSlots`` when the present step requires what would be cleared, ``IllegalTransition``
        when no workflow runs.
        """
        self._must_run("slots can be filled")
        filled = self._filled(slots)
        frame = filled.frames[-1]
        required = self._declared().steps[frame.step].requires
        self._need(f"{frame.step!r} requires", required, frame)
        return filled

    def _need(self, who: str, names: Iterable[str], frame: Frame) -> None:
        lacking = [name for name in names if name not in frame.slots]
        if lacking:
            self._refuse(MissingSlots, f"{who} {', '.join(map(repr, lacking))}", missing=lacking)

    def advance(
        self,
        step: str,
        *,
        slots: Mapping[str, object] | None = None,
        confirmed: bool = False,
        trust: Trust | None = None,
    ) -> AgentState[F]:
        """Go to another step, filling ``slots`` first; what follows by itself is done too.

        ``confirmed``: the host knows that the user wants this; never take it from a model.
        ``trust`` lowers the trust of this change below that of the caller, for what rests on
        recalled text; it cannot raise it.

        Raises: ``IllegalTransition``, ``MissingSlots``, ``GuardFailed``, ``NotConfirmed``,
        ``InvalidValue``. Each says what is allowed from here and what is missing.
        """
        if not isinstance(step, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"step must be text, not {type(step).__name__}")
        if slots is not None and not isinstance(slots, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"slots must be a dict, not {type(slots).__name__}")
        named = repr(step[:80])
        self._must_run(f"{named} can be entered")
        to = self._declared().transition(self.frames[-1].step, step)
        if to is None:
            unknown = step not in self._declared().steps
            self._refuse(
                IllegalTransition,
                f"{self.workflow!r} has no step {named}"
                if unknown
                else f"no transition leads from {self.step!r} to {named}",
            )
        return self._advance(to, slots, confirmed=confirmed, trust=trust, back=False)

    def back(self, *, confirmed: bool = False, trust: Trust | None = None) -> AgentState[F]:
        """Return to the step before this one, if a transition leads there; from the first step of a
        workflow that another one runs, to the step before the one that runs it.

        Raises: as ``advance``.
        """
        self._must_run("one can go back")
        here: AgentState[F] = self
        while here.stack and not here.frames[-1].trail:
            here = replace(here, frames=here.frames[:-1])
        frame = here.frames[-1]
        before = frame.trail[-1] if frame.trail else None
        to = None if before is None else here._declared().transition(frame.step, before)
        if to is None:
            self._refuse(
                IllegalTransition,
                f"{frame.workflow!r} has no step before {frame.step!r}"
                if before is None
                else f"no transition leads back from {frame.step!r} to {before!r}",
            )
        return here._advance(to, None, confirmed=confirmed, trust=trust, back=True)

    def cancel(self, *, confirmed: bool = False, trust: Trust | None = None) -> AgentState[F]:
        """Cancel: go to the step that the workflow names for it, or, if it names none, leave it and
        cancel the one that runs it.

        Raises: as ``advance``.
        """
        self._must_run("anything can be cancelled")
        here: AgentState[F] = self
        while here.stack and here._declared().cancel is None:
            here = replace(here, frames=here.frames[:-1])
        frame, cancel = here.frames[-1], here._declared().cancel
        to = None if cancel is None else here._declared().transition(frame.step, cancel)
        if to is None:
            self._refuse(
                IllegalTransition, f"{frame.workflow!r} cannot be cancelled at {frame.step!r}"
            )
        return here._advance(to, None, confirmed=confirmed, trust=trust, back=False)

    def with_fields(self, /, **changes: object) -> AgentState[F]:
        """The same with other values in ``fields``; a field that does not exist is refused.

        Raises: ``InvalidValue``.
        """
        now = cast("Any", self.fields)
        if isinstance(now, Mapping):
            fields: Any = freeze({**cast("Mapping[str, object]", now), **changes})
            encode("fields", fields)
        elif is_model(_class_of(now)):
            fields = _changed_model(now, changes)
        elif dataclasses.is_dataclass(now):
            _known_fields(changes, {one.name for one in dataclasses.fields(now) if one.init})
            fields = replace(cast("Any", now), **changes)
        else:
            raise InvalidValue("this state has no fields of its own; see session.state.of(...)")
        return replace(self, fields=cast("F", fields))

    def prefer(
        self,
        name: str,
        value: JsonValue,
        *,
        sources: Sequence[ItemKey] = (),
        sensitive: bool = False,
    ) -> AgentState[F]:
        """State a preference of the user, as ``user.remember(name, value, kind="preference")``
        does; ``None`` ends it. ``sources`` are the items that it rests on.

        Raises: ``InvalidValue``.
        """
        check_id("the name of a preference", name)
        check_json(f"preferences.{name[:40]}", value)
        folded = _folded(name)
        others = {one: kept for one, kept in self.preferences.items() if _folded(one) != folded}
        if value is not None:
            others[name] = value
        told = Preferred(name=name, value=value, sources=tuple(sources), sensitive=sensitive)
        pending = tuple(one for one in self.preferred if _folded(one.name) != folded)
        return replace(self, preferences=MappingProxyType(others), preferred=(*pending, told))

    def expiring(self, at: datetime | None) -> AgentState[F]:
        """The same, absent from ``at`` on; ``None``: for good. Raises: ``InvalidValue``."""
        return replace(self, expires_at=None if at is None else from_us(to_us("at", at)))

    def run_out(self) -> AgentState[F]:
        """The state once every timer up to ``now`` has gone off. Raises: as ``ended``."""
        frames = run_out(self.frames, self.now, self.known.find)
        return self if frames == self.frames else replace(self, frames=frames)

    def _advance(
        self,
        to: To,
        slots: Mapping[str, object] | None,
        *,
        confirmed: bool,
        trust: Trust | None,
        back: bool,
    ) -> AgentState[F]:
        filled = self._filled(slots or {})
        frame, workflow = filled.frames[-1], self._declared()
        self._need(f"{to.step!r} requires", workflow.steps[to.step].requires, frame)
        filled._ask_guards(workflow, to, self)
        if to.needs_confirmation and confirmed is not True:
            self._refuse(NotConfirmed, f"{to.step!r} needs the user's confirmation, by the host")
        if to.needs_verified and "claimed" in (self.trust, trust):
            self._refuse(NotConfirmed, f"{to.step!r} needs a caller whose identity is verified")
        trail = frame.trail[:-1] if back else (*frame.trail, frame.step)[-MAX_TRAIL:]
        frames = enter(filled.frames, to.step, self.now, self.known.find, trail=trail)
        return replace(filled, frames=frames)

    def _ask_guards(self, workflow: Workflow, to: To, before: AgentState[F]) -> None:
        for name in to.guards:
            said = cast("object", workflow.guards[name](self))
            if said is True:
                continue
            if said is False or (isinstance(said, str) and said != ""):
                reason = f": {said}" if said else ""
                before._refuse(GuardFailed, f"the guard {name!r} keeps {to.step!r} shut{reason}")
            if inspect.iscoroutine(said):
                said.close()
            raise InvalidValue(
                f"the guard {name!r} gave {type(said).__name__}, expected True, False or a reason"
            )

    def _filled(self, slots: Mapping[str, object]) -> AgentState[F]:
        if not slots:
            return self
        frame, declared = self.frames[-1], self._declared().slots
        values = dict(frame.slots)
        for name, value in slots.items():
            if name not in declared:
                there = ", ".join(declared) or "none"
                raise InvalidValue(
                    f"workflow {frame.workflow!r} has no slot {str(name)[:80]!r}; it has {there}"
                )
            if value is None:
                values.pop(name, None)
            else:
                values[name] = declared[name].take(f"slots.{name}", value)
        filled = replace(frame, slots=MappingProxyType(values))
        owed = promised(self.frames, self.known.find)
        self._need("a workflow that waits for this one requires", owed, filled)
        return replace(self, frames=(*self.frames[:-1], filled))

    def _must_run(self, what: str) -> None:
        if self.workflow is None:
            self._refuse(IllegalTransition, f"start a workflow before {what}")
        if self.ended:
            self._refuse(
                IllegalTransition, f"{self.workflow!r} has ended; start a workflow before {what}"
            )

    def _declared(self) -> Workflow:
        frame = self.frames[-1]
        workflow = self.known.find(frame.workflow, frame.version)
        if frame.step not in workflow.steps:
            raise UnknownName(
                f"the state is at {frame.step!r}, which version {frame.version} of workflow "
                f"{frame.workflow!r} no longer declares; give a changed workflow a new version"
            )
        return workflow

    def _refuse(
        self, error: type[StateError], problem: str, *, missing: Sequence[str] = ()
    ) -> NoReturn:
        raise error(
            problem,
            workflow=self.workflow,
            step=self.step,
            allowed=[one.step for one in self.allowed],
            missing=missing,
        )


def _class_of(value: object) -> type:
    return type(value)


def _changed_model(model: Any, changes: Mapping[str, object]) -> object:
    kind = cast("Any", type(model))
    _known_fields(changes, set(kind.model_fields))
    try:
        return kind.model_validate({**model_values(model), **changes}, by_name=True)
    except ValueError as error:
        raise InvalidValue(
            f"{', '.join(sorted(changes))}: not accepted by {kind.__name__} "
            f"({type(error).__name__})"
        ) from None


def _known_fields(changes: Mapping[str, object], known: set[str]) -> None:
    unknown = sorted(set(changes) - known)
    if unknown:
        raise InvalidValue(
            f"there is no field {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
