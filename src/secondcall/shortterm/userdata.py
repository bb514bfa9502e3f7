"""Short-term typed state: the user's own fields, the last messages, the intent and flags.

Everything in it is bounded and runs out. It is the object to put into LiveKit's
``AgentSession(userdata=...)``, or to hold yourself: see ``docs/how-to/short-term.md``.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from secondcall.checks import check_id, check_limit
from secondcall.errors import InvalidValue, TooLarge, UsageError
from secondcall.shortterm.copying import Bounds, copied
from secondcall.shortterm.encoding import Unencodable, encode
from secondcall.shortterm.growing import appended, at_path, incremented
from secondcall.shortterm.hints import Types
from secondcall.shortterm.lives import Forward, Lives, left
from secondcall.shortterm.measure import SafeCounter
from secondcall.shortterm.recent import Fitted, Kept, Recent, fitted
from secondcall.shortterm.restoring import read_snapshot
from secondcall.shortterm.shape import OWN_NAMES, Shape, same
from secondcall.shortterm.snapshot import FORMAT, Dropped, Restored, Snapshot, message_json
from secondcall.types import JsonValue, Message

if TYPE_CHECKING:
    from secondcall.abc import Clock, TokenCounter

__all__ = ["ShortTermMemory"]

_log = logging.getLogger("secondcall")

T = TypeVar("T")
R = TypeVar("R")


class ShortTermMemory(Generic[T]):
    """This conversation's typed memory: fields of your own, recent messages, intent and flags.

    ``start`` is your dataclass or pydantic model, or an instance of it; every field needs a
    default. ``ttl_seconds`` is how long a value lives after it was last written, by the
    ``monotonic`` clock: one number for all, ``None`` for ever, or by name (``"*"`` for the rest,
    ``"messages"``, ``"intent"``, ``"flags"``). What has run out is gone at the next read: a field
    has its default again.

    A field holds at most ``max_entries`` entries and ``max_characters`` characters of text and
    bytes, everything inside it counted; ``update`` and ``set`` refuse more, ``append`` lets the
    oldest go. At most ``message_limit`` messages of together ``message_tokens`` tokens are kept.

    Every method is one step: no other thread or task comes in between, and one that raises has
    changed nothing. Plain values are copied in and out; an object that is none (a client, a lock)
    stays the one that it is. Copying the memory with ``copy.copy`` or ``copy.deepcopy``, as
    frameworks do with their state, gives the same memory; ``copy()`` makes another one.

    Raises: ``InvalidValue``; ``UnknownName`` for a name in ``ttl_seconds`` that is no field.
    """

    def __init__(
        self,
        start: type[T] | T,
        *,
        ttl_seconds: float | Mapping[str, float | None] | None = 300.0,
        message_limit: int = 10,
        message_tokens: int = 1_000,
        flag_limit: int = 100,
        max_entries: int = 1_000,
        max_characters: int = 100_000,
        counter: TokenCounter | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Clock | None = None,
    ) -> None:
        kind = cast("type[T]", start if isinstance(start, type) else type(start))
        self._shape = Shape(kind)
        self._lives = Lives(ttl_seconds, self._shape)
        self._bounds = Bounds(
            check_limit("max_entries", max_entries),
            check_limit("max_characters", max_characters, maximum=1_000_000_000),
        )
        self._flag_limit = check_limit("flag_limit", flag_limit)
        self._recent = Recent(
            limit=check_limit("message_limit", message_limit),
            max_tokens=check_limit("message_tokens", message_tokens),
        )
        self._counter = None if counter is None else SafeCounter.of(counter)
        self._monotonic = Forward(monotonic)
        self._clock = clock
        self._lock = threading.RLock()
        self._writing = False
        self._ends: dict[str, float] = {}
        self._flags: dict[str, float] = {}
        self._intent: tuple[str, float] | None = None
        self._fallen: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._shortened = 0
        fresh = self._shape.fresh()
        self._data: T = self._shape.copied(fresh, self._bounds)
        if not isinstance(start, type):
            self._take(start, self._monotonic())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<ShortTermMemory of {self._shape.kind.__name__}, {len(self._ends)} fields set>"

    # Reading

    @property
    def data(self) -> T:
        """A copy of your fields as they are now; change them through ``update``, ``set``,
        ``append`` and ``increment``. Writing to the copy changes nothing here."""
        with self._reading():
            return self._shape.copied(self._data)

    def get(self, path: str, default: object = None) -> object:
        """A copy of one value by its dotted path, such as ``"order.address.city"``: fields, keys
        of dicts and positions in lists; ``default`` where the path ends early.

        Raises: ``UnknownName`` when it does not begin with a field.
        """
        first = path.partition(".")[0]
        self._shape.check_names("the path", {first: None})
        with self._reading():
            return copied(at_path(self._data, path, default))

    def left_seconds(self, name: str) -> float | None:
        """How long a field will live if nobody writes it; ``None`` when it never expires or has its
        default already. Raises: ``UnknownName``."""
        self._shape.check_names("left_seconds", {name: None})
        with self._reading() as now:
            return left(self._ends.get(name, math.inf), now)

    @property
    def messages(self) -> list[Message]:
        """The last messages that have not run out, oldest first; copies."""
        with self._reading():
            return [
                replace(one.message, metadata=copied(one.message.metadata))
                for one in self._recent.kept()
            ]

    @property
    def intent(self) -> str | None:
        """What the user wants, as it was set last."""
        with self._reading():
            return None if self._intent is None else self._intent[0]

    @property
    def flags(self) -> frozenset[str]:
        """The flags that stand."""
        with self._reading():
            return frozenset(self._flags)

    @property
    def dropped(self) -> Dropped:
        """What the limits cost so far."""
        with self._lock:
            return Dropped(
                entries=dict(self._fallen),
                refused=dict(self._refused),
                shortened_messages=self._shortened,
            )

    # Writing

    def update(self, change: Callable[[T], R]) -> R:
        """Let ``change`` work on a copy of your fields and take the copy over: all of it, or
        nothing if it raises. A new instance that it returns takes the place of the copy.

        The life of every field that changed begins anew. Gives a copy of what ``change`` returns:
        ``memory.update(lambda d: d.queue.pop(0))``. Inside, the memory can be read, and shows what
        was before; writing to it is an error. Keep it short: other threads wait.

        Raises: ``TooLarge`` naming the field, ``InvalidValue``, ``UnknownName`` for an attribute
        that is no field, ``UsageError`` inside another update, and whatever ``change`` raises.
        """
        with self._changing("update") as now:
            working = self._shape.copied(self._data)
            result = change(working)
            given = copied(result)
            self._take(self._chosen(result, working), now)
            return given

    def set(self, /, **values: object) -> None:
        """Give fields these values and a new life, also where the value is the same.

        Raises: ``UnknownName``, ``TooLarge``, ``InvalidValue``, ``UsageError`` inside an update.
        """
        self._shape.check_names("set", values)
        with self._changing("set") as now:
            working = self._shape.copied(self._data)
            if self._shape.frozen:
                working = self._shape.replaced(working, values)
            else:
                for name, value in values.items():
                    setattr(working, name, value)
            self._take(working, now)
            self._ends.update({name: self._lives.end(name, now) for name in values})

    def touch(self, *names: str) -> None:
        """Begin the life of fields anew without changing them; those at their default stay so.
        Raises: ``UnknownName``, ``UsageError`` inside an update."""
        self._shape.check_names("touch", dict.fromkeys(names))
        with self._changing("touch") as now:
            for name in names:
                if name in self._ends:
                    self._ends[name] = self._lives.end(name, now)

    def increment(self, name: str, by: int = 1) -> int:
        """Add to a counter; what it is then. No increment is lost, whoever else is at it.

        Raises: ``InvalidValue`` when field or step is no whole number; ``TooLarge``,
        ``UnknownName``, ``UsageError`` inside an update.
        """
        self._shape.check_names("increment", {name: None})
        with self._changing("increment") as now:
            with self._counting_refusals(name):
                value = incremented(name, getattr(self._data, name), by)
                copied(value, name, self._bounds)
            self._put(name, value, now)
            return value

    def append(self, name: str, value: object, *, limit: int | None = None) -> int:
        """Add to the end of a list, and let the oldest go beyond ``limit`` entries (at most
        ``max_entries``) or beyond the characters that a field may hold; how many went.

        Raises: ``TooLarge`` for a value that does not fit alone; ``InvalidValue`` when the field is
        no list; ``UnknownName``, ``UsageError`` inside an update.
        """
        self._shape.check_names("append", {name: None})
        if limit is not None:
            check_limit("limit", limit)
        with self._changing("append") as now:
            with self._counting_refusals(name):
                values, fell = appended(
                    name, getattr(self._data, name), value, limit=limit, bounds=self._bounds
                )
            self._put(name, values, now)
            self._fell(name, fell)
            return fell

    def add(self, *messages: Message) -> int:
        """Take messages in; how many older ones went for them. One that is larger than all of
        ``message_tokens`` is held by its beginning, with a mark that says so.

        Raises: ``InvalidValue``, ``TooLarge`` naming the message; ``UsageError`` inside an update.
        """
        ready = [self._fitted(f"messages[{n}]", one) for n, one in enumerate(messages)]
        with self._changing("add") as now:
            ends_at = self._lives.end("messages", now)
            fell = 0
            for message, tokens, cut in ready:
                self._shortened += cut
                fell += self._recent.add(Kept(message, tokens, ends_at))
            self._fell("messages", fell)
            return fell

    def set_intent(self, intent: str | None) -> None:
        """Say what the user wants, in 1 to 1,024 characters; ``None`` for nothing known."""
        if intent is not None:
            check_id("intent", intent)
        with self._changing("set_intent") as now:
            self._intent = None if intent is None else (intent, self._lives.end("intent", now))

    def set_flag(self, name: str) -> None:
        """Let a flag stand, with a new life. Raises: ``TooLarge`` beyond ``flag_limit``."""
        check_id("flag", name)
        with self._changing("set_flag") as now:
            if name not in self._flags and len(self._flags) >= self._flag_limit:
                self._refuse("flags")
                raise TooLarge(f"{self._flag_limit:,} flags stand already; clear some first")
            self._flags[name] = self._lives.end("flags", now)

    def clear_flag(self, name: str) -> bool:
        """Take a flag down; whether it stood."""
        with self._changing("clear_flag"):
            return self._flags.pop(name, None) is not None

    def clear(self, *names: str) -> None:
        """Put these fields back to their defaults (``messages``, ``intent`` and ``flags`` are
        names too); without names everything. Raises: ``UnknownName``."""
        chosen = names or (*self._shape.names, *OWN_NAMES)
        self._shape.check_names("clear", {name: None for name in chosen if name not in OWN_NAMES})
        with self._changing("clear"):
            self._reset([name for name in chosen if name not in OWN_NAMES])
            if "messages" in chosen:
                self._recent.replace(())
            if "intent" in chosen:
                self._intent = None
            if "flags" in chosen:
                self._flags.clear()

    # Carrying it over

    def copy(self) -> ShortTermMemory[T]:
        """Another memory with the same settings, content and remaining lives."""
        with self._reading():
            other = ShortTermMemory[T](
                self._shape.kind,
                ttl_seconds=self._lives.setting,
                message_limit=self._recent.limit,
                message_tokens=self._recent.max_tokens,
                flag_limit=self._flag_limit,
                max_entries=self._bounds.entries,
                max_characters=self._bounds.characters,
                counter=self._counter,
                monotonic=self._monotonic.copy(),
                clock=self._clock,
            )
            other._data = self._shape.copied(self._data)
            other._ends, other._flags = dict(self._ends), dict(self._flags)
            other._intent = self._intent
            other._recent.replace(self._recent.kept())
            return other

    def snapshot(self) -> Snapshot:
        """Everything that has not run out, as JSON. What cannot be held is left out and named in
        ``skipped`` with the reason: live objects, classes that your type does not name."""
        with self._reading() as now:
            types = Types(self._shape.fresh())
            skipped: dict[str, JsonValue] = {}
            fields: dict[str, JsonValue] = {}
            for name, ends_at in self._ends.items():
                try:
                    value = encode(getattr(self._data, name), name, types)
                except Unencodable as error:
                    skipped[name] = str(error)
                else:
                    fields[name] = {"value": value, "left_seconds": left(ends_at, now)}
            return Snapshot(
                format=FORMAT,
                type=self._shape.kind.__name__,
                at=self._now().isoformat(),
                names=[name for name in self._shape.names if name not in skipped],
                fields=fields,
                flags={name: left(ends_at, now) for name, ends_at in self._flags.items()},
                intent={}
                if self._intent is None
                else {"value": self._intent[0], "left_seconds": left(self._intent[1], now)},
                messages=[
                    {**message_json(one.message), "left_seconds": left(one.ends_at, now)}
                    for one in self._recent.kept()
                ],
                skipped=skipped,
            )

    def restore(self, snapshot: Mapping[str, JsonValue]) -> Restored:
        """Hold what a snapshot holds, and say field by field what became of it.

        The time since the snapshot counts against every life; a clock that went back adds none.
        Messages, intent and flags are replaced too. Unknown and missing names and changed types are
        named, never raised.

        Raises: ``InvalidValue`` for what is no snapshot or one of another format; then nothing has
        changed. ``UsageError`` inside an update.
        """
        found = read_snapshot(
            snapshot, self._shape, self._lives, self._bounds, wall_now=self._now()
        )
        messages = [self._fitted("messages", one) for one, _ in found.messages]
        with self._changing("restore") as now:
            self._reset([name for name in self._shape.names if name not in found.report.missing])
            self._data = self._shape.replaced(self._data, found.values)
            self._ends.update({name: now + life for name, life in found.lives.items()})
            self._intent = found.intent and (found.intent[0], now + found.intent[1])
            kept = list(found.flags.items())[: self._flag_limit]
            self._flags = {name: now + life for name, life in kept}
            self._fell("flags", len(found.flags) - len(kept))
            self._recent.replace(())
            for (message, tokens, cut), (_, life) in zip(messages, found.messages, strict=True):
                self._shortened += cut
                self._fell("messages", self._recent.add(Kept(message, tokens, now + life)))
            return found.report

    def longest_left_seconds(self) -> float | None:
        """How long until everything has run out: 0 when nothing is held, ``None`` for never."""
        with self._reading() as now:
            ends = [*self._ends.values(), *self._flags.values(), now]
            ends.extend(one.ends_at for one in self._recent.kept())
            if self._intent is not None:
                ends.append(self._intent[1])
            return left(max(ends), now)

    # Inside

    def _now(self) -> datetime:
        return datetime.now(UTC) if self._clock is None else self._clock.now().astimezone(UTC)

    @contextmanager
    def _reading(self) -> Generator[float]:
        with self._lock:
            now = self._monotonic()
            if not self._writing:
                self._expire(now)
            yield now

    @contextmanager
    def _changing(self, verb: str) -> Generator[float]:
        with self._lock:
            if self._writing:
                raise UsageError(
                    f"{verb} was called inside an update of the same memory; change what the "
                    "update was given, or call it afterwards"
                )
            now = self._monotonic()
            self._expire(now)
            self._writing = True
            try:
                yield now
            finally:
                self._writing = False

    def _expire(self, now: float) -> None:
        self._reset([name for name, ends_at in self._ends.items() if ends_at <= now])
        self._recent.expire(now)
        for name in [name for name, ends_at in self._flags.items() if ends_at <= now]:
            del self._flags[name]
        if self._intent is not None and self._intent[1] <= now:
            self._intent = None

    def _reset(self, names: list[str]) -> None:
        if not names:
            return
        fresh = self._shape.copied(self._shape.fresh())
        self._data = self._shape.replaced(
            self._data, {name: getattr(fresh, name) for name in names}
        )
        for name in names:
            self._ends.pop(name, None)

    def _take(self, working: T, now: float) -> None:
        """Hold a copy of ``working``; what is new in it lives anew."""
        if type(working) is type(self._data):
            self._shape.check_stray(self._data, working)
        values: dict[str, object] = {}
        for name in self._shape.names:
            with self._counting_refusals(name):
                values[name] = self._shape.field_of(working, name, self._bounds)
        changed = [
            name for name, value in values.items() if not same(getattr(self._data, name), value)
        ]
        with self._counting_refusals("other attributes"):
            self._data = self._shape.owned(working, values, self._bounds)
        self._ends.update({name: self._lives.end(name, now) for name in changed})

    def _chosen(self, result: object, working: T) -> T:
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise InvalidValue("update takes a plain function, not an async one")
        return result if isinstance(result, self._shape.kind) else working

    def _put(self, name: str, value: object, now: float) -> None:
        self._data = self._shape.replaced(self._data, {name: value})
        self._ends[name] = self._lives.end(name, now)

    def _fitted(self, field: str, message: Message) -> Fitted:
        if self._counter is None:
            from secondcall.registry import default_counter  # it reads the vocabulary

            self._counter = SafeCounter.of(default_counter())
        return fitted(
            field,
            message,
            max_tokens=self._recent.max_tokens,
            max_characters=self._bounds.characters,
            counter=self._counter,
        )

    @contextmanager
    def _counting_refusals(self, name: str) -> Generator[None]:
        try:
            yield
        except TooLarge:
            self._refuse(name)
            raise

    def _refuse(self, name: str) -> None:
        self._refused[name] += 1
        _log.info("short-term memory refused what is over its limit", extra={"field": name})

    def _fell(self, name: str, count: int) -> None:
        if count:
            self._fallen[name] += count
            _log.debug(
                "short-term memory let the oldest entries go", extra={"field": name, "count": count}
            )
