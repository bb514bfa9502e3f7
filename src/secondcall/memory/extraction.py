"""One look at the queue: claim a stretch, ask the model, write what may stand of its answer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import anyio.to_thread

from secondcall import telemetry
from secondcall.abc import Batch, DocumentWrite, EntryKey
from secondcall.checks import from_us
from secondcall.errors import VersionConflict
from secondcall.facts.extract import Applied, Change, apply, judge
from secondcall.facts.proposed import MAX_KNOWN, Source, extraction_prompt, read_answer
from secondcall.facts.read import sensitive_items, standing
from secondcall.facts.refusals import Spoken
from secondcall.memory.extracted import (
    KIND,
    MAX_TURNS,
    POSITION,
    REMOVED,
    Position,
    Stretch,
    decode,
    encode,
    read_stretch,
)
from secondcall.memory.staging import StagedStore
from secondcall.recall.times import time_hints
from secondcall.shortterm.wording import (
    clauses,
    content_words,
    is_negated,
    numbers_in,
    said,
    sentences,
)
from secondcall.types import ItemKey, Message

if TYPE_CHECKING:
    from secondcall.abc import Document, Epoch, Header, LanguageModel, Scope, StoredEntry
    from secondcall.facts.proposed import Proposal
    from secondcall.memory.shared import Place
    from secondcall.types import Fact, RecordedItem

__all__ = ["CLAIM_SECONDS", "SPOKEN", "TURNS", "Extraction", "Outcome"]

TURNS = 8
"""After so many messages of the user their facts are looked for, without waiting for the end."""
CLAIM_SECONDS = 90.0
_FIRST_CHANGES = 500
"""Of a user who had a record before there was a model, the last changes are looked at."""
_QUIET = timedelta(minutes=10)
_MODEL_SECONDS = 60.0
_FIRST_WAIT_SECONDS = 15.0
_MAX_WAIT_SECONDS = 3_600.0
_MAX_TRIES = 8
"""So often a single turn makes the model fail before it is put aside."""
_MAX_ASIDE = 100
_WRITE_TRIES = 8
_FACTS = 1_000
_KEY_FACT = "key_fact"
_log = logging.getLogger("secondcall")

Outcome = Literal["done", "again", "later"]
"""Whether nothing is due any more, more is due at once, or later."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """A stretch that nobody else takes, and the document that says so."""

    position: Position
    version: int
    removed: int | None
    """The version of the mark of removals before the items were read."""
    stretch: Stretch
    is_aside: bool


class Extraction:
    """One look at the queue of one partition."""

    def __init__(
        self,
        place: Place,
        scope: Scope,
        model: LanguageModel,
        *,
        later: Callable[[float], None],
        repeats: Callable[[RecordedItem, str], bool],
    ) -> None:
        self._place = place
        self._later = later
        self._repeats = repeats
        self._shared = place.shared
        self._scope = scope
        self._model = model
        self._epoch: Epoch = b""

    async def step(self, but: str | None) -> Outcome:
        """Ask the model about the next stretch, if it is due. Raises: ``VersionConflict`` when
        somebody else was faster, ``UserErased``, store errors."""
        header = await self._shared.store.header(self._scope)
        if header is None:
            return "done"
        self._epoch = header.epoch
        found = await self._next(header, but)
        if not isinstance(found, tuple):
            return found
        position, version, removed, stretch, is_aside = found
        if not stretch.items:
            await self._put(self._moved(position, stretch, is_aside), version)
            return "again" if stretch.more else "done"
        claimed = _Claimed(
            position=replace(
                position,
                holder=self._shared.extracting.holder,
                until_us=self._later_us(CLAIM_SECONDS),
            ),
            version=0,
            removed=removed,
            stretch=stretch,
            is_aside=is_aside,
        )
        claimed = replace(claimed, version=await self._put(claimed.position, version))
        with telemetry.operation("extract", store=self._shared.scheme) as span:
            span.set(items=len(stretch.items), turns=stretch.turns, tries=position.tries)
            done = await self._ask(claimed)
            if done is None:
                span.set(failed=True)
                return await self._failed(claimed)
            applied, refused = done
            span.set(told=applied.told, ended=applied.ended, refused=sum(refused.values()))
        if refused:
            _log.info(
                "facts that a model proposed were refused",
                extra={"refused": dict(refused), "model": self._model.id},
            )
        return "again" if stretch.more or position.aside else "done"

    async def _next(
        self, header: Header, but: str | None
    ) -> Outcome | tuple[Position, int | None, int | None, Stretch, bool]:
        """The next stretch, if it is due now."""
        store, now_us = self._shared.store, self._shared.now_us()
        document = await store.document(self._scope, KIND, POSITION)
        position = None if document is None else decode(document.body)
        if position is None:
            position = Position(after=max(0, header.change - _FIRST_CHANGES))
        if header.change <= position.after and not position.aside:
            return "done"
        waits_us = max(position.next_us, position.until_us if position.holder else 0)
        if waits_us > now_us:
            self._later((waits_us - now_us) / 1e6)
            return "later"
        mark = await store.document(self._scope, KIND, REMOVED)
        is_aside = bool(position.aside) and not position.tries
        after, upto = position.aside[0] if is_aside else (position.after, None)
        stretch = await read_stretch(
            store,
            self._scope,
            after,
            upto,
            max_turns=max(1, MAX_TURNS >> position.tries),
            keeps=await self._keeps(),
            repeated=self._repeats,
        )
        version = None if document is None else document.version
        if stretch is None:
            if is_aside:
                rest = replace(position, aside=position.aside[1:])
                await self._put(rest, version)
                return "again"
            return "done"
        if not is_aside and not self._is_due(stretch, but):
            return "done"
        return position, version, None if mark is None else mark.version, stretch, is_aside

    def _is_due(self, stretch: Stretch, but: str | None) -> bool:
        if but is None or stretch.more or stretch.turns >= TURNS:
            return True
        quiet = stretch.recorded_us <= self._later_us(-_QUIET.total_seconds())
        return bool(stretch.turns) and (quiet or any(one != but for one in stretch.sessions))

    async def _keeps(self) -> Callable[[StoredEntry], bool]:
        """Whether an item has not run out."""
        policy, now = await self._place.retention(), self._shared.clock.now()
        cutoff = policy.cutoff_us("message", now)
        return lambda entry: cutoff is None or entry.at_us >= cutoff

    async def _ask(self, claimed: _Claimed) -> tuple[Applied, Counter[str]] | None:
        """Ask the model and write what may stand; ``None`` when the model failed."""
        stretch = claimed.stretch
        hidden = await sensitive_items(self._shared.store, [self._scope])
        known = await self._known(stretch)
        before = [_source(None, one, hidden) for one in stretch.before]
        labelled = {
            f"i{number}": _source(f"i{number}", one, hidden)
            for number, one in enumerate(stretch.items, start=1)
        }
        sources = [*before, *labelled.values()]
        prompt = await anyio.to_thread.run_sync(extraction_prompt, sources, known)
        session_id = stretch.sessions[0] if len(stretch.sessions) == 1 else ""
        meter = self._shared.meter
        try:
            with meter.calls("facts", self._scope, self._epoch, session_id=session_id):
                async with asyncio.timeout(_MODEL_SECONDS):
                    answer = await self._model.complete(prompt)
            proposals, bad = await anyio.to_thread.run_sync(read_answer, answer)
        except Exception as error:  # any model, with any code behind it: it is asked again later
            _log.warning(
                "facts could not be extracted; it is tried again later",
                extra={"error": type(error).__name__, "tries": claimed.position.tries + 1},
            )
            return None
        changes, refused = await anyio.to_thread.run_sync(
            _judged, proposals, labelled, known, self._model.id, self._shared.clock.now()
        )
        return await self._write(claimed, changes, Counter(refused) + Counter(form=bad))

    async def _known(self, stretch: Stretch) -> Mapping[str, Fact]:
        """The facts that stand, under the labels that the model knows them by: of many those that
        share words with what was said, then the newest. Sensitive ones are not shown to it."""
        facts = await standing(
            self._shared.store,
            [self._scope],
            ("promise", "issue", "preference", "decision", "attribute"),
            limit=_FACTS,
            now=self._shared.clock.now(),
        )
        words = {
            word
            for one in stretch.items
            if isinstance(one.item, Message)
            for word in content_words(one.item.text)
        }

        def worth(fact: Fact) -> tuple[int, datetime]:
            shared = words.intersection(content_words(f"{fact.predicate} {fact.value}"))
            return len(shared), fact.valid_from

        usable = [one for one in facts if not one.sensitive and _KEY_FACT not in one.metadata]
        usable.sort(key=worth, reverse=True)
        return {f"f{number}": one for number, one in enumerate(usable[:MAX_KNOWN], start=1)}

    async def _write(
        self, claimed: _Claimed, changes: Sequence[Change], refused: Counter[str]
    ) -> tuple[Applied, Counter[str]]:
        """Facts and position in one batch, again after each lost race over a fact.

        Raises: ``VersionConflict`` when the claim was lost, or there is no end to the races.
        """
        removed = claimed.removed
        for attempt in range(_WRITE_TRIES):
            staged = StagedStore(self._shared.store, self._scope)
            now_us = self._shared.now_us()
            applied = await apply(
                staged,
                self._scope,
                changes,
                recorded=self._shared.clock.now(),
                epoch=self._epoch,
                now_us=now_us,
            )
            counts = refused + Counter(applied.refused)
            moved = self._moved(claimed.position, claimed.stretch, claimed.is_aside)
            total = Counter(moved.counts) + Counter(
                {
                    "told": applied.told,
                    "ended": applied.ended,
                    **{f"refused.{reason}": count for reason, count in counts.items()},
                }
            )
            writes = [
                _position(replace(moved, counts=total), claimed.version),
                DocumentWrite(kind=KIND, key=REMOVED, body=b"{}", expected_version=removed),
            ]
            try:
                await staged.write(
                    self._scope, Batch(documents=writes), epoch=self._epoch, now_us=now_us
                )
                await staged.commit(epoch=self._epoch, now_us=now_us)
            except VersionConflict:
                document = await self._shared.store.document(self._scope, KIND, POSITION)
                lost = document is None or document.version != claimed.version
                if lost or attempt == _WRITE_TRIES - 1:
                    raise
                mark = await self._shared.store.document(self._scope, KIND, REMOVED)
                removed = None if mark is None else mark.version
                changes, gone = await self._still_there(claimed.stretch, changes)
                refused = refused + Counter({"gone": gone} if gone else {})
                continue
            if applied.told:
                await self._shared.buffers.facts_changed([self._scope])
            return applied, counts
        raise AssertionError("unreachable")

    async def _still_there(
        self, stretch: Stretch, changes: Sequence[Change]
    ) -> tuple[Sequence[Change], int]:
        """The changes whose sources are in the record as they were read."""
        read = {one.key: one.change for one in stretch.items}
        keys = [EntryKey(*key[1:]) for key in read]
        entries = await self._shared.store.entries(self._scope, keys)
        there = {ItemKey(self._scope.name, *one.key): one.change for one in entries}
        kept = [
            change
            for change in changes
            if all(there.get(key) == read.get(key) for key in change.sources)
        ]
        return kept, len(changes) - len(kept)

    async def _failed(self, claimed: _Claimed) -> Outcome:
        """Let the claim go, and wait the longer the more often it failed. A single turn at which it
        fails again and again is put aside, so that what follows it need not wait."""
        position, stretch = claimed.position, claimed.stretch
        tries = position.tries + 1
        if claimed.is_aside:  # another one has just come through, so that it is this one's fault
            _log.warning("a turn made the model fail again and is passed over")
            counts = Counter(position.counts) + Counter({"passed_over": 1})
            free = replace(position, holder="", aside=position.aside[1:], counts=counts)
            await self._put(free, claimed.version)
            return "again"
        free = replace(position, holder="", tries=tries)
        if tries >= _MAX_TRIES and stretch.turns == 1 and len(position.aside) < _MAX_ASIDE:
            aside = [*position.aside, (position.after, stretch.upto)]
            free = replace(free, after=stretch.upto, tries=_MAX_TRIES // 2, aside=aside)
        seconds = min(_MAX_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** (tries - 1))
        seconds *= 1 + secrets.randbelow(200) / 1_000
        await self._put(replace(free, next_us=self._later_us(seconds)), claimed.version)
        self._later(seconds)
        return "later"

    def _moved(self, position: Position, stretch: Stretch, is_aside: bool) -> Position:
        """The position behind the stretch."""
        free = replace(position, holder="", until_us=0, tries=0, next_us=0)
        if is_aside:
            _, last = position.aside[0]
            rest = [(stretch.upto, last)] if stretch.upto < last else []
            return replace(free, aside=[*rest, *position.aside[1:]])
        return replace(free, after=stretch.upto)

    async def _put(self, position: Position, version: int | None) -> int:
        """Write the document over ``version``; its new one. Raises: ``VersionConflict``."""
        shared = self._shared
        write = _position(position, version)
        await shared.store.write(
            self._scope, Batch(documents=[write]), epoch=self._epoch, now_us=shared.now_us()
        )
        written: Document | None = await shared.store.document(self._scope, KIND, POSITION)
        if written is None or written.body != write.body:
            raise VersionConflict(
                "the position of extraction",
                expected=version,
                found=None if written is None else written.version,
            )
        return written.version

    def _later_us(self, seconds: float) -> int:
        return self._shared.now_us() + round(seconds * 1e6)


def _position(position: Position, version: int | None) -> DocumentWrite:
    return DocumentWrite(kind=KIND, key=POSITION, body=encode(position), expected_version=version)


def _judged(
    proposals: Sequence[Proposal],
    labelled: Mapping[str, Source],
    known: Mapping[str, Fact],
    model_id: str,
    now: datetime,
) -> tuple[list[Change], Sequence[str]]:
    return judge(proposals, labelled, known, spoken=SPOKEN, model_id=model_id, now=now)


def _source(label: str | None, item: RecordedItem, hidden: Collection[ItemKey]) -> Source:
    message = item.item
    assert isinstance(message, Message)
    return Source(
        label=label,
        key=item.key,
        role=message.role,
        text=said(message.text),
        at=item.at,
        sensitive=item.key in hidden,
    )


def _clauses(text: str) -> list[str]:
    return [clause.text for sentence in sentences(text) for clause in clauses(sentence)]


def _days(text: str, at: datetime) -> list[tuple[date, date]]:
    """The days that a text names, as [first, last) as seen from ``at``; spans of over a month say
    nothing about a day."""
    spans = [
        (from_us(one.start_us).date(), from_us(one.end_us).date())
        for one in time_hints(text, at=at)
        if one.worth == 1
    ]
    return [(first, last) for first, last in spans if (last - first).days <= 31]


SPOKEN = Spoken(clauses=_clauses, is_negated=is_negated, numbers=numbers_in, days=_days)
"""English, as far as words are concerned; numbers and quotes work in any language."""
