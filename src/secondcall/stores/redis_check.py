"""A self-check of the states in Redis: whether what belongs together fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from secondcall.stores.redis_keys import Keys, UserKeys
from secondcall.stores.redis_link import Link

__all__ = ["find_problems"]

_COUNT = b"2000"


async def find_problems(link: Link, keys: Keys) -> Sequence[str]:
    """What is wrong, one line for each kind, without names."""
    wrong: Counter[str] = Counter()
    async for user, found in _users(link, keys):
        wrong.update(await _check(link, user, found))
    return [f"{number} {what}" for what, number in sorted(wrong.items())]


async def _users(link: Link, keys: Keys) -> AsyncIterator[tuple[UserKeys, set[bytes]]]:
    """Each user's keys, without what they all begin with."""
    by_tag: dict[bytes, set[bytes]] = {}
    start = keys.prefix + b"{"
    for address in await link.primaries():
        cursor = b"0"
        while True:
            command = (b"SCAN", cursor, b"MATCH", start + b"*", b"COUNT", _COUNT)
            ((cursor, page),) = await link.on(address, lambda line, one=command: line.ask([one]))
            for key in page:
                tag, _, rest = key[len(start) :].partition(b"}:")
                by_tag.setdefault(tag, set()).add(rest)
            if cursor == b"0":
                break
    for tag, found in by_tag.items():
        # The index of a tenant may be ahead of what it tells of.
        if b"#" not in tag:
            yield keys.of_tag(tag), found


async def _check(link: Link, user: UserKeys, found: set[bytes]) -> Sequence[str]:
    if b"u" not in found:
        return [] if not found else ["users have rows but no epoch"]
    levels = sorted(one[1:] for one in found if one[:1] == b"s" and len(one) > 1)
    commands: list[tuple[bytes, ...]] = [
        (b"HGETALL", user.head),
        (b"ZRANGE", user.sessions, b"0", b"-1"),
        (b"ZRANGE", user.due, b"0", b"-1"),
        (b"ZRANGE", user.held, b"0", b"-1"),
    ]
    for one in levels:
        commands.append((b"HMGET", user.base + b"s" + one, b"v", b"live", b"times", b"body"))
        commands.append((b"XREVRANGE", user.base + b"c" + one, b"+", b"-", b"COUNT", b"1"))
    head, listed, due, held, *states = await link.ask(user.head, *commands)
    if b"erasing" in head[::2]:
        return ["erasures are not finished"]
    rows = [*zip(levels, states[::2], states[1::2], strict=True)]
    live = [one for one, fields, _ in rows if fields[1] is not None]
    timed = [one for one, fields, _ in rows if not (fields[2] or b"/").endswith(b"/")]
    histories = {one[1:] for one in found if one[:1] == b"c" and len(one) > 1}
    problems = [
        "states are not as their history says"
        for _, fields, newest in rows
        if not _fits(fields, newest)
    ]
    if live != listed:
        problems.append("users have a list that is not that of their states")
    if timed != sorted([*due, *held]):
        problems.append("users have timers that are not those of their states")
    if histories - set(levels):
        problems.append("users have a history without its state")
    return problems


def _fits(fields: Sequence[bytes | None], newest: Sequence[Any]) -> bool:
    version, live, _, body = fields
    if version is None or (live is not None and live != version):
        return False
    if not newest:
        return True
    entry, flat = newest[0]
    kept = dict(zip(flat[::2], flat[1::2], strict=True)).get(b"body")
    if bytes(entry) == version + b"-0":
        return kept == (body if live is not None else None)
    # The newest rows may have been removed by their time.
    return int(bytes(entry).partition(b"-")[0]) < int(version)
