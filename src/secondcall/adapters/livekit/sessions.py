"""The agents' sessions of one call: mostly one, sometimes several, at once or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from livekit.agents import AgentSession, CloseEvent, CloseReason, llm

__all__ = ["CallSessions"]

_ENDED_ON_PURPOSE = (CloseReason.USER_INITIATED, CloseReason.TASK_COMPLETED)


class CallSessions:
    """Which sessions a call has had, and which are open."""

    def __init__(self) -> None:
        self._open: list[AgentSession[Any]] = []
        self._closed: list[AgentSession[Any]] = []
        self.on_purpose = False
        """Whether the agent, and not the caller, ended the one that was closed last."""

    @property
    def open(self) -> list[AgentSession[Any]]:
        """Those that go on, in the order in which they began."""
        return list(self._open)

    @property
    def is_running(self) -> bool:
        """Whether one is open."""
        return bool(self._open)

    @property
    def is_over(self) -> bool:
        """Whether there was one, and none is open."""
        return bool(self._closed) and not self._open

    def enter(self, session: AgentSession[Any]) -> bool:
        """A session begins, perhaps again; false if it goes on already."""
        if any(one is session for one in self._open):
            return False
        self._closed = [one for one in self._closed if one is not session]
        self._open.append(session)
        self.on_purpose = False
        session.on("close", self._closing_of(session))
        return True

    def newest_words(self) -> llm.ChatMessage | None:
        """What the caller said last."""
        found: llm.ChatMessage | None = None
        for session in (*self._closed, *self._open):
            for one in reversed(session.history.items):
                if one.type == "message" and one.role == "user":
                    if found is None or one.created_at >= found.created_at:
                        found = one
                    break
        return found

    def _closing_of(self, session: AgentSession[Any]) -> Callable[[CloseEvent], None]:
        def closed(event: CloseEvent) -> None:
            session.off("close", closed)
            if any(one is session for one in self._open):
                self._open = [one for one in self._open if one is not session]
                self._closed.append(session)
                self.on_purpose = event.reason in _ENDED_ON_PURPOSE

        return closed
