"""What a call starts with: the brief, and the last turns if asked for, loaded once before it.

Loading is over when its deadline is: what is there by then is used, and a store that is slow, down
or broken costs the call nothing but its memory. Both are logged and counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from livekit.agents import llm

from secondcall import telemetry
from secondcall.adapters.livekit.chat import (
    LONGEST_CHARACTERS,
    arguments_json,
    chat_items_of,
    is_memory,
    memory_message,
)
from secondcall.checks import check_deadline, check_limit
from secondcall.context.render import fence, item_line
from secondcall.types import Brief, Message, RecordedItem

if TYPE_CHECKING:
    from secondcall.memory.user import UserMemory

__all__ = ["Preloaded", "preload"]

T = TypeVar("T")

_log = logging.getLogger("secondcall.livekit")
_BRIEF_SHARE = 0.8
"""Of the deadline: a brief that is cut off in time still has the parts that were read."""
_MAX_ITEMS = 200
_MAX_CHARACTERS = 12_000
"""Of all restored turns together; older ones are left out whole."""
_STEP_SECONDS = 1e-3
_left: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """What was loaded. ``missing`` says which parts are not there and why, e.g. ``"brief:
    deadline"``; ``at`` is when loading began, in seconds since 1970, and everything given to a
    context is older."""

    brief: Brief | None = None
    turns: Sequence[RecordedItem] = ()
    missing: str | None = None
    seconds: float = 0.0
    at: float = 0.0

    def context(
        self,
        base: llm.ChatContext | None = None,
        *,
        tools: Collection[str] | None = None,
        plain: bool = False,
    ) -> llm.ChatContext:
        """A new context: the instructions of ``base``, what is remembered, the rest of ``base``.

        ``tools`` are the names of those that the agent has, to tell calls of others in words.
        With ``plain`` the last turns are told in words too, as realtime models need it. What
        memory put into ``base`` before is replaced, never doubled.
        """
        items = [] if base is None else base.items
        given = [one for one in items if not is_memory(one)]
        split = _end_of_instructions(given)
        times = [one.created_at for one in given[split:]]
        before = min([self.at or time.time(), *times])
        loaded = self._plain(before) if plain else self._items(before, tools)
        return llm.ChatContext([*given[:split], *loaded, *given[split:]])

    def _items(self, before: float, tools: Collection[str] | None) -> list[llm.ChatItem]:
        items: list[llm.ChatItem] = []
        if self.turns:
            note = fence([_end_note(self.turns[-1])])
            end = memory_message(note, created_at=before - _STEP_SECONDS, kind="turns")
            items = [*chat_items_of(self.turns, before=end.created_at, tools=tools), end]
        if self.brief is not None and self.brief.text:
            first = items[0].created_at if items else before
            created_at = first - _STEP_SECONDS
            items.insert(0, memory_message(self.brief.text, created_at=created_at, kind="brief"))
        return items

    def _plain(self, before: float) -> list[llm.ChatItem]:
        texts = [] if self.brief is None or not self.brief.text else [self.brief.text]
        if self.turns:
            lines = [item_line(one.item, one.at) for one in self.turns]
            texts.append(fence([*lines, _end_note(self.turns[-1])]))
        if not texts:
            return []
        created_at = before - _STEP_SECONDS
        return [memory_message("\n".join(texts), created_at=created_at, kind="brief")]


async def preload(
    user: UserMemory,
    *,
    deadline_seconds: float = 0.15,
    max_tokens: int = 400,
    last_turns: int = 0,
) -> Preloaded:
    """The brief of ``user`` within ``max_tokens``, and the ``last_turns`` turns, read side by side
    in at most ``deadline_seconds`` together.

    Fails open: what could not be read is named in ``missing``, logged and counted.

    Raises: ``InvalidValue`` for a wrong argument.
    """
    limit = check_deadline(deadline_seconds)
    check_limit("max_tokens", max_tokens)
    check_limit("last_turns", last_turns, minimum=0, maximum=50)
    at, started = time.time(), time.perf_counter()
    share = None if limit is None else limit * _BRIEF_SHARE
    work: dict[str, Coroutine[Any, Any, Any]] = {
        "brief": user.brief(max_tokens=max_tokens, deadline_seconds=share)
    }
    if last_turns:
        work["turns"] = _last_turns(user, last_turns)
    found, problems = await _in_time(work, limit)
    brief: Brief | None = found.get("brief")
    if brief is not None and brief.missing:
        problems += [f"{part}: deadline" for part in brief.missing]
    seconds = time.perf_counter() - started
    if problems:
        _log.warning(
            "a call starts with less memory than there is",
            extra={"missing": problems, "ms": round(1e3 * seconds, 1)},
        )
    return Preloaded(
        brief=brief,
        turns=found.get("turns", ()),
        missing=", ".join(problems) or None,
        seconds=seconds,
        at=at,
    )


async def _in_time(
    work: dict[str, Coroutine[Any, Any, Any]], limit: float | None
) -> tuple[dict[str, Any], list[str]]:
    """What the parts gave, and what is missing. A part that is late is left behind, not waited
    for: a store's thread cannot be cancelled."""
    tasks = {name: asyncio.ensure_future(one) for name, one in work.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=limit)
    finally:
        for task in tasks.values():
            if not task.done():
                _leave(task)
    found: dict[str, Any] = {}
    problems: list[str] = []
    for name, task in tasks.items():
        if task in _left:
            telemetry.count_late("preload", name)
            problems.append(f"{name}: deadline")
            continue
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            problems.append(f"{name}: {type(error).__name__}")
        else:
            found[name] = task.result()
    return found, problems


def _leave(task: asyncio.Future[Any]) -> None:
    if isinstance(task, asyncio.Task):
        _left.add(task)
        task.add_done_callback(_gone)
    task.cancel()


def _gone(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # seen: otherwise asyncio prints it, with whatever its text holds


async def _last_turns(user: UserMemory, wanted: int) -> list[RecordedItem]:
    """The newest turns, oldest first, those of one conversation together."""
    newest: list[RecordedItem] = []
    async for item in user.items(newest_first=True):
        newest.append(item)
        if _begins_turn(item):
            wanted -= 1
        if wanted == 0 or len(newest) == _MAX_ITEMS:
            break
    conversations: dict[tuple[str, str], list[RecordedItem]] = {}
    for item in newest:
        conversations.setdefault((item.key.user_id, item.key.session_id), []).append(item)
    ordered = [item for one in conversations.values() for item in one]
    return _fitted(ordered)


def _fitted(newest_first: Sequence[RecordedItem]) -> list[RecordedItem]:
    """As many whole turns as fit; of a newest one that does not fit alone, what does."""
    kept: list[RecordedItem] = []
    turn: list[RecordedItem] = []
    left = _MAX_CHARACTERS
    for item in newest_first:
        turn.append(item)
        if _begins_turn(item):
            left -= sum(map(_size, turn))
            if left < 0:
                return (kept or _cut(turn))[::-1]
            kept += turn
            turn = []
    return kept[::-1]


def _cut(newest_first: Sequence[RecordedItem]) -> list[RecordedItem]:
    """The words that a turn began with, and of the rest the newest, newest first."""
    *rest, question = newest_first
    left = _MAX_CHARACTERS - min(_size(question), LONGEST_CHARACTERS)
    kept: list[RecordedItem] = []
    for item in rest:
        left -= min(_size(item), 2 * LONGEST_CHARACTERS)
        if left < 0:
            break
        kept.append(item)
    return [*kept, question]


def _begins_turn(item: RecordedItem) -> bool:
    return isinstance(item.item, Message) and item.item.role == "user"


def _size(item: RecordedItem) -> int:
    if isinstance(item.item, Message):
        return len(item.item.text)
    return len(arguments_json(item.item)) + len(item.item.output or "")


def _end_of_instructions(items: Sequence[llm.ChatItem]) -> int:
    for position, one in enumerate(items):
        if not isinstance(one, llm.ChatMessage) or one.role not in ("system", "developer"):
            return position
    return len(items)


def _end_note(last: RecordedItem) -> str:
    return f"- The turns above end at {last.at:%Y-%m-%d %H:%M} UTC, before this call."
