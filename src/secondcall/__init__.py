"""Memory and state for AI agents that outlives the session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from secondcall.errors import (
    EmbedderError,
    InvalidValue,
    MissingExtra,
    ModelError,
    NotOpen,
    OperationFailed,
    OverBudget,
    SchemaTooNew,
    SecondcallError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TooLarge,
    UnknownName,
    UsageError,
    UserErased,
    VersionConflict,
)
from secondcall.types import (
    Brief,
    Caller,
    Fact,
    FactKind,
    FactStatus,
    Item,
    ItemKey,
    ItemKind,
    JsonValue,
    Message,
    Metadata,
    Recalled,
    RecalledFact,
    RecalledItem,
    Receipt,
    Recorded,
    RecordedItem,
    Role,
    SessionSummary,
    ToolCall,
    Trust,
)

if TYPE_CHECKING:
    from secondcall.memory import Memory, SessionMemory, UserMemory
    from secondcall.sync import SyncMemory, SyncSession, SyncUser

__version__ = "0.1.0"

_AT_FIRST_USE = {
    "Memory": "secondcall.memory",
    "SessionMemory": "secondcall.memory",
    "SyncMemory": "secondcall.sync",
    "SyncSession": "secondcall.sync",
    "SyncUser": "secondcall.sync",
    "UserMemory": "secondcall.memory",
}
"""They bring numpy, which takes most of the time that importing takes."""

__all__ = [
    "Brief",
    "Caller",
    "EmbedderError",
    "Fact",
    "FactKind",
    "FactStatus",
    "InvalidValue",
    "Item",
    "ItemKey",
    "ItemKind",
    "JsonValue",
    "Memory",
    "Message",
    "Metadata",
    "MissingExtra",
    "ModelError",
    "NotOpen",
    "OperationFailed",
    "OverBudget",
    "Recalled",
    "RecalledFact",
    "RecalledItem",
    "Receipt",
    "Recorded",
    "RecordedItem",
    "Role",
    "SchemaTooNew",
    "SecondcallError",
    "SessionMemory",
    "SessionSummary",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "SyncMemory",
    "SyncSession",
    "SyncUser",
    "TooLarge",
    "ToolCall",
    "Trust",
    "UnknownName",
    "UsageError",
    "UserErased",
    "UserMemory",
    "VersionConflict",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_AT_FIRST_USE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_AT_FIRST_USE})
