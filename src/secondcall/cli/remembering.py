"""Facts of a file, through the face: remembered, settled or ended as their lines say."""

from __future__ import annotations

from collections.abc import Sequence

from secondcall.memory import UserMemory
from secondcall.record.transfer import FactLine
from secondcall.types import Fact, ItemKey

__all__ = ["remember_line", "remember_lines"]

_FIRST = (None, "current", "promised", "open")


async def remember_lines(user: UserMemory, lines: Sequence[FactLine]) -> None:
    """Take in the facts that the lines state; those that are there already stay as they are.

    Exported facts come back with their ids, times and status. Written by hand, they are remembered
    as of now or their ``valid_from``, and a later status is given to the promise or issue that
    stands.
    """
    exported = [fact for line in lines if (fact := _exported(user, line)) is not None]
    if exported:
        await user.restore(exported)
    for line in lines:
        if _exported(user, line) is None:
            await remember_line(user, line)


async def remember_line(user: UserMemory, line: FactLine) -> Fact:
    """The fact that a line written by hand states."""
    for fact in await user.history(line.predicate, subject=line.subject):
        if _is_same(fact, line):
            return fact
    if line.status not in _FIRST:
        return await user.settle(line.predicate, line.status, subject=line.subject)
    fact = await user.remember(
        line.predicate,
        line.value,
        kind=line.kind,
        subject=line.subject,
        valid_from=line.valid_from,
        due_at=line.due_at,
        sensitive=line.sensitive,
        sources=_sources(user, line),
        metadata=line.metadata,
    )
    if line.invalid_at is not None and line.superseded_by is None:
        return await user.retract(line.predicate, subject=line.subject)
    return fact


def _exported(user: UserMemory, line: FactLine) -> Fact | None:
    """The fact of a line that an export wrote; ``None`` for one written by hand."""
    if not (line.id and line.status and line.valid_from and line.recorded_at):
        return None
    return Fact(
        id=line.id,
        kind=line.kind,
        subject=line.subject,
        predicate=line.predicate,
        value=line.value,
        status=line.status,
        valid_from=line.valid_from,
        recorded_at=line.recorded_at,
        invalid_at=line.invalid_at,
        superseded_by=line.superseded_by,
        due_at=line.due_at,
        sensitive=line.sensitive,
        sources=_sources(user, line),
        metadata=line.metadata,
    )


def _sources(user: UserMemory, line: FactLine) -> list[ItemKey]:
    return [ItemKey(user.user_id, one.session_id, one.kind, one.id) for one in line.sources]


def _is_same(fact: Fact, line: FactLine) -> bool:
    if (fact.kind, fact.value) != (line.kind, line.value):
        return False
    if line.status not in _FIRST:
        return fact.status == line.status
    return line.valid_from is not None and fact.valid_from == line.valid_from
