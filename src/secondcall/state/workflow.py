"""Workflows: declared steps, transitions, slots, guards and timers. Plain data but for the guards.

A workflow is checked when it is made, and all that is wrong with it is said at once. What it
declares can then be relied on: whoever is in a step has the slots that the step requires filled,
and neither a timer nor a sub-workflow that returns can break that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from secondcall.checks import check_limit, parse_duration
from secondcall.errors import InvalidValue
from secondcall.state.declared import check_name, find_problems
from secondcall.state.slots import Slot, json_schema_of

if TYPE_CHECKING:
    from secondcall.state.agent_state import AgentState

__all__ = ["Guard", "Migration", "Step", "To", "Workflow"]

Guard = Callable[["AgentState[Any]"], "bool | str"]
"""Is given the state as it would leave the step, slots filled: ``True`` lets it pass, ``False`` or
a reason in text does not. Plain functions, quick, without effects."""

Migration = Callable[[str, dict[str, object]], tuple[str, Mapping[str, object]]]
"""From step and slots of an older version of a workflow to those of the next newer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a workflow.

    ``requires`` names the slots that must be filled to be in it. A ``terminal`` step ends the
    workflow. A step that ``expires`` is left for the step ``then`` after that time (a ``timedelta``
    or text like ``"15m"``). A step that ``runs`` another workflow is not stayed in: that workflow
    runs, and ``returns`` says for each of its terminal steps where this one goes on; the slots
    that it ``shares`` are handed in and back.
    """

    requires: Sequence[str] = ()
    terminal: bool = False
    expires: timedelta | str | None = None
    then: str | None = None
    runs: Workflow | None = None
    returns: Mapping[str, str] = field(default_factory=dict[str, str])
    shares: Sequence[str] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class To:
    """A transition to ``step``.

    ``guards`` are names of the workflow's guards, all of which must let it pass. One that
    ``needs_confirmation`` is made only with the host's ``confirmed=True``, whatever a model says;
    one that ``needs_verified`` only for a caller whose identity is verified.
    """

    step: str
    guards: Sequence[str] = field(default=(), kw_only=True)
    needs_confirmation: bool = field(default=False, kw_only=True)
    needs_verified: bool = field(default=False, kw_only=True)


class Workflow:
    """A declared workflow; it never changes.

    ``steps`` are ``{name: Step(...)}`` or a list of names, the first being the ``start`` unless one
    is named. ``transitions`` are ``{step: [step or To(...), ...]}``; those of ``"*"`` leave every
    step that is not terminal. ``slots`` are ``{name: type or Slot(...)}``. ``cancel`` names the
    terminal step that ``AgentState.cancel`` goes to. Give a changed workflow a new ``version``:
    what runs keeps the one that it was started with, while that is known, and else goes through
    ``migrations``, ``{older version: function of step and slots}``.

    Raises: ``InvalidValue`` that lists everything that is wrong.
    """

    def __init__(
        self,
        name: str,
        steps: Mapping[str, Step] | Sequence[str],
        transitions: Mapping[str, Sequence[str | To] | str | To],
        *,
        version: int = 1,
        slots: Mapping[str, object] | None = None,
        guards: Mapping[str, Guard] | None = None,
        start: str | None = None,
        cancel: str | None = None,
        description: str = "",
        migrations: Mapping[int, Migration] | None = None,
    ) -> None:
        self.name = check_name("the name of a workflow", name)
        self.version = check_limit("version", version, maximum=2**31)
        self.description = description
        problems: list[str] = []
        self.steps: Mapping[str, Step] = MappingProxyType(_steps(steps, problems))
        self.slots: Mapping[str, Slot] = MappingProxyType(
            {
                one: slot if isinstance(slot, Slot) else Slot(slot)
                for one, slot in (slots or {}).items()
            }
        )
        self.guards: Mapping[str, Guard] = MappingProxyType(dict(guards or {}))
        self.start = start if start is not None else next(iter(self.steps), "")
        self.cancel = cancel
        self.migrations: Mapping[int, Migration] = MappingProxyType(dict(migrations or {}))
        self.transitions: Mapping[str, Sequence[To]] = MappingProxyType(
            _transitions(self.steps, transitions, problems)
        )
        problems += find_problems(self)
        if problems:
            listed = "; ".join(f"({number}) {one}" for number, one in enumerate(problems, 1))
            raise InvalidValue(f"workflow {name!r} version {version} is declared wrongly: {listed}")
        self._spans = {
            one: parse_duration("expires", step.expires)
            for one, step in self.steps.items()
            if step.expires is not None
        }

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r} version {self.version}>"

    def transition(self, step: str, to: str) -> To | None:
        """The declared transition, or ``None``."""
        return next((one for one in self.transitions.get(step, ()) if one.step == to), None)

    def span(self, step: str) -> timedelta | None:
        """How long one may stay in a step, or ``None`` for ever."""
        return self._spans.get(step)

    def declared(self) -> dict[str, Any]:
        """Everything but the code, as JSON has it: equal for workflows that declare the same."""
        return {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "start": self.start,
            "cancel": self.cancel,
            "guards": sorted(self.guards),
            "slots": {
                name: {"schema": json_schema_of(slot.type), "description": slot.description}
                for name, slot in self.slots.items()
            },
            "steps": {name: self._declared_step(name) for name in self.steps},
        }

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of a state in this workflow: each step with the slots it requires."""
        from secondcall.state.export import json_schema

        return json_schema(self)

    def mermaid(self) -> str:
        """The workflow as a Mermaid state diagram."""
        from secondcall.state.export import mermaid

        return mermaid(self)

    def _declared_step(self, name: str) -> dict[str, Any]:
        step, span = self.steps[name], self.span(name)
        return {
            "description": step.description,
            "requires": list(step.requires),
            "terminal": step.terminal,
            "expires_seconds": None if span is None else span.total_seconds(),
            "then": step.then,
            "runs": None if step.runs is None else [step.runs.name, step.runs.version],
            "returns": dict(step.returns),
            "shares": list(step.shares),
            "to": [
                {
                    "step": one.step,
                    "guards": list(one.guards),
                    "needs_confirmation": one.needs_confirmation,
                    "needs_verified": one.needs_verified,
                }
                for one in self.transitions.get(name, ())
            ],
        }


def _steps(steps: Mapping[str, Step] | Sequence[str], problems: list[str]) -> dict[str, Step]:
    if isinstance(steps, Mapping):
        for name, step in steps.items():
            if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                raise InvalidValue(f"step {name!r} must be a Step, not {type(step).__name__}")
            if step.runs is not None and not isinstance(step.runs, Workflow):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                raise InvalidValue(
                    f"step {name!r} must run a Workflow, not {type(step.runs).__name__}"
                )
        return dict(steps)
    if isinstance(steps, str) or not isinstance(steps, list | tuple):
        raise InvalidValue(
            f"steps must be a dict of Step or a list of names, not {type(steps).__name__}"
        )
    names = cast("Sequence[str]", steps)
    problems.extend(
        f"step {name!r} is declared more than once"
        for name in sorted({one for one in names if names.count(one) > 1})
    )
    return {name: Step() for name in names}


def _transitions(
    steps: Mapping[str, Step],
    given: Mapping[str, Sequence[str | To] | str | To],
    problems: list[str],
) -> dict[str, tuple[To, ...]]:
    """The transitions of each step, with those of ``"*"``, and a problem for each doubled one."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"transitions must be a dict, not {type(given).__name__}")
    found = {step: _targets(step, targets) for step, targets in given.items()}
    from_all = found.pop("*", [])
    for step, targets in found.items():
        names = [one.step for one in targets]
        problems.extend(
            f"the transition from {step!r} to {name!r} is declared more than once"
            for name in sorted({one for one in names if names.count(one) > 1})
        )
    for step in (name for name, one in steps.items() if not one.terminal):
        own = found.setdefault(step, [])
        named = {one.step for one in own} | {step}
        own.extend(one for one in from_all if one.step not in named)
    return {step: tuple(targets) for step, targets in found.items() if targets or step in steps}


def _targets(step: str, targets: Iterable[str | To] | str | To) -> list[To]:
    if isinstance(targets, str | To):
        targets = (targets,)
    made: list[To] = []
    for one in targets:
        if not isinstance(one, str | To):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(
                f"a transition from {step!r} must be a name or a To, not {type(one).__name__}"
            )
        made.append(To(one) if isinstance(one, str) else one)
    return made
