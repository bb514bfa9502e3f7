"""A tool for a model, of no framework, and how it answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from secondcall.types import Trust

__all__ = ["Arguments", "Tool", "object_schema", "refusal", "told"]

Arguments: TypeAlias = Mapping[str, object]
"""What a model wrote, by name."""
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
            return refusal(named)
        allowed = cast("Mapping[str, Any]", self.parameters["properties"])
        strange = sorted(str(name)[:80] for name in named if name not in allowed)
        if strange:
            takes = ", ".join(allowed) or "no arguments"
            return refusal(
                f"{self.name} does not take {', '.join(strange[:_MAX_NAMED])}; it takes {takes}. "
                "It is bound to this user and session already"
            )
        return await self.run(named, trust)


def object_schema(
    properties: Mapping[str, Any], *, required: Sequence[str] = (), least: int = 0
) -> dict[str, Any]:
    """A JSON Schema of an object that takes these properties and nothing more."""
    schema: dict[str, Any] = {
        "type": "object", "properties": dict(properties), "additionalProperties": False
    }  # fmt: skip
    if required:
        schema["required"] = list(required)
    if least and properties:
        schema["minProperties"] = least
    return schema


def refusal(why: str) -> str:
    """The answer to a call that changed nothing, for what the model did wrong."""
    return told({"changed": False, "refused": why})


def told(value: Mapping[str, Any]) -> str:
    """JSON in which no value can end a fence that a host puts around it, and which is UTF-8."""
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return text.encode(errors="backslashreplace").decode()


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
