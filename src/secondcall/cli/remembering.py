"""Facts of a file, through the face: checked, remembered, settled or ended as their lines say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from secondcall.checks import check_id
from secondcall.errors import InvalidValue
from secondcall.facts.supersede import check_fact, new_fact
from secondcall.memory import UserMemory
from secondcall.record.transfer import FactLine, SourceLine
from secondcall.types import Fact, FactKind, FactStatus, ItemKey

__all__ = ["check_line", "remember_lines", "session_of", "settles"]

_FIRST = (None, "current", "promised", "open")
_SETTLED: Mapping[FactKind, Sequence[FactStatus]] = {
    "promise": ("kept", "broken", "withdrawn"),
    "issue": ("resolved",),
}
_ALL_SESSIONS = 1_000_000


def session_of(session_id: str, person: str | None) -> str:
    """The session that a person's conversation of a file becomes under one user."""
    return session_id if person is None else f"{person}:{session_id}"


def check_line(line: FactLine) -> None:
    """Refuse a fact that memory would refuse, before anything is recorded.

    Raises: ``InvalidValue``, ``TooLarge`` naming file, line and field.
    """
    try:
        _check(line)
    except InvalidValue as error:
        raise type(error)(f"{line.place}: {error}") from None


def settles(line: FactLine) -> bool:
    """Whether the line, written by hand, moves on what an earlier one or the store holds."""
    return line.status not in _FIRST and _exported(line, ()) is None


async def remember_lines(
    user: UserMemory, lines: Sequence[FactLine], *, home: str | None = None
) -> None:
    """Take in the facts that the lines state; those that are there already stay as they are.

    Exported facts come back with their ids, times and status. Written by hand, they are remembered
    as of now or their ``valid_from``, and a later status is given to the promise or issue that
    stands. ``home`` is whose partition the items of the file were recorded in, if they were.
    """
    if not lines:
        return
    keys = await _keys_of(user, lines, home)
    exported: list[Fact] = []
    for line in lines:
        fact = _exported(line, [keys[one] for one in line.sources])
        if fact is not None:
            exported.append(fact)
    if exported:
        await user.restore(exported)
    for line in lines:
        sources = [keys[one] for one in line.sources]
        if _exported(line, sources) is None:
            await _remember(user, line, sources)


async def _remember(user: UserMemory, line: FactLine, sources: Sequence[ItemKey]) -> None:
    for fact in await user.history(line.predicate, subject=line.subject):
        if _is_same(fact, line):
            return
    if line.status is not None and settles(line):
        value = line.value if line.multi else None
        await user.settle(line.predicate, line.status, subject=line.subject, value=value)
        return
    await user.remember(
        line.predicate,
        line.value,
        kind=line.kind,
        subject=line.subject,
        valid_from=line.valid_from,
        due_at=line.due_at,
        sensitive=line.sensitive,
        sources=sources,
        metadata=line.metadata,
        multi=line.multi,
        rests_on=line.rests_on,
    )
    if line.invalid_at is not None and line.superseded_by is None:
        value = line.value if line.multi else None
        await user.retract(line.predicate, subject=line.subject, value=value, at=line.invalid_at)


def _check(line: FactLine) -> None:
    for index, one in enumerate(line.sources):
        check_id(f"sources[{index}].session_id", session_of(one.session_id, one.person))
        check_id(f"sources[{index}].id", one.id)
    if line.superseded_by is not None:
        check_id("superseded_by", line.superseded_by)
    settled = _SETTLED.get(line.kind)
    if settled is not None and line.status not in (*_FIRST, *settled):
        options = ", ".join(settled)
        raise InvalidValue(f"status of a settled {line.kind} is one of {options}")
    sources = [ItemKey("user", one.session_id, one.kind, one.id) for one in line.sources]
    exported = _exported(line, sources)
    if exported is not None:
        check_fact(exported)
        return
    new_fact(
        line.predicate,
        line.value,
        kind=line.kind,
        subject=line.subject,
        now=datetime.now(UTC),
        valid_from=line.valid_from,
        due_at=line.due_at,
        sources=sources,
        metadata=line.metadata,
        rests_on=line.rests_on or (),
    )


async def _keys_of(
    user: UserMemory, lines: Sequence[FactLine], home: str | None
) -> dict[SourceLine, ItemKey]:
    """Where the items that the facts rest on are: of a merged user, in one of several partitions.

    One that is in none is named as if it had been recorded with the file.
    """
    wanted = dict.fromkeys(one for line in lines for one in line.sources)
    if not wanted:
        return {}
    home = home or user.user_id
    held_in = {one.user_id for one in await user.sessions(limit=_ALL_SESSIONS)}
    if held_in <= {home}:
        return {one: _key(home, one) for one in wanted}
    partitions = [home, *sorted(held_in - {home})]
    return {one: await _key_in(user, partitions, one) for one in wanted}


async def _key_in(user: UserMemory, partitions: Sequence[str], source: SourceLine) -> ItemKey:
    keys = [_key(user_id, source) for user_id in partitions]
    if source.person is not None and source.person in partitions:
        keys.insert(0, ItemKey(source.person, source.session_id, source.kind, source.id))
    for key in keys:
        if await user.item(key) is not None:
            return key
    return _key(partitions[0], source)


def _key(user_id: str, source: SourceLine) -> ItemKey:
    session_id = session_of(source.session_id, source.person)
    return ItemKey(user_id, session_id, source.kind, source.id)


def _exported(line: FactLine, sources: Sequence[ItemKey]) -> Fact | None:
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
        sources=sources,
        metadata=line.metadata,
        multi=bool(line.multi),
        rests_on=line.rests_on or (),
        confirmed=line.confirmed,
        earlier=line.earlier,
    )


def _is_same(fact: Fact, line: FactLine) -> bool:
    if (fact.kind, fact.value) != (line.kind, line.value):
        return False
    if line.status not in _FIRST:
        return fact.status == line.status
    return line.valid_from is not None and fact.valid_from == line.valid_from
