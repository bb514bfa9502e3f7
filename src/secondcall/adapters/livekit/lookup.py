"""The lookup on the way to a reply: once per user message, in time or not at all.

It never raises and never waits longer than its deadline. After several misses in a row it stands
back for a while, so that a store that is slow or down costs a call next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from livekit.agents import llm

from secondcall import telemetry
from secondcall.adapters.livekit.chat import memory_message
from secondcall.adapters.livekit.utterance import Utterance, words_of
from secondcall.checks import check_limit
from secondcall.context.answer import answer, without
from secondcall.errors import InvalidValue
from secondcall.registry import default_counter
from secondcall.types import ItemKey, Recalled, RecalledItem

if TYPE_CHECKING:
    from secondcall.abc import TokenCounter
    from secondcall.memory.user import UserMemory
    from secondcall.types import Brief, RecordedItem

__all__ = ["Lookup", "LookupOptions"]

_log = logging.getLogger("secondcall.livekit")
_JUST_BEFORE_SECONDS = 1e-6
_IN_RECALL = 0.9
"""The part of the deadline that recall itself has; with the rest what it found is rendered."""
_MAX_QUERY_CHARACTERS = 2_000
_MAX_WORDS_CHARACTERS = 4_000
"""Of a turn its last so many are compared with what was heard of it."""
_MIN_EARLY_LETTERS = 6
_EARLY_SECONDS = 1.0
_HEARD_SECONDS = 0.03
"""After words were heard, until they are looked up: a recogniser gives several versions at once,
and LiveKit has to begin the reply, and to wait for the end of the turn, before anything else."""
_GIVEN_UP_SECONDS = 5.0
_STALE_SECONDS = 15.0
_KEPT_TURNS = 16
_CATCH_UP_SECONDS = 0.05
"""After a reply, until what was recorded of it has reached the store, in nearly every call."""
_ON_ITS_WAY_SECONDS = 0.02
"""From the answer of memory until the model has it, in nearly every call."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """How memory is looked up for what the caller says.

    A reply waits for it ``deadline_seconds`` at most. Of what is found, ``limit`` turns and facts
    each are told, in ``max_tokens``. After ``misses`` in a row (late, or failed) nothing is looked
    up for ``cool_down_seconds``. With ``prefetch`` it begins while the caller is speaking.
    ``where`` is the place: ``llm_node`` covers speech, typed text and ``run()``, and keeps the
    reply that was begun early; ``hook`` puts what is found for spoken turns into the ``turn_ctx``
    of ``on_user_turn_completed``, where your own hook sees it, and costs that early reply.

    Raises: ``InvalidValue`` naming the field.
    """

    deadline_seconds: float = 0.2
    limit: int = 3
    max_tokens: int = 400
    misses: int = 2
    cool_down_seconds: float = 10.0
    prefetch: bool = True
    where: Literal["llm_node", "hook"] = "llm_node"

    def __post_init__(self) -> None:
        if not 0 < self.deadline_seconds <= 10:
            raise InvalidValue(
                f"deadline_seconds is {self.deadline_seconds!r}, expected more than 0 and at most "
                "10: the caller waits for it in silence"
            )
        if not self.cool_down_seconds >= 0:
            raise InvalidValue(
                f"cool_down_seconds is {self.cool_down_seconds!r}, expected 0 or more"
            )
        check_limit("limit", self.limit)
        check_limit("max_tokens", self.max_tokens)
        check_limit("misses", self.misses)
        if self.where not in ("llm_node", "hook"):
            raise InvalidValue(f"where is {self.where!r}, expected 'llm_node' or 'hook'")


@dataclass(slots=True, eq=False)
class _Search:
    """One question under way. ``utterance`` is the number of the turn that it was begun in."""

    words: tuple[str, ...]
    task: asyncio.Task[Recalled]
    utterance: int
    began: float


@dataclass(slots=True, eq=False)
class _Turn:
    """What was looked up for one user message; ``until`` is how long a reply waits for it."""

    search: _Search | None
    until: float
    judged: bool = False


class Lookup:
    """The lookups of one call. ``user`` is ``None`` where there is no memory to look into."""

    def __init__(
        self,
        user: UserMemory | None,
        options: LookupOptions | None = None,
        *,
        session_id: str | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.mark = secrets.token_hex(8)
        """Tells what was told of this memory from what was told of another."""
        self._user = user
        self._options = LookupOptions() if options is None else options
        self._session_id = session_id
        self._counter = counter
        self._counts_itself = counter is not None
        self._turns: OrderedDict[str, _Turn] = OrderedDict()
        self._running: set[asyncio.Task[Recalled]] = set()
        self._early: _Search | None = None
        self._next_early: str | None = None
        self._heard = ""
        self._listening: asyncio.TimerHandle | None = None
        self._utterance = Utterance()
        self._committed: str | None = None
        self._misses = 0
        self._cool_until = 0.0
        self._asked = 0
        self._opened = datetime.now(UTC)
        self._begins: datetime | None = None
        self._warm = False
        self._told: frozenset[ItemKey | str] = frozenset()
        self._catching_up: asyncio.TimerHandle | None = None
        self.searches = 0
        """How often memory was asked, early questions included."""

    @property
    def options(self) -> LookupOptions:
        """How it looks up."""
        return self._options

    @property
    def counter(self) -> TokenCounter:
        """What counts tokens; the shipped vocabulary's by default."""
        if self._counter is None:
            self._counter = default_counter()
        return self._counter

    @property
    def cooling(self) -> bool:
        """Whether it stands back after misses."""
        return perf_counter() < self._cool_until

    @property
    def running(self) -> bool:
        """Whether memory is being asked just now."""
        return bool(self._running)

    def told(self, brief: Brief | None, turns: Sequence[RecordedItem] = ()) -> None:
        """What the agents know already, from the brief and from restored turns: it is not told
        again."""
        told = set[ItemKey | str](one.key for one in turns)
        if brief is not None:
            told.update(fact.id for fact in (*brief.promises, *brief.issues, *brief.facts))
            told.update(one.key for one in brief.last_words)
        self._told = frozenset(told)

    def hear(self, text: str, *, final: bool) -> None:
        """Words as the recogniser gives them; begins to look them up."""
        if self._options.prefetch:
            loop = asyncio.get_running_loop()
            self._heard = self._utterance.hear(text, final=final, at=loop.time())
            if self._listening is None:
                self._listening = loop.call_later(_HEARD_SECONDS, self._look_up_heard)

    def committed(self, message_id: str) -> None:
        """A user message came into the conversation: what is heard from now on is the next."""
        self._committed = message_id
        self._heard_enough()
        self._utterance.over()

    def prefetch(self, interim_text: str) -> None:
        """Begin to look up what is being said; one question at a time, the newest words next."""
        words = words_of(interim_text)
        if self._off() or sum(map(len, words)) < _MIN_EARLY_LETTERS:
            return
        early = self._early
        if early is not None and early.utterance == self._utterance.number:
            if early.words == words:
                self._next_early = None
                return
            if not early.task.done():
                self._next_early = interim_text
                return
        self._early = self._search(interim_text, words, _EARLY_SECONDS)
        self._early.task.add_done_callback(self._go_on)

    async def for_turn(
        self, message: llm.ChatMessage, *, since: float | None = None
    ) -> llm.ChatMessage | None:
        """What memory has for a user message, to be placed before it; ``None`` when nothing is
        found or not in time. Asked again for the same message it asks memory nothing.

        ``since`` is when the conversation in the context begins: what this call holds from then on
        stands there already.
        """
        self._begins = None if since is None else datetime.fromtimestamp(since, UTC)
        try:
            found = await self._found(message)
        except Exception as error:  # a reply must never fail for its memory
            self._miss(type(error).__name__)
            return None
        if found is None:
            return None
        text = self._text(found, message)
        if not text:
            return None
        before = message.created_at - _JUST_BEFORE_SECONDS
        return memory_message(text, created_at=before, kind="lookup", key=message.id)

    async def idle(self) -> None:
        """Return when memory is not being asked, at the latest when a reply would no longer wait
        for it, and what was told has had a moment to reach the model."""
        until = perf_counter() + self._options.deadline_seconds
        while self._running and (left := until - perf_counter()) > 0:
            await asyncio.wait(set(self._running), timeout=left)
        await asyncio.sleep(_ON_ITS_WAY_SECONDS)

    def warm(self) -> None:
        """Load what counts tokens, in a thread, before a reply has to wait for it."""
        if not self._warm:
            self._warm = True
            asyncio.get_running_loop().run_in_executor(None, self.counter.count, "warm")

    def rest(self) -> None:
        """Nobody waits just now: take into the index what was recorded since the last question, or
        the next reply waits for that, and for searching twice. A call without questions asks none.
        """
        self._no_rest()
        if self._asked and not self._off():
            loop = asyncio.get_running_loop()
            self._catching_up = loop.call_later(_CATCH_UP_SECONDS, self._catch_up)

    def known(self, message: llm.ChatMessage) -> bool:
        """Whether it was asked for this message before."""
        return message.id in self._turns

    def cancel(self) -> None:
        """End what is still running."""
        self._no_rest()
        self._heard_enough()
        for task in self._running:
            task.cancel()

    def _look_up_heard(self) -> None:
        self._listening = None
        self.prefetch(self._heard)

    def _heard_enough(self) -> None:
        """Look up no more of what was heard so far."""
        self._next_early = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None

    def _off(self) -> bool:
        return self._user is None or self.cooling

    async def _found(self, message: llm.ChatMessage) -> Recalled | None:
        turn = self._turns.get(message.id)
        if turn is None:
            turn = self._begin(message)
        search = turn.search
        if search is None:
            return None
        left = turn.until - perf_counter()
        if not search.task.done() and left > 0:
            await asyncio.wait({search.task}, timeout=left)
        return self._result(turn, search)

    def _begin(self, message: llm.ChatMessage) -> _Turn:
        text = (message.text_content or "")[-_MAX_WORDS_CHARACTERS:].strip()
        search: _Search | None = None
        if text and not self._off():
            words = words_of(text)
            search = self._taken(words, message.id)
            if search is None:
                search = self._search(text, words, self._options.deadline_seconds * _IN_RECALL)
                if message.id != self._committed:
                    self._early = search
        self._asked += 1
        turn = _Turn(search, perf_counter() + self._options.deadline_seconds)
        self._turns[message.id] = turn
        while len(self._turns) > _KEPT_TURNS:
            self._turns.popitem(last=False)
        return turn

    def _taken(self, words: tuple[str, ...], message_id: str) -> _Search | None:
        """What was begun early, if it was for these words of this very turn."""
        early = self._early
        self._heard_enough()
        number = self._utterance.number - (1 if message_id == self._committed else 0)
        if early is None or early.utterance != number or early.words != words:
            return None
        if early.task.done() and (early.task.cancelled() or early.task.exception() is not None):
            return None
        return early if perf_counter() - early.began < _STALE_SECONDS else None

    def _search(self, text: str, words: tuple[str, ...], seconds: float) -> _Search:
        self._no_rest()
        self.searches += 1
        task = self._run(self._ask(text, seconds))
        return _Search(words, task, self._utterance.number, perf_counter())

    def _run(self, work: Coroutine[Any, Any, Recalled]) -> asyncio.Task[Recalled]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _catch_up(self) -> None:
        if not (self._running or self._off()):
            self._run(self._found_nothing())

    def _no_rest(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None

    async def _found_nothing(self) -> Recalled:
        """A question whose answer nobody reads: its worth is what is looked at for it."""
        assert self._user is not None
        async with asyncio.timeout(_GIVEN_UP_SECONDS):
            return await self._user.recall("anything new", limit=1, until=_NEVER)

    async def _ask(self, text: str, seconds: float) -> Recalled:
        assert self._user is not None
        async with asyncio.timeout(max(seconds, _GIVEN_UP_SECONDS)):
            return await self._user.recall(
                text[-_MAX_QUERY_CHARACTERS:],
                limit=self._options.limit,
                by="turn",
                neighbours="turn",
                apart_from=self._here(),
                told=self._told,
                max_tokens=self._options.max_tokens,
                deadline_seconds=seconds,
            )

    def _here(self) -> tuple[str, datetime] | None:
        """What the model is given anyway as this call's own words."""
        if self._session_id is None:
            return None
        return self._session_id, self._opened if self._begins is None else self._begins

    def _ended(self, task: asyncio.Task[Recalled]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it sees it; nobody may

    def _go_on(self, _: asyncio.Task[Recalled]) -> None:
        waiting, self._next_early = self._next_early, None
        if waiting is not None:
            self.prefetch(waiting)

    def _result(self, turn: _Turn, search: _Search) -> Recalled | None:
        """What was found; a miss counts once a message."""
        task, first = search.task, not turn.judged
        turn.judged = True
        failed: str | None = None
        if not task.done():
            failed = "late"
        elif task.cancelled():
            failed = "cancelled"
        elif (error := task.exception()) is not None:
            failed = type(error).__name__
        if failed is None:
            found = task.result()
            late = found.stale and not (found.items or found.facts)
            if not late:
                self._misses = 0 if first else self._misses
                return found
            failed = "late"
        if first:
            self._miss(failed)
        return None

    def _miss(self, why: str) -> None:
        self._misses += 1
        cooled = self._misses >= self._options.misses
        if cooled:
            self._cool_until = perf_counter() + self._options.cool_down_seconds
        telemetry.count_late("recall", "lookup")
        _log.warning(
            "memory was not looked up in time; the reply goes on without it",
            extra={
                "reason": why,
                "misses": self._misses,
                "cool_down_seconds": self._options.cool_down_seconds if cooled else 0.0,
            },
        )

    def _text(self, found: Recalled, message: llm.ChatMessage) -> str:
        """What was found as it is told, without what came into the conversation meanwhile."""
        items = self._unknown(found.items, message)
        facts = [one for one in found.facts if one.fact.id not in self._told]
        if not (items or facts):
            return ""
        whole = items == list(found.items) and len(facts) == len(found.facts)
        if whole and not self._counts_itself:
            return found.text
        return answer(
            items,
            facts,
            max_tokens=self._options.max_tokens,
            counter=self.counter,
            reason=None,
            withheld=found.withheld,
            stale=found.stale,
            started=perf_counter(),
        ).text

    def _unknown(
        self, items: Sequence[RecalledItem], message: llm.ChatMessage
    ) -> list[RecalledItem]:
        """The items without the parts that the model is given anyway."""
        found: list[RecalledItem] = []
        for one in items:
            parts = (one, *one.before, *one.after)
            known = {part.key for part in parts if self._is_known(part.key, part.at, message)}
            if known:
                one = without(one, known)
            if one.before or one.after or one.key not in known:
                found.append(one)
        return found

    def _is_known(self, key: ItemKey, at: datetime, message: llm.ChatMessage) -> bool:
        """Whether the model is given this anyway: as the message itself, from the brief or restored
        turns, or as this call's own words."""
        if key.id == message.id or key in self._told:
            return True
        same = key.session_id == self._session_id
        return same and (self._begins is None or at >= self._begins)
