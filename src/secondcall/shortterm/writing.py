"""Has a summary written, checks it, has it repaired, and falls back to choosing sentences.

A summariser may be late, raise, answer nothing, too much, or something else altogether: what comes
out of here is always a text that fits, or word that it is to be tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from anyio.to_thread import run_sync as to_thread

from secondcall.shortterm.keyfacts import KeyFact
from secondcall.shortterm.screening import cut_at_sentence, is_foreign, lost_facts, struck
from secondcall.shortterm.summarizers import ExtractiveSummarizer, Summarizer

if TYPE_CHECKING:
    from secondcall.abc import Clock, TokenCounter

__all__ = ["SummaryWriter", "Written"]

MAX_REPAIRS = 2
MAX_TRIES = 3
_MAX_WAIT_SECONDS = 60.0
_MAX_KEEP = 60

_log = logging.getLogger("secondcall")


class Written(NamedTuple):
    """A summary that was checked, and whether a model wrote it or sentences were chosen."""

    text: str
    made_by: str


class SummaryWriter:
    """Asks a summariser within a deadline; after three failures in a row it chooses sentences."""

    def __init__(
        self,
        summarizer: Summarizer | None,
        counter: TokenCounter,
        *,
        clock: Clock,
        deadline_seconds: float,
    ) -> None:
        self._extractive = ExtractiveSummarizer(counter)
        self._summarizer = None if isinstance(summarizer, ExtractiveSummarizer) else summarizer
        self._count = counter.count
        self._clock = clock
        self._deadline = deadline_seconds
        self._failures = 0
        self._not_before: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether the summariser failed so recently that it is not asked again yet."""
        return self._not_before is not None and self._clock.now() < self._not_before

    @property
    def chooses(self) -> bool:
        """Whether sentences are chosen, by nature or while the summariser is left alone."""
        return self._summarizer is None or self.waits

    async def write(
        self, source: str, facts: Sequence[KeyFact], max_tokens: int, *, patient: bool
    ) -> Written | None:
        """A summary of what was said; ``None`` when it failed and is worth trying again later,
        which only a ``patient`` caller is told."""
        if self._summarizer is None:
            return await self._chosen(source, facts, max_tokens)
        keep = [fact.text for fact in facts[-_MAX_KEEP:]]
        ask = partial(self._summarizer.summarise, source, keep=keep, max_tokens=max_tokens)
        text = await self._asked(ask)
        if text is None and patient and self._failures < MAX_TRIES:
            return None
        return await self._checked(text, source, facts, max_tokens)

    async def merge(self, source: str, facts: Sequence[KeyFact], max_tokens: int) -> Written:
        """A summary of summaries; when the summariser fails, sentences of them."""
        if self._summarizer is None or self.waits:
            return await self._chosen(source, facts, max_tokens)
        keep = [fact.text for fact in facts[-_MAX_KEEP:]]
        ask = partial(self._summarizer.merge, source, keep=keep, max_tokens=max_tokens)
        text = await self._asked(ask)
        return await self._checked(text, source, facts, max_tokens)

    def choose(self, source: str, facts: Sequence[KeyFact], max_tokens: int) -> Written:
        """Sentences of the source, at once."""
        keep = [fact.text for fact in facts]
        return Written(self._extractive.choose(source, keep=keep, max_tokens=max_tokens), "extract")

    async def _checked(
        self, text: str | None, source: str, facts: Sequence[KeyFact], max_tokens: int
    ) -> Written:
        if text is not None:
            text = await to_thread(self._screened, text, source, facts, max_tokens)
        if text:
            text = await self._repaired(text, source, facts, max_tokens)
            return Written(text, "model")
        return await self._chosen(source, facts, max_tokens)

    async def _repaired(
        self, text: str, source: str, facts: Sequence[KeyFact], max_tokens: int
    ) -> str:
        """The text with more of the facts in it, tried twice at most; never one with fewer."""
        assert self._summarizer is not None
        lost = await to_thread(lost_facts, facts, text)
        for _ in range(MAX_REPAIRS):
            if not lost:
                break
            clauses = [fact.text for fact in lost[-_MAX_KEEP:]]
            ask = partial(self._summarizer.repair, text, lost=clauses, max_tokens=max_tokens)
            again = await self._asked(ask)
            if again is None or again == text:
                break
            again = await to_thread(self._shortened, again, source, facts, max_tokens)
            still = await to_thread(lost_facts, facts, again)
            if len(still) >= len(lost):
                break
            text, lost = again, still
        return text

    def _screened(self, text: str, source: str, facts: Sequence[KeyFact], max_tokens: int) -> str:
        """What may stand of a summary; nothing of one about something else."""
        if is_foreign(text, source):
            return ""
        return self._shortened(text, source, facts, max_tokens)

    def _shortened(self, text: str, source: str, facts: Sequence[KeyFact], max_tokens: int) -> str:
        return cut_at_sentence(struck(text, source, facts), max_tokens, self._count)

    async def _chosen(self, source: str, facts: Sequence[KeyFact], max_tokens: int) -> Written:
        return await to_thread(self.choose, source, facts, max_tokens)

    async def _asked(self, ask: Callable[[], Awaitable[str]]) -> str | None:
        """The answer, if it is one and comes in time."""
        try:
            async with asyncio.timeout(self._deadline):
                text = await ask()
        except Exception as error:  # a host's summariser may raise anything; nothing is lost by it
            self._failed(type(error).__name__)
            return None
        if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance] - summarisers err
            self._failed("nothing was answered")
            return None
        self._failures, self._not_before = 0, None
        return text

    def _failed(self, why: str) -> None:
        self._failures += 1
        wait = min(_MAX_WAIT_SECONDS, 2.0 ** min(self._failures - 1, 10))
        self._not_before = self._clock.now() + timedelta(seconds=wait)
        _log.warning(
            "a summary could not be written",
            extra={"error": why, "failures": self._failures, "wait_seconds": wait},
        )
