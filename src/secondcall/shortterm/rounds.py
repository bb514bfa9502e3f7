"""One round of summarising: a node for what is due, and merges until the summaries fit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import anyio.to_thread

from secondcall.shortterm.backlog import Held
from secondcall.shortterm.keyfacts import KeyFact, KeyFactList, check, find_key_facts
from secondcall.shortterm.levels import SummaryNode, level_tokens, next_merge
from secondcall.shortterm.showing import Shares
from secondcall.shortterm.summarizers import as_text
from secondcall.shortterm.writing import SummaryWriter, Written

__all__ = ["Made", "Plan", "Rounds", "settled_list"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be summarised, and what was true when that was decided.

    ``place`` is that of the node of level 0 whose items are summarised anew; ``None`` for the
    oldest turns. A ``patient`` round may wait for a summariser that failed.
    """

    held: Sequence[Held]
    place: int | None
    nodes: Sequence[SummaryNode]
    facts: Sequence[KeyFact]
    head_version: int | None
    patient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a round made: the nodes that are live then, those to be written, the facts found."""

    nodes: Sequence[SummaryNode]
    written: Sequence[SummaryNode]
    found: Sequence[KeyFact]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A text of which a shorter one is wanted, with the facts to keep in it."""

    source: str
    keep: Sequence[KeyFact]
    max_tokens: int
    merges: bool = False


class Rounds:
    """Makes rounds with one writer, for one limit."""

    def __init__(self, writer: SummaryWriter, shares: Shares, count: Callable[[str], int]) -> None:
        self._writer = writer
        self._shares = shares
        self._count = count

    @property
    def waits(self) -> bool:
        """Whether the summariser failed so recently that it is not asked yet."""
        return self._writer.waits

    @property
    def asks(self) -> bool:
        """Whether a summariser is asked next, which may take long."""
        return not self._writer.chooses

    async def make(self, plan: Plan) -> Made | None:
        """The round; ``None`` when the summariser failed and is to be asked again later.

        What takes the processor is done in threads, so that the loop is not held.
        """
        if self._writer.chooses:
            return await anyio.to_thread.run_sync(self.at_once, plan)
        steps, answer = self._steps(plan), None
        while True:
            wanted = await anyio.to_thread.run_sync(_next, steps, answer)
            if isinstance(wanted, Made):
                return wanted
            answer = (
                await self._writer.merge(wanted.source, wanted.keep, wanted.max_tokens)
                if wanted.merges
                else await self._writer.write(
                    wanted.source, wanted.keep, wanted.max_tokens, patient=plan.patient
                )
            )
            if answer is None:
                return None

    def at_once(self, plan: Plan) -> Made:
        """The round by choosing sentences, without waiting for anybody."""
        steps = self._steps(plan)
        wanted = _next(steps, None)
        while isinstance(wanted, _Wanted):
            chosen = self._writer.choose(wanted.source, wanted.keep, wanted.max_tokens)
            wanted = _next(steps, chosen)
        return wanted

    def _steps(self, plan: Plan) -> Generator[_Wanted, Written | None, Made]:
        """The round, as the texts that it wants one after the other, each answered by a summary."""
        items = [one.recorded() for one in plan.held]
        source = as_text(one.item for one in items)
        found = find_key_facts(items)
        nodes, new = list(plan.nodes), list[SummaryNode]()
        if source:
            length = level_tokens(1, self._shares.nodes)
            written = yield _Wanted(source, found, length)
            assert written is not None
            new.append(_node(plan, written))
        place = len(nodes) if plan.place is None else plan.place
        nodes[place : place + 1] = new
        facts = [*plan.facts, *found]
        while self._shares.over(nodes, self._count) and (merge := next_merge(nodes)) is not None:
            old = nodes[slice(*merge)]
            source = "\n".join(node.text for node in old)
            held = check(facts, source)
            keep = [fact for fact in facts if fact.id in held]
            level = max(node.level for node in old) + 1
            length = level_tokens(level, self._shares.nodes)
            written = yield _Wanted(source, keep, length, merges=True)
            assert written is not None
            new.append(_merged(old, level, written))
            nodes[slice(*merge)] = new[-1:]
        return Made(nodes=nodes, written=new, found=found)


def _next(
    steps: Generator[_Wanted, Written | None, Made], answer: Written | None
) -> _Wanted | Made:
    try:
        return steps.send(answer)
    except StopIteration as done:
        made: Made = done.value
        return made


def settled_list(
    before: KeyFactList, found: Sequence[KeyFact], nodes: Sequence[SummaryNode]
) -> tuple[KeyFactList, list[KeyFact]]:
    """The list with new facts, checked against the summaries, and what it had no room for."""
    facts = before.copy()
    facts.add(found)
    facts.hold(check(facts.facts, "\n".join(node.text for node in nodes)))
    return facts, facts.overflow()


def _node(plan: Plan, written: Written) -> SummaryNode:
    ats = [one.item.at for one in plan.held if one.item.at is not None]
    return SummaryNode(
        id=secrets.token_hex(8),
        level=1,
        text=written.text,
        items=tuple(one.key for one in plan.held),
        first_at=ats[0] if ats else None,
        last_at=ats[-1] if ats else None,
        made_by=written.made_by,
    )


def _merged(old: Sequence[SummaryNode], level: int, written: Written) -> SummaryNode:
    return SummaryNode(
        id=secrets.token_hex(8),
        level=level,
        text=written.text,
        children=tuple(one.id for one in old),
        first_at=old[0].first_at,
        last_at=old[-1].last_at,
        made_by=written.made_by,
    )
