"""Workflows for other readers: JSON Schema for programs, Mermaid for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from secondcall.state.slots import Slot, json_schema_of

if TYPE_CHECKING:
    from secondcall.state.workflow import To, Workflow

__all__ = ["json_schema", "mermaid", "slot_schemas"]


def json_schema(workflow: Workflow) -> dict[str, Any]:
    """The schema of ``{"workflow", "version", "step", "slots"}``; ``x-transitions`` says which
    steps follow each one."""
    names = [name for name, step in workflow.steps.items() if step.runs is None]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": workflow.name,
        **({"description": workflow.description} if workflow.description else {}),
        "type": "object",
        "properties": {
            "workflow": {"const": workflow.name},
            "version": {"const": workflow.version},
            "step": {"enum": names},
            "slots": {
                "type": "object",
                "properties": slot_schemas(workflow.slots),
                "additionalProperties": False,
            },
        },
        "required": ["workflow", "version", "step", "slots"],
        "allOf": [
            {
                "if": {"properties": {"step": {"const": name}}},
                "then": {
                    "properties": {"slots": {"required": list(workflow.steps[name].requires)}}
                },
            }
            for name in names
            if workflow.steps[name].requires
        ],
        "x-transitions": {name: step["to"] for name, step in workflow.declared()["steps"].items()},
    }


def slot_schemas(slots: Mapping[str, Slot]) -> dict[str, Any]:
    """The schema of each slot, with its description."""
    found: dict[str, Any] = {}
    for name, slot in slots.items():
        found[name] = json_schema_of(slot.type)
        if slot.description:
            found[name]["description"] = slot.description
    return found


def mermaid(workflow: Workflow) -> str:
    """A ``stateDiagram-v2``. Names are written as labels, so that any characters can stand in them.

    Dotted edges do not exist there: what goes by itself is labelled with ``after`` a time, or with
    the step of the inner workflow that it returns from.
    """
    ids = {name: f"s{number}" for number, name in enumerate(workflow.steps)}
    lines = ["stateDiagram-v2", f"    [*] --> {ids[workflow.start]}"]
    for name, step in workflow.steps.items():
        label = name if step.runs is None else f"{name} (runs {step.runs.name})"
        lines.append(f'    state "{_text(label)}" as {ids[name]}')
    for name in workflow.steps:
        lines += [f"    {ids[name]} --> {line}" for line in _leaving(workflow, name, ids)]
    return "\n".join(lines) + "\n"


def _leaving(workflow: Workflow, name: str, ids: Mapping[str, str]) -> Iterator[str]:
    step, span = workflow.steps[name], workflow.span(name)
    for one in workflow.transitions.get(name, ()):
        marks = _text(", ".join(_marks(workflow, one)))
        yield f"{ids[one.step]} : {marks}" if marks else ids[one.step]
    for end, target in step.returns.items():
        yield f"{ids[target]} : {_text(f'when {end}')}"
    if span is not None and step.then is not None:
        yield f"{ids[step.then]} : after {_duration(span)}"
    if step.terminal:
        yield "[*]"


def _marks(workflow: Workflow, to: To) -> Iterator[str]:
    requires = workflow.steps[to.step].requires
    if requires:
        yield "needs " + " and ".join(requires)
    if to.guards:
        yield "if " + " and ".join(to.guards)
    if to.needs_confirmation:
        yield "confirmed"
    if to.needs_verified:
        yield "verified"


def _duration(span: timedelta) -> str:
    seconds = span.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:g} s"


def _text(label: str) -> str:
    """A label without what Mermaid would read as its own: entities stand for those characters."""
    return "".join(one if one.isalnum() or one in " _-().,/" else f"#{ord(one)};" for one in label)
