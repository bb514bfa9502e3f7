"""Memory and state for AI agents that outlives the session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from secondcall.errors import (
    EmbedderError,
    GuardFailed,
    IllegalTransition,
    InvalidValue,
    MissingExtra,
    MissingSlots,
    ModelError,
    NotConfirmed,
    NotOpen,
    OperationFailed,
    OverBudget,
    SchemaTooNew,
    SecondcallError,
    StateError,
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
    Belief,
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
    Recap,
    RecapKind,
    RecapPart,
    Receipt,
    Recorded,
    RecordedItem,
    Role,
    SessionSummary,
    ToolCall,
    Trust,
)
from secondcall.usage import Usage, UsageCall, UsageTotal

if TYPE_CHECKING:
    from secondcall.adapters import livekit, llama_index
    from secondcall.context.budget import TokenBudget
    from secondcall.context.chat import messages_from_items, system_text
    from secondcall.context.parts import Context, LeftOut
    from secondcall.memory import Memory, SessionMemory, StateHandle, UserMemory
    from secondcall.memory.keeping import KeptShortTerm
    from secondcall.named import configure
    from secondcall.record.messages import items_from_messages
    from secondcall.shortterm.buffer import ChatBuffer
    from secondcall.shortterm.report import BufferReport, ItemReport
    from secondcall.shortterm.snapshot import Dropped, Restored, Snapshot
    from secondcall.shortterm.userdata import ShortTermMemory
    from secondcall.state import AgentState, Retry, Slot, Step, To, Workflow
    from secondcall.sync import SyncMemory, SyncSession, SyncShortTerm, SyncState, SyncUser
    from secondcall.tools import MemoryTools, StateTools, Tool

__version__ = "0.1.0"

_AT_FIRST_USE = {
    "AgentState": "secondcall.state",
    "BufferReport": "secondcall.shortterm.report",
    "ChatBuffer": "secondcall.shortterm.buffer",
    "Context": "secondcall.context.parts",
    "Dropped": "secondcall.shortterm.snapshot",
    "ItemReport": "secondcall.shortterm.report",
    "KeptShortTerm": "secondcall.memory.keeping",
    "LeftOut": "secondcall.context.parts",
    "Memory": "secondcall.memory",
    "MemoryTools": "secondcall.tools",
    "Restored": "secondcall.shortterm.snapshot",
    "Retry": "secondcall.state",
    "SessionMemory": "secondcall.memory",
    "ShortTermMemory": "secondcall.shortterm.userdata",
    "Slot": "secondcall.state",
    "Snapshot": "secondcall.shortterm.snapshot",
    "StateHandle": "secondcall.memory",
    "StateTools": "secondcall.tools",
    "Step": "secondcall.state",
    "SyncMemory": "secondcall.sync",
    "SyncSession": "secondcall.sync",
    "SyncShortTerm": "secondcall.sync",
    "SyncState": "secondcall.sync",
    "SyncUser": "secondcall.sync",
    "To": "secondcall.state",
    "TokenBudget": "secondcall.context.budget",
    "Tool": "secondcall.tools",
    "UserMemory": "secondcall.memory",
    "Workflow": "secondcall.state",
    "configure": "secondcall.named",
    "items_from_messages": "secondcall.record.messages",
    "livekit": "secondcall.adapters.livekit",
    "llama_index": "secondcall.adapters.llama_index",
    "messages_from_items": "secondcall.context.chat",
    "system_text": "secondcall.context.chat",
}
"""They bring numpy, or much of the package: most of the time that importing takes."""
_ADAPTERS = frozenset({"livekit", "llama_index"})

__all__ = [
    "AgentState",
    "Belief",
    "Brief",
    "BufferReport",
    "Caller",
    "ChatBuffer",
    "Context",
    "Dropped",
    "EmbedderError",
    "Fact",
    "FactKind",
    "FactStatus",
    "GuardFailed",
    "IllegalTransition",
    "InvalidValue",
    "Item",
    "ItemKey",
    "ItemKind",
    "ItemReport",
    "JsonValue",
    "KeptShortTerm",
    "LeftOut",
    "Memory",
    "MemoryTools",
    "Message",
    "Metadata",
    "MissingExtra",
    "MissingSlots",
    "ModelError",
    "NotConfirmed",
    "NotOpen",
    "OperationFailed",
    "OverBudget",
    "Recalled",
    "RecalledFact",
    "RecalledItem",
    "Recap",
    "RecapKind",
    "RecapPart",
    "Receipt",
    "Recorded",
    "RecordedItem",
    "Restored",
    "Retry",
    "Role",
    "SchemaTooNew",
    "SecondcallError",
    "SessionMemory",
    "SessionSummary",
    "ShortTermMemory",
    "Slot",
    "Snapshot",
    "StateError",
    "StateHandle",
    "StateTools",
    "Step",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "SyncMemory",
    "SyncSession",
    "SyncShortTerm",
    "SyncState",
    "SyncUser",
    "To",
    "TokenBudget",
    "TooLarge",
    "Tool",
    "ToolCall",
    "Trust",
    "UnknownName",
    "Usage",
    "UsageCall",
    "UsageError",
    "UsageTotal",
    "UserErased",
    "UserMemory",
    "VersionConflict",
    "Workflow",
    "__version__",
    "configure",
    "items_from_messages",
    "livekit",
    "llama_index",
    "messages_from_items",
    "system_text",
]


def __getattr__(name: str) -> object:
    if name not in _AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_AT_FIRST_USE[name])
    value: object = module if name in _ADAPTERS else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_AT_FIRST_USE})
