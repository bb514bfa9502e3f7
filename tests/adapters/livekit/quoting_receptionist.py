"""The example's receptionist with a model that can only quote its memory, for fresh processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from example_agents import example, in_text

from secondcall.testing.livekit import ScriptedLLM
from secondcall.testing.livekit_demo import quote_memory

__all__ = ["server"]


def _models() -> dict[str, Any]:
    return in_text(ScriptedLLM(quote_memory))


_receptionist = example("receptionist")
_receptionist.models = _models
# The checker calls again at once, and means another call.
_receptionist.settings = replace(_receptionist.settings, grace_seconds=0)

server = _receptionist.server
