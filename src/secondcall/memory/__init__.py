"""Memory, user and session: the face of the library. Each verb chains steps of the rooms.

A handle reaches only its own data: ``Memory.open(url)`` one tenant, ``memory.user(...)`` one user,
``user.session(...)`` one session. ``docs/which-layer.md`` says which verb is for what.
"""

from __future__ import annotations

from secondcall.memory.session import SessionMemory
from secondcall.memory.stating import StateHandle
from secondcall.memory.tenant import Memory
from secondcall.memory.user import UserMemory

__all__ = ["Memory", "SessionMemory", "StateHandle", "UserMemory"]
