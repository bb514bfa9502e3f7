"""Gathers a request's context: conversation, states, brief, recalled items, at once and in time.

A session handle keeps what it read: as long as nothing but this handle's own items came into the
record, the conversation and the parts of the brief are those of the last time. Every other change
takes a change number that this handle did not give out, and with it both are read anew.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from secondcall import telemetry
from secondcall.checks import check_deadline, check_json, check_limit
from secondcall.context.assemble import FRAMING_TOKENS, Gathered, assemble
from secondcall.context.brief import BriefParts, compose
from secondcall.context.budget import TokenBudget
from secondcall.context.conversation import (
    Conversation,
    newest_question,
    newest_question_id,
)
from secondcall.context.status import NO_STATUS
from secondcall.errors import InvalidValue, OverBudget
from secondcall.memory.asking import LATE, Question, ask, clamp_query
from secondcall.memory.briefing import gather
from secondcall.memory.conversing import HeldConversation, as_conversation, kind_and_id
from secondcall.memory.following import reach
from secondcall.memory.metering import in_session
from secondcall.memory.standing import HeldStatus
from secondcall.shortterm.buffer import MAX_TOKEN_LIMIT
from secondcall.types import Brief, Item, ItemKey, Recalled

if TYPE_CHECKING:
    from secondcall.abc import Epoch, Scope, Written
    from secondcall.context.parts import Context
    from secondcall.memory.buffering import BufferedSession
    from secondcall.memory.shared import Place
    from secondcall.memory.user import UserMemory
    from secondcall.record.retain import Retention

    Task: TypeAlias = asyncio.Task[Any]

__all__ = ["Contextual", "Request", "check_request"]

_FRESH = timedelta(seconds=60)
"""How long parts are reused at most: facts begin and end, and items run out, by time alone."""
_SESSIONS = 3
_FACTS = 2_000
_KEPT_BRIEFS = 8
_KEPT_COUNTS = 64
_KEPT_TURNS = 4
_INNER = 0.9
_NO_QUESTION = "nobody has asked anything in this conversation yet"
_LATE_PARTS = BriefParts(missing=("facts", "sessions"))

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A checked ``context`` call."""

    question: str | None
    budget: TokenBudget
    system: str
    tools: Sequence[object]
    limit: int
    deadline_seconds: float | None


def check_request(
    question: object,
    *,
    window: int,
    reserve: int,
    system: object,
    tools: object,
    shares: Mapping[str, float] | None,
    limit: int,
    deadline_seconds: float | None,
) -> Request:
    """The call, checked. Raises: ``InvalidValue`` naming the field, ``OverBudget``."""
    if not isinstance(system, str):
        raise InvalidValue(f"system must be text, not {type(system).__name__}")
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise InvalidValue(f"tools must be a list of tools, not {type(tools).__name__}")
    return Request(
        question=None if question is None else clamp_query(question),  # pyright: ignore[reportArgumentType] - it checks
        budget=TokenBudget(window, reserve, shares),
        system=system,
        tools=[
            tool if isinstance(tool, str) else check_json(f"tools[{index}]", tool)
            for index, tool in enumerate(cast("Sequence[object]", tools))
        ],
        limit=check_limit("limit", limit, maximum=1_000),
        deadline_seconds=check_deadline(deadline_seconds),
    )


@dataclass(slots=True)
class _Seen:
    """How far the record was when the parts were read, under which policy, and when that was."""

    headers: dict[Scope, tuple[Epoch, int] | None]
    policy: Retention
    at: datetime


class Contextual:
    """What a session handle keeps between two requests for a context."""

    def __init__(self, user: UserMemory, place: Place, session_id: str) -> None:
        self._user = user
        self._place = place
        self._session_id = session_id
        self._reached: dict[Scope, tuple[Epoch, int] | None] = {}
        self._seen: _Seen | None = None
        self._parts: BriefParts | None = None
        self._briefs: dict[int, Brief] = {}
        self._status = HeldStatus(place, session_id)
        self._held = HeldConversation(user, place, session_id)
        self._counted: dict[str, int] = {}
        self._recalled: dict[tuple[str, str, int], tuple[_Seen | None, Recalled]] = {}

    @property
    def buffered(self) -> BufferedSession | None:
        """The buffer that holds the conversation, once there was a request for it."""
        return self._held.buffered

    def recorded(self, scope: Scope, written: Written) -> None:
        """See that this handle has just recorded something: no part of its brief changes by it, and
        nothing that was recalled, unless it is a correction."""
        if "corrected" in written.outcomes:
            self._recalled.clear()
        known = None if self._seen is None else self._seen.headers.get(scope)
        if self._seen is not None and known is not None and known[1] == written.first_change - 1:
            self._seen.headers[scope] = (known[0], written.change)

    async def context(self, request: Request, attached: BufferedSession | None) -> Context:
        """The context for one request; ``attached`` is the buffer that the host asked for."""
        started = time.perf_counter()
        with (
            telemetry.operation("context", store=self._place.shared.scheme) as span,
            in_session(self._session_id),
        ):
            context = await self._context(request, attached, started)
            span.set(**{f"tokens_{part}": count for part, count in context.tokens.items()})
            span.set(items=len(context.items), left_out=len(context.left_out), stale=context.stale)
            for part in context.missing:
                telemetry.count_late("context", part)
            for one in context.left_out:
                telemetry.count_left_out(one.layer, "oversized" if one.shortened else "dropped")
            return context

    async def _context(
        self, request: Request, attached: BufferedSession | None, started: float
    ) -> Context:
        budget, counter = request.budget, self._place.shared.counter
        system = self._count(request.system)
        tools = sum(self._count(tool) for tool in request.tools)
        share = budget.limits(system_tokens=system, tools_tokens=tools)["buffer"]
        if attached is not None:
            budget.check_buffer_limit(
                attached.buffer.token_limit, system_tokens=system, tools_tokens=tools
            )
        until = None if request.deadline_seconds is None else started + request.deadline_seconds
        looking = asyncio.ensure_future(self._look())
        conversing = asyncio.ensure_future(self._converse(looking, budget.window, attached))
        briefing = asyncio.ensure_future(self._brief_parts(looking, until))
        telling = asyncio.ensure_future(self._status.status(looking))
        recalling = asyncio.ensure_future(self._recall(conversing, request, share, until))
        sections: dict[str, Task] = {
            "buffer": conversing, "workflows": telling, "state": briefing, "recall": recalling
        }  # fmt: skip
        try:
            late = await _in_time(sections, until)
            conversation = _result(conversing, Conversation([], [], counter=counter))
            status = _result(telling, NO_STATUS)
            parts = _result(briefing, _LATE_PARTS)
            recalled = _result(recalling, Recalled(items=(), facts=(), text="", reason=LATE))
        finally:
            self._leave(looking, conversing, telling, briefing, recalling)
        if ("workflows" in late or parts.missing) and "state" not in late:
            late.append("state")
        if recalled.reason == LATE and "recall" not in late:
            late.append("recall")
        gathered = Gathered(
            conversation=conversation,
            status=status,
            brief=partial(self._brief, parts, started),
            recalled=recalled,
            keys=self._keys,
            system_tokens=system,
            tools_tokens=tools,
            missing=[name for name in ("buffer", "state", "recall") if name in late],
            started=started,
        )
        return assemble(gathered, budget, counter)

    def _leave(self, looking: Task, conversing: Task, *others: Task) -> None:
        """Stop what is late; the conversation is loaded to its end, for the next time."""
        for task in others:
            task.add_done_callback(_settled)
            task.cancel()
        if conversing.done():
            looking.add_done_callback(_settled)
            looking.cancel()
            _settled(conversing)
        else:
            self._place.shared.background.adopt(conversing)

    async def _look(self) -> None:
        """Drop what others have changed since the last time, and learn how far the record is."""
        place, now = self._place, self._place.shared.clock.now()
        found = await reach(place, (await place.look()).headers)
        policy = await place.retention()
        self._reached = dict(found)
        seen = self._seen
        same = seen is not None and seen.headers == found and seen.policy == policy
        if same and seen is not None and timedelta(0) <= now - seen.at < _FRESH:
            return
        self._seen = _Seen(found, policy, now)
        self._parts = None
        self._briefs.clear()

    async def _converse(
        self, looking: Task, window: int, attached: BufferedSession | None
    ) -> Conversation:
        await asyncio.shield(looking)
        if attached is not None:
            await attached.refresh(self._place, self._reached)
            return as_conversation(attached.buffer, self._place.shared.counter)
        return await self._held.conversation(min(window, MAX_TOKEN_LIMIT), self._reached)

    async def _brief_parts(self, looking: Task, until: float | None) -> BriefParts:
        """The parts of the brief without this session, which stands in the buffer."""
        await asyncio.shield(looking)
        if self._parts is not None:
            return self._parts
        seen = self._seen
        parts = await gather(
            self._place,
            deadline_seconds=_left(until),
            max_sessions=_SESSIONS + 1,
            max_facts=_FACTS,
        )
        others = [one for one in parts.sessions if one.session_id != self._session_id]
        parts = replace(parts, sessions=others[:_SESSIONS])
        if not parts.missing and seen is self._seen:
            self._parts = parts
            self._briefs.clear()
        return parts

    def _brief(self, parts: BriefParts, started: float, max_tokens: int) -> Brief:
        known = self._briefs.get(max_tokens) if parts is self._parts else None
        if known is None:
            shared = self._place.shared
            known = compose(
                parts,
                max_tokens=max_tokens,
                counter=shared.counter,
                now=shared.clock.now(),
                started=started,
            )
            if parts is self._parts:
                if len(self._briefs) >= _KEPT_BRIEFS:
                    self._briefs.clear()
                self._briefs[max_tokens] = known
        return known

    async def _recall(
        self,
        conversing: asyncio.Task[Conversation],
        request: Request,
        share: int,
        until: float | None,
    ) -> Recalled:
        """What was said before that answers the question and does not stand in the buffer; asked
        once for each turn, unless others change the record meanwhile."""
        conversation = await asyncio.shield(conversing)
        query = request.question
        if query is None:
            query = clamp_query(newest_question(conversation.items))
        if not query.strip():
            reason = _NO_QUESTION if request.question is None else "the question is empty"
            return Recalled(items=(), facts=(), text="", reason=reason)
        turn = (query, newest_question_id(conversation.items), request.limit)
        seen, found = self._recalled.get(turn, (None, None))
        before = self._seen  # others may look, and see more, while this asks
        if found is not None and seen is before:
            return found
        found = await self._ask(query, conversation, request.limit, share, until)
        if found.reason != LATE and not found.stale:
            while len(self._recalled) >= _KEPT_TURNS:
                del self._recalled[next(iter(self._recalled))]
            self._recalled[turn] = (before, found)
        return found

    async def _ask(
        self, query: str, conversation: Conversation, limit: int, share: int, until: float | None
    ) -> Recalled:
        try:
            shown = conversation.window(share).items
        except OverBudget:  # what is passed on to the buffer may still make room for it
            shown = conversation.items
        question = Question(
            query=query,
            limit=limit,
            at=self._place.shared.clock.now(),
            by="turn",
            where=None,
            kinds=None,
            roles=None,
            sessions=None,
            since=None,
            until=None,
            max_tokens=None,
            deadline_seconds=_left(until),
            told=self._keys(shown),
            neighbours="turn",
        )
        return await ask(self._place, question, time.perf_counter())

    def _keys(self, items: Sequence[Item]) -> Collection[ItemKey]:
        names = [self._place.user_id]
        if self._seen is not None:
            names = [scope.name for scope in self._seen.headers]
        return {
            ItemKey(name, self._session_id, kind, item_id)
            for name in names
            for kind, item_id in map(kind_and_id, items)
        }

    def _count(self, part: object) -> int:
        """The tokens of a text or a tool, counted once."""
        text = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
        if not text:
            return 0
        if text not in self._counted:
            if len(self._counted) >= _KEPT_COUNTS:
                self._counted.clear()
            self._counted[text] = self._place.shared.counter.count(text) + FRAMING_TOKENS
        return self._counted[text]


async def _in_time(sections: Mapping[str, Task], until: float | None) -> list[str]:
    """Wait for the sections; the names of those that are late."""
    timeout = None if until is None else max(0.0, until - time.perf_counter())
    _, late = await asyncio.wait(sections.values(), timeout=timeout)
    return [name for name, task in sections.items() if task in late]


def _left(until: float | None) -> float | None:
    """What is left of the time, less what it takes to put the parts together."""
    return None if until is None else max(0.0, _INNER * (until - time.perf_counter()))


def _result(task: asyncio.Task[T], otherwise: T) -> T:
    return task.result() if task.done() else otherwise


def _settled(task: Task) -> None:
    """Look at a task's error, so that nobody is warned of one that was not looked at."""
    if task.done() and not task.cancelled():
        task.exception()
