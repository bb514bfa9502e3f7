"""How a call is remembered, and what is noted in it: what an application chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secondcall.adapters.livekit.attributes import CallerOptions
from secondcall.adapters.livekit.lookup import LookupOptions
from secondcall.adapters.livekit.window import WindowOptions

__all__ = ["CallNotes", "CallSettings"]


@dataclass
class CallNotes:
    """What is in ``session.userdata`` by default: notes of this call, by name."""

    notes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How a call is remembered; the defaults are right for most.

    The brief has ``max_tokens``, and it and the newest ``last_turns`` turns are loaded within
    ``preload_seconds``. ``caller`` says how the caller is found, ``lookup`` how memory is asked
    before a reply, ``window`` how large the context may become (``None``: as large as it gets). A
    call that comes within ``grace_seconds`` after the caller's last one continues its session,
    unless ``session_id`` says which it is. Without ``consent`` nothing is recorded until
    ``LiveCall.consent.give()``. ``journal`` is the folder of the local journal, ``False`` for none,
    ``True`` for the machine's own. Userdata live as long as the call, or ``userdata_ttl_seconds``
    after they were written (one number, or one by name, as ``ShortTermMemory`` has it);
    ``keep_userdata`` saves them with the session, a day long if nothing else is said. At its end a
    call waits ``end_seconds`` at most for the store; a worker is killed after ten.
    """

    max_tokens: int = 400
    last_turns: int = 0
    preload_seconds: float = 0.15
    caller: CallerOptions = field(default_factory=CallerOptions)
    lookup: LookupOptions = field(default_factory=LookupOptions)
    window: WindowOptions | None = field(default_factory=WindowOptions)
    session_id: str | None = None
    grace_seconds: float = 30.0
    consent: bool = True
    journal: bool | str | Path = True
    keep_userdata: bool = False
    userdata_ttl_seconds: float | Mapping[str, float | None] | None = None
    end_seconds: float = 6.0
