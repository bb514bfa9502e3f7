"""The way to Redis or Valkey: connections for each event loop, the map of a cluster's slots, and
the driver's errors in our words.

Commands go to the node of their key on plain connections, one server or many alike; a slot that has
moved is looked up again. Connections belong to the event loop that made them and are closed with
the store, or when the loop shuts down, whichever comes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from secondcall.errors import MissingExtra, NotOpen, StoreBusy, StoreError, StoreUnavailable
from secondcall.stores.redis_url import Address, RedisSettings

try:
    import redis.asyncio.connection as _connection
    import redis.crc as _crc
    import redis.exceptions as _exceptions
except ImportError:
    raise MissingExtra("redis:// needs redis; pip install 'secondcall[redis]'") from None

__all__ = ["Command", "Line", "Link", "is_refused", "map_error", "pause_seconds"]

T = TypeVar("T")
Command = Sequence[bytes]

# The driver's types are too loose to be of help.
_driver: Any = _connection
_errors: Any = _exceptions
_key_slot = cast("Callable[[bytes], int]", cast("Any", _crc).key_slot)
Refusal = cast("type[Exception]", _errors.ResponseError)
"""An error that the server answered with."""

_SLOTS = 16_384
_MOST_HOPS = 16
_FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.01, 0.5
_MOST_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 5.0


def map_error(error: BaseException) -> StoreError:
    """The driver's or the server's error as one of ours, without any value in it."""
    if isinstance(error, StoreError):
        return error
    name = type(error).__name__
    text = str(error)
    word = text.partition(" ")[0]
    if isinstance(error, (_errors.BusyLoadingError, _errors.TryAgainError)) or word == "BUSY":
        return StoreBusy(f"Redis cannot do it at the moment ({name}); nothing was written")
    if isinstance(error, (_errors.AuthenticationError, _errors.NoPermissionError)) or word in (
        "NOAUTH",
        "WRONGPASS",
    ):
        return StoreUnavailable(f"Redis refuses this user ({name}): check user, password and ACL")
    if isinstance(error, (_errors.TimeoutError, TimeoutError)):
        return StoreUnavailable("Redis did not answer in time; whether it was written is not known")
    for kind, advice in _REFUSED.items():
        if word == kind or name == kind:
            return StoreUnavailable(f"Redis {advice} ({name}); nothing was written")
    if isinstance(error, Refusal):
        return StoreUnavailable(f"Redis answered with an error ({name}, {word!r})")
    return StoreUnavailable(
        f"Redis cannot be reached ({name}); what was under way may have been written or not"
    )


def is_refused(error: BaseException, *words: str) -> bool:
    """Whether the server does not know these commands, or does not let this user run them."""
    text = str(error).lower()
    named = any(f"'{word}" in text for word in words)
    return named and (isinstance(error, _errors.NoPermissionError) or "unknown command" in text)


_REFUSED = {
    "OutOfMemoryError": "is at its maxmemory",
    "ReadOnlyError": "is a replica now",
    "MISCONF": "cannot save to its disk",
    "NOREPLICAS": "has too few replicas (min-replicas-to-write)",
    "MASTERDOWN": "has lost its primary",
    "MasterDownError": "has lost its primary",
    "ClusterDownError": "Cluster is down",
    "EXECABORT": "refuses a command of the transaction",
    "ExecAbortError": "refuses a command of the transaction",
}


class Line:
    """One connection, used by one task at a time. ``asking``: it follows a slot that is on its way
    to another node."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self.asking = False

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        """Send all at once; their replies, errors of the server among them.

        Raises: the driver's errors, when no answer can be had.
        """
        sent: Sequence[Command] = commands
        if self.asking:
            sent = [one for command in commands for one in ((b"ASKING",), command)]
        replies: list[Any] = []
        async with asyncio.timeout(self._seconds):
            await self._connection.send_packed_command(_packed(sent), check_health=False)
            for _ in sent:
                try:
                    replies.append(await self._connection.read_response())
                except Refusal as error:
                    replies.append(error)
        return replies[1::2] if self.asking else replies

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """As ``send``, raising the first error."""
        replies = await self.send(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies


def _packed(commands: Sequence[Command]) -> bytes:
    """The commands as they are sent. All words are bytes already, which the driver would look at
    one by one."""
    parts: list[bytes] = []
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            parts += (b"$%d\r\n" % len(word), word, b"\r\n")
    return b"".join(parts)


class _Pool:
    """The connections of one event loop to one server: idle ones, the last used on top."""

    def __init__(self, settings: RedisSettings, address: Address) -> None:
        self._settings = settings
        self._address = address
        self._free = asyncio.Semaphore(settings.connections)
        self._idle: list[Any] = []
        self._closed = False

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncGenerator[Line]:
        """A connection that nobody else uses meanwhile. Raises: ``StoreBusy``, driver errors."""
        seconds = self._settings.timeout_seconds
        if self._free.locked():
            try:
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            except TimeoutError:
                raise StoreBusy(
                    f"all {self._settings.connections} connections were in use for {seconds} s; "
                    "nothing was written"
                ) from None
        else:
            await self._free.acquire()
        connection: Any = None
        try:
            connection = await self._ready()
            yield Line(connection, seconds)
        except (Refusal, StoreError):
            raise
        except BaseException:  # cancelled too; raised on
            # A reply may still be under way, and whatever is idle is likely to be dead as well.
            await _drop(connection, *self._idle)
            self._idle.clear()
            connection = None
            raise
        finally:
            if connection is not None and self._closed:
                await _drop(connection)
            elif connection is not None and connection.is_connected:
                self._idle.append(connection)
            self._free.release()

    async def _ready(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            try:
                # Also true when the server has closed it. Before redis-py 8 it had another name.
                readable = getattr(connection, "can_read", None) or connection.can_read_destructive
                if connection.is_connected and not await readable():
                    return connection
            except (_errors.RedisError, OSError):
                pass
            await _drop(connection)
        connection = self._new()
        try:
            async with asyncio.timeout(min(_MOST_CONNECT_SECONDS, self._settings.timeout_seconds)):
                await connection.connect()
        except BaseException as error:  # cancelled too: nothing stays half open; raised on
            await _drop(connection)
            if isinstance(error, (_errors.RedisError, OSError)):
                raise self._no_connection(error) from None
            raise
        return connection

    def _no_connection(self, error: BaseException) -> StoreError:
        if isinstance(error, (Refusal, _errors.AuthenticationError, _errors.BusyLoadingError)):
            return map_error(error)
        host, port = self._address
        place = f"{host}:{port}" if host else "the socket"
        why = type(error.__cause__ or error.__context__ or error).__name__
        return StoreUnavailable(f"Redis at {place} cannot be reached ({why}); nothing was written")

    def _new(self) -> Any:
        settings = self._settings
        given = {"protocol": 2, "socket_timeout": None, **settings.options}
        if settings.socket_path:
            return _driver.UnixDomainSocketConnection(path=settings.socket_path, **given)
        kind = _driver.SSLConnection if settings.tls else _driver.Connection
        host, port = self._address
        return kind(host=host, port=port, socket_keepalive=True, **given)

    async def aclose(self) -> None:
        """Wait for those that are out, and close all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for _ in range(self._settings.connections):
                    await self._free.acquire()
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(Exception):  # whatever it says, it is over
                await connection.disconnect()


async def _drop(*connections: Any) -> None:
    """Close at once. This gives nobody else a turn, so that a cancelled task gets through it."""
    for connection in connections:
        if connection is not None:
            with contextlib.suppress(_errors.RedisError, OSError):
                await connection.disconnect(nowait=True)


class _Lane:
    """The pools of one event loop."""

    def __init__(self) -> None:
        self.pools: dict[Address, _Pool] = {}
        self.guard: AsyncGenerator[None] | None = None

    async def aclose(self) -> None:
        for pool in [*self.pools.values()]:
            await pool.aclose()


class Link:
    """The connections of a store, for every event loop it is used from."""

    def __init__(self, settings: RedisSettings) -> None:
        self.settings = settings
        self._loops: dict[asyncio.AbstractEventLoop, _Lane] = {}
        self._changing = threading.Lock()
        self._is_open = False
        self._slots: Sequence[Address | None] = ()

    def begin(self) -> None:
        """Let connections be made, which happens when they are used."""
        self._is_open = True

    async def aclose(self) -> None:
        """Close the connections of all loops, once what they do is done."""
        with self._changing:
            self._is_open = False
            loops, self._loops = self._loops, {}
        here = asyncio.get_running_loop()
        for loop, lane in loops.items():
            if loop is here:
                await _end(lane)
            elif loop.is_running():
                with contextlib.suppress(TimeoutError, RuntimeError):
                    await asyncio.wait_for(_run_in(loop, _end(lane)), 2 * _CLOSE_SECONDS)

    def check_open(self) -> None:
        """Raises: ``NotOpen``."""
        if not self._is_open:
            raise NotOpen("the state store is not open; use it between open() and aclose()")

    async def run(self, key: bytes, work: Callable[[Line], Awaitable[T]]) -> T:
        """Do ``work`` on a connection to the node that has ``key``. It is done again elsewhere when
        the node says that it has not, which it says before it has done anything.

        Raises: ``NotOpen``, ``StoreBusy``, ``StoreUnavailable``.
        """
        lane = await self._lane()
        ask_at: Address | None = None
        for hop in range(_MOST_HOPS):
            try:
                address = ask_at or await self._find(lane, key)
                async with self._pool(lane, address).line() as line:
                    line.asking = ask_at is not None
                    return await work(line)
            except _errors.AskError as error:
                if not self.settings.cluster:
                    raise StoreUnavailable(
                        "the server is part of a cluster; use redis-cluster:// or ?cluster=1"
                    ) from None
                ask_at = None
                if isinstance(error, _errors.MovedError):
                    self._slots = ()
                else:
                    ask_at = (str(error.host), int(error.port))
            except (_errors.TryAgainError, _errors.ClusterDownError) as error:
                ask_at, self._slots = None, ()
                if hop == _MOST_HOPS - 1:
                    raise map_error(error) from None
                await asyncio.sleep(pause_seconds(hop))
            except (_errors.RedisError, OSError) as error:
                # Another node may have taken its slots over; the next call looks.
                self._slots = ()
                raise map_error(cast("Exception", error)) from None
        raise StoreBusy("the cluster is moving this slot to and fro; nothing was written")

    async def ask(self, key: bytes, *commands: Command) -> list[Any]:
        """The replies of commands on keys of one slot, sent at once, each on its own.

        Raises: as ``run``.
        """

        async def work(line: Line) -> list[Any]:
            replies = await line.send(commands)
            for reply in replies:
                if isinstance(reply, Exception) and not _is_elsewhere(reply):
                    raise reply
            return replies

        replies = await self.run(key, work)
        for place, reply in enumerate(replies):
            # While a slot is on its way each of its keys is at one end or the other.
            if _is_elsewhere(reply):
                address = (str(reply.host), int(reply.port))
                _, replies[place] = await self.on(
                    address, lambda line, place=place: line.ask([(b"ASKING",), commands[place]])
                )
        return replies

    async def ask_all(self, asked: Sequence[tuple[bytes, Sequence[Command]]]) -> list[list[Any]]:
        """As ``ask`` for several keys: what lies on one server is sent to it at once."""
        if self.settings.cluster:
            return await asyncio.gather(*(self.ask(key, *commands) for key, commands in asked))
        replies = iter(await self.ask(b"", *(one for _, commands in asked for one in commands)))
        return [[next(replies) for _ in commands] for _, commands in asked]

    async def primaries(self) -> Sequence[Address]:
        """Where the data is. Raises: as ``run``."""
        lane = await self._lane()
        if not self.settings.cluster:
            return self.settings.nodes[:1]
        try:
            await self._find(lane, b"")
        except (_errors.RedisError, OSError) as error:
            raise map_error(cast("Exception", error)) from None
        return sorted({one for one in self._slots if one is not None})

    async def on(self, address: Address, work: Callable[[Line], Awaitable[T]]) -> T:
        """Do ``work`` on a connection to this node. Raises: as ``run``, and ``Refusal``."""
        lane = await self._lane()
        try:
            async with self._pool(lane, address).line() as line:
                return await work(line)
        except Refusal:
            raise
        except (_errors.RedisError, OSError) as error:
            raise map_error(cast("Exception", error)) from None

    async def check_settled(self, key: bytes) -> None:
        """Raises: ``StoreBusy`` while the key's slot is being moved from node to node."""
        if not self.settings.cluster:
            return
        slot = b"%d" % _key_slot(key)
        nodes = await self.primaries()
        count = (b"CLUSTER", b"COUNTKEYSINSLOT", slot)
        found = [await self.on(one, lambda line: line.ask([count])) for one in nodes]
        if sum(keys > 0 for (keys,) in found) > 1:
            raise StoreBusy("the cluster is moving this user's slot; repeat it when that is done")

    def _pool(self, lane: _Lane, address: Address) -> _Pool:
        pool = lane.pools.get(address)
        if pool is None:
            pool = lane.pools[address] = _Pool(self.settings, address)
        return pool

    async def _find(self, lane: _Lane, key: bytes) -> Address:
        if not self.settings.cluster:
            return self.settings.nodes[0]
        slots = self._slots or await self._look_up(lane)
        found = slots[_key_slot(key)]
        if found is None:
            self._slots = ()
            raise _errors.ClusterDownError("CLUSTERDOWN no node has this slot")
        return found

    async def _look_up(self, lane: _Lane) -> Sequence[Address | None]:
        """Ask any node that answers which node has which slot."""
        problem: Exception = _errors.ConnectionError("no node of the cluster answers")
        known = [*dict.fromkeys((*self.settings.nodes, *lane.pools))]
        for address in random.sample(known, len(known)):
            try:
                async with self._pool(lane, address).line() as line:
                    (ranges,) = await line.ask([(b"CLUSTER", b"SLOTS")])
            except (_errors.RedisError, OSError, StoreBusy) as error:
                problem = cast("Exception", error)
                continue
            slots: list[Address | None] = [None] * _SLOTS
            for first, last, (host, port, *_), *_ in ranges:
                # A node that does not know its own name means the one that it was reached by.
                name = bytes(host or b"").decode()
                owner = (address[0] if name in ("", "?") else name, int(port))
                slots[first : last + 1] = [owner] * (last + 1 - first)
            self._slots = slots
            return slots
        raise problem

    async def _lane(self) -> _Lane:
        self.check_open()
        loop = asyncio.get_running_loop()
        known = self._loops.get(loop)
        if known is not None:
            return known
        with self._changing:
            self.check_open()
            lane = self._loops[loop] = _Lane()
        # A loop that ends closes the generators that were begun in it, and with this one the
        # connections, which nobody could close afterwards.
        lane.guard = self._until_the_loop_ends(loop, lane)
        await anext(lane.guard)
        return lane

    async def _until_the_loop_ends(
        self, loop: asyncio.AbstractEventLoop, lane: _Lane
    ) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            with self._changing:
                if self._loops.get(loop) is lane:
                    del self._loops[loop]
            await lane.aclose()


def _is_elsewhere(reply: Any) -> bool:
    return isinstance(reply, _errors.AskError) and not isinstance(reply, _errors.MovedError)


def pause_seconds(number: int) -> float:
    """How long to wait before trying again after so many times, at random."""
    return random.uniform(0, min(_MOST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2**number))


async def _end(lane: _Lane) -> None:
    if lane.guard is not None:
        await lane.guard.aclose()


async def _run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
