"""Any value as JSON that the record takes: text keys, finite numbers, not too deep."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from llama_index.core.bridge.pydantic import BaseModel

if TYPE_CHECKING:
    from secondcall.types import JsonValue

__all__ = ["jsonable"]

_MAX_DEPTH = 20


def jsonable(value: object, depth: int = 0) -> JsonValue:
    """The value as JSON. Models become objects and bytes base64, as LlamaIndex writes them; what
    JSON has no word for becomes its text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _MAX_DEPTH:
        return str(value)
    if isinstance(value, BaseModel):
        return jsonable(value.model_dump(), depth)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {str(name): jsonable(one, depth + 1) for name, one in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(one, depth + 1) for one in cast("list[object]", value)]
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)
