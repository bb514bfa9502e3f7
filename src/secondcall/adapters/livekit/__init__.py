"""LiveKit Agents: a voice agent that knows the caller before the first word.

``call`` is the whole: who calls, what is known of them, what is said, and the end. Its parts stand
alone too; ``docs/how-to/livekit.md`` shows both.
"""

from __future__ import annotations

from secondcall.adapters.livekit.agent import (
    MemoryAgent,
    attach_memory,
    handoff_context,
    with_memory,
)
from secondcall.adapters.livekit.attributes import CallerOptions
from secondcall.adapters.livekit.call import LiveCall, call
from secondcall.adapters.livekit.caller import CallerWatch, ResolvedCaller, resolve_caller
from secondcall.adapters.livekit.consent import Consent
from secondcall.adapters.livekit.ending import Ending, on_session_end
from secondcall.adapters.livekit.lookup import LookupOptions
from secondcall.adapters.livekit.preload import Preloaded, preload
from secondcall.adapters.livekit.recording import Finished, Recorder
from secondcall.adapters.livekit.replay import Journals, replay
from secondcall.adapters.livekit.settings import CallNotes, CallSettings
from secondcall.adapters.livekit.source import CallMemory, MemorySource
from secondcall.adapters.livekit.tools import StateSchemas, function_tools
from secondcall.adapters.livekit.window import WindowOptions

__all__ = [
    "CallMemory",
    "CallNotes",
    "CallSettings",
    "CallerOptions",
    "CallerWatch",
    "Consent",
    "Ending",
    "Finished",
    "Journals",
    "LiveCall",
    "LookupOptions",
    "MemoryAgent",
    "MemorySource",
    "Preloaded",
    "Recorder",
    "ResolvedCaller",
    "StateSchemas",
    "WindowOptions",
    "attach_memory",
    "call",
    "function_tools",
    "handoff_context",
    "on_session_end",
    "preload",
    "replay",
    "resolve_caller",
    "with_memory",
]
