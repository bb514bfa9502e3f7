"""Settings for a traffic: each with its reason, what it takes in memory and on disk, and a program.

A calculation and nothing else. The sizes were measured with the default embedder (512 messages to a
search segment, SQLite, texts of 60, 160 and 600 characters; ``docs/performance.md`` has the index):
a message takes about 450 bytes and 2.4 times its characters on disk, 560 bytes in an open index.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from secondcall.checks import check_limit
from secondcall.errors import InvalidValue

__all__ = ["Advice", "Plan", "Traffic", "advise", "in_units", "program"]

_CHARACTERS_PER_TOKEN = 4
_DISK_BYTES, _DISK_PER_CHARACTER = 450, 2.4
_INDEX_BYTES = 560
_INDEX_LIMIT_BYTES = 512 * 1024 * 1024
_MEMORY_BYTES, _MEMORY_PER_MESSAGE_BYTES = 2_500, 520
_BASE_BYTES = 100 * 1024 * 1024
"""A process with numpy, the word vectors and an open store."""
_PEAK = 4
"""The busiest hour of a day against its mean."""
_WRITES_A_SECOND = 500
"""What one SQLite file takes durably without queueing, with room to spare: 0.8 ms a write."""
_LATENCY_TOKENS = 12_000
"""A longer history costs more in the model's first token than it brings."""
_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What is asked for: defaults are those of a small voice agent.

    ``state`` says whether each session has its own short-term state or several read and write one.
    ``gap_seconds`` is the usual pause between two messages, ``days_kept`` 0 means that nothing
    outlives the process and ``None`` for ever; ``processes`` are those of one host.

    Raises: ``InvalidValue`` naming the field.
    """

    state: Literal["session", "shared"] = "session"
    calls_a_day: int = 1_000
    messages_a_call: int = 40
    gap_seconds: float = 8
    days_kept: int | None = 90
    window: int = 128_000
    processes: int = 1
    hosts: int = 1
    message_tokens: int = 40

    def __post_init__(self) -> None:
        if self.state not in ("session", "shared"):
            raise InvalidValue(f"state is {self.state!r}, expected 'session' or 'shared'")
        check_limit("calls_a_day", self.calls_a_day, maximum=1_000_000_000)
        check_limit("messages_a_call", self.messages_a_call)
        gap = self.gap_seconds
        if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0 < gap <= _DAY:  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise InvalidValue(f"gap_seconds is {gap!r}, expected more than 0, to {_DAY:,}")
        if self.days_kept is not None:
            check_limit("days_kept", self.days_kept, minimum=0, maximum=36_500)
        check_limit("window", self.window, minimum=500, maximum=100_000_000)
        check_limit("processes", self.processes, maximum=10_000)
        check_limit("hosts", self.hosts, maximum=10_000)
        check_limit("message_tokens", self.message_tokens, maximum=100_000)

    @property
    def call_tokens(self) -> int:
        """The tokens of a whole call, with 4 of framing for each message."""
        return self.messages_a_call * (self.message_tokens + 4)

    @property
    def characters(self) -> int:
        """The characters of a message."""
        return self.message_tokens * _CHARACTERS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Advice:
    """One setting, what it should be in words, and why."""

    setting: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings that are recommended, as values and as advice, with what they take.

    ``memory_bytes`` is for each process at the busiest hour, ``disk_bytes`` for all that is kept
    once the oldest begins to go (after a year where nothing goes). ``warnings`` say what this
    release does not do for such a traffic.
    """

    ttl_seconds: int
    message_limit: int
    message_tokens: int
    keep: bool
    token_limit: int
    summarise_every: int | None
    reserve: int
    shares: Mapping[str, float]
    retain: str | None
    url: str
    memory_bytes: int
    disk_bytes: int
    advice: Sequence[Advice]
    warnings: Sequence[str]


def advise(traffic: Traffic) -> Plan:
    """The plan for a traffic. The same traffic gives the same plan."""
    ttl, ttl_why = _ttl(traffic)
    messages, message_tokens, messages_why = _messages(traffic)
    keep, keep_why = _keep(traffic)
    reserve = min(1_000, traffic.window // 4)
    shares, shares_why = _shares(traffic)
    share = int((traffic.window - reserve) * shares["buffer"])
    limit, limit_why = _token_limit(traffic, share)
    every, every_why = _every(traffic, limit)
    retain, retain_why = _retain(traffic)
    url, url_why = _store(traffic)
    memory_bytes, memory_why = _memory(traffic, messages)
    disk_bytes, disk_why = _disk(traffic)
    split = ", ".join(f"{name} {value:.0%}" for name, value in shares.items())
    return Plan(
        ttl_seconds=ttl,
        message_limit=messages,
        message_tokens=message_tokens,
        keep=keep,
        token_limit=limit,
        summarise_every=every,
        reserve=reserve,
        shares=shares,
        retain=retain,
        url=url,
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
        advice=(
            Advice("store", url, url_why),
            Advice(
                "retention", retain or ("none" if url == "memory://" else "for ever"), retain_why
            ),
            Advice("short-term TTL", f"{ttl:,} s", ttl_why),
            Advice(
                "message window", f"{messages} messages, {message_tokens:,} tokens", messages_why
            ),
            Advice("save short-term state", "after each change" if keep else "no", keep_why),
            Advice("buffer token limit", f"{limit:,} tokens", limit_why),
            Advice("summary interval", _interval(every), every_why),
            Advice("budget shares", split, shares_why),
            Advice("memory a process", in_units(memory_bytes), memory_why),
            Advice("disk", in_units(disk_bytes), disk_why),
        ),
        warnings=_warnings(traffic),
    )


def in_units(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:,.0f} {unit}"
        count /= 1_000
    return f"{count:,.1f} TB"


def _ttl(traffic: Traffic) -> tuple[int, str]:
    pause = 10 * traffic.gap_seconds
    if pause <= 300:
        return 300, (
            f"the default: ten usual pauses are {pause:,.0f} s, and what is older than five "
            "minutes is no longer about this moment"
        )
    ttl = min(_DAY, _up(pause, 60))
    return ttl, f"ten usual pauses of {traffic.gap_seconds:,.0f} s, at most a day"


def _messages(traffic: Traffic) -> tuple[int, int, str]:
    count = max(2, min(10, traffic.messages_a_call))
    tokens = min(_up(2 * count * traffic.message_tokens, 100), max(100, traffic.window // 10))
    return (
        count,
        tokens,
        (
            f"enough to answer 'yes, that one'; {tokens:,} tokens hold twice the usual length of "
            f"{traffic.message_tokens} tokens a message, and no single one fills the window"
        ),
    )


def _keep(traffic: Traffic) -> tuple[bool, str]:
    if traffic.days_kept == 0:
        return False, "nothing is to outlive the process"
    if traffic.state == "shared":
        return True, "several read and write it: the compare-and-set tells the one who lost a race"
    if traffic.processes * traffic.hosts > 1:
        return True, "another process may take the call over, and a restart loses nothing"
    if traffic.gap_seconds >= 60:
        return True, "with such pauses a restart falls into a conversation"
    return False, "one process holds the call; what was said is in the record anyway"


def _shares(traffic: Traffic) -> tuple[Mapping[str, float], str]:
    if traffic.state == "shared":
        return {"buffer": 0.5, "recall": 0.2, "state": 0.3}, (
            "what several sessions share is told by its state, not by one session's history"
        )
    return {"buffer": 0.6, "recall": 0.2, "state": 0.2}, (
        "the default; what a layer does not use is passed on to the others"
    )


def _token_limit(traffic: Traffic, share: int) -> tuple[int, str]:
    wanted = max(1_000, _up(traffic.call_tokens * 1.25, 500))
    limit = min(wanted, _LATENCY_TOKENS, share)
    if limit == wanted:
        why = f"a whole call of {traffic.call_tokens:,} tokens fits, with a quarter to spare"
    elif limit == share:
        why = f"the buffer's share of the window; a whole call has {traffic.call_tokens:,} tokens"
    else:
        why = (
            f"a whole call has {traffic.call_tokens:,} tokens; beyond {_LATENCY_TOKENS:,} the "
            "model's first word comes noticeably later, and a summary says it in fewer"
        )
    return limit, why


def _every(traffic: Traffic, limit: int) -> tuple[int | None, str]:
    if traffic.call_tokens <= limit:
        return (
            None,
            "the usual call fits whole; a longer one is summarised when it passes the limit",
        )
    turns = max(5, limit // (4 * (traffic.message_tokens + 4)))
    return turns, (
        f"{turns} turns are about half of the buffer: fewer cost a summary each and keep no more, "
        "docs/summaries.md has the curve"
    )


def _interval(every: int | None) -> str:
    return "when the limit is passed" if every is None else f"every {every} turns"


def _retain(traffic: Traffic) -> tuple[str | None, str]:
    if traffic.days_kept == 0:
        return None, "the memory:// store ends with its process"
    if traffic.days_kept is None:
        return None, "nothing expires by itself; a user can be forgotten at any time"
    return f"{traffic.days_kept}d", (
        "as you said; what is older is not shown from that moment, and removed by a sweep"
    )


def _store(traffic: Traffic) -> tuple[str, str]:
    if traffic.days_kept == 0:
        return "memory://", "nothing is to outlive the process"
    if traffic.hosts > 1:
        return "sqlite:///memory.db", (
            "one file on each host: send each user's calls always to the same host"
        )
    if traffic.processes > 1:
        return "sqlite:///memory.db", (
            f"{traffic.processes} processes of one host may write one file, durable at each commit"
        )
    return "sqlite:///memory.db", "one process, one file, durable at each commit, no server"


def _at_once(traffic: Traffic) -> int:
    """Calls at the same time in the busiest hour, all processes together."""
    length = traffic.messages_a_call * traffic.gap_seconds
    return max(1, math.ceil(_PEAK * traffic.calls_a_day * length / _DAY))


def _kept_messages(traffic: Traffic) -> int:
    days = 365 if traffic.days_kept is None else traffic.days_kept
    return traffic.calls_a_day * traffic.messages_a_call * days


def _memory(traffic: Traffic, messages: int) -> tuple[int, str]:
    processes = traffic.processes * traffic.hosts
    calls = math.ceil(_at_once(traffic) / processes)
    buffers = traffic.call_tokens * _CHARACTERS_PER_TOKEN
    each = _MEMORY_BYTES + messages * (_MEMORY_PER_MESSAGE_BYTES + traffic.characters) + buffers
    index = min(_INDEX_LIMIT_BYTES, _kept_messages(traffic) * _INDEX_BYTES // traffic.hosts)
    return _BASE_BYTES + calls * each + index, (
        f"{in_units(_BASE_BYTES)} for a process, {in_units(each)} for each of {calls:,} calls at "
        f"once, and at most {in_units(index)} of search indexes, the least used let go of "
        f"({_INDEX_BYTES} bytes a message, index_bytes bounds it)"
    )


def _disk(traffic: Traffic) -> tuple[int, str]:
    kept = _kept_messages(traffic)
    each = _DISK_BYTES + _DISK_PER_CHARACTER * traffic.characters
    when = "after a year, growing on" if traffic.days_kept is None else "all hosts together"
    return math.ceil(kept * each), (
        f"{kept:,} messages of {traffic.characters} characters, {each:,.0f} bytes each with their "
        f"search data, {when}"
    )


def _warnings(traffic: Traffic) -> tuple[str, ...]:
    found: list[str] = []
    if traffic.hosts > 1 and traffic.days_kept != 0:
        found.append(
            "this release has no store that several hosts share: route each user to one host, or "
            "bring a store of your own (docs/how-to/write-a-store.md)"
        )
    if traffic.hosts > 1 and traffic.state == "shared":
        found.append("a state shared by several hosts needs such a store; routing does not help")
    writes = _PEAK * traffic.calls_a_day * traffic.messages_a_call / _DAY / traffic.hosts
    if writes > _WRITES_A_SECOND and traffic.days_kept != 0:
        found.append(
            f"about {writes:,.0f} writes a second at the busiest hour on one file, which takes "
            f"about {_WRITES_A_SECOND}: divide the tenants among several files or hosts"
        )
    if traffic.state == "shared" and traffic.days_kept == 0 and traffic.processes > 1:
        found.append("memory:// is not shared between processes; keep it for a day at least")
    return tuple(found)


def _up(value: float, step: int) -> int:
    return math.ceil(value / step) * step


_PROGRAM = """\
import asyncio
from dataclasses import dataclass, field

from secondcall import {imports}


@dataclass
class CallData:
    name: str = ""
    tries: int = 0
    wishes: list[str] = field(default_factory=list)


async def main() -> None:
    async with Memory.open("{url}"{retain}) as memory:
        session = await memory.user("caller-1").session("call-1")
{make}
        await session.buffer(token_limit={token_limit}{every})

        said = Message("user", "A table for two, please.")
        await session.record(said)
        state.add(said)
        state.append("wishes", "a table for two")
        state.increment("tries"){save}

        context = await session.context(
            window={window},
            reserve={reserve},
            shares={shares},
        )
        print(state.data)
        print(context.tokens)


asyncio.run(main())
"""
_SETTINGS = """
            CallData,
            ttl_seconds={ttl},
            message_limit={messages},
            message_tokens={tokens},
        )"""


def program(traffic: Traffic, plan: Plan) -> str:
    """A Python program with the settings of the plan, which runs as it is."""
    settings = _SETTINGS.format(
        ttl=plan.ttl_seconds, messages=plan.message_limit, tokens=plan.message_tokens
    )
    if plan.keep:
        make = f"        kept = await session.shortterm({settings}\n        state = kept.memory"
    else:
        make = f"        state = ShortTermMemory({settings}"
    return _PROGRAM.format(
        imports="Memory, Message" if plan.keep else "Memory, Message, ShortTermMemory",
        url=plan.url,
        retain="" if plan.retain is None else f', retain="{plan.retain}"',
        make=make,
        token_limit=plan.token_limit,
        every="" if plan.summarise_every is None else f", every={plan.summarise_every}",
        save="\n        await kept.save()" if plan.keep else "",
        window=traffic.window,
        reserve=plan.reserve,
        shares=json.dumps(dict(plan.shares)),
    )
