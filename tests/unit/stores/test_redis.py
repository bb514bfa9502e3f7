"""States in Redis beside the contract: what the server allows, clusters in motion, interruptions,
timers in two places, erasure in the server's files."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import anyio
import pytest
from services.redis import (
    DURABLE,
    WRITTEN,
    Cluster,
    Node,
    Server,
    running,
)

from secondcall.abc_state import StateConflict, StateKey
from secondcall.errors import SchemaTooNew, StoreBusy, StoreCorrupt, StoreUnavailable, UserErased
from secondcall.stores import redis_erase
from secondcall.stores import redis_server as server_module
from secondcall.stores.redis import RedisStates
from secondcall.stores.redis_keys import Keys, UserKeys
from secondcall.stores.redis_link import Link
from secondcall.stores.redis_steps import Guard, Outcome, Step, Steps
from secondcall.stores.redis_timers import Timers
from secondcall.stores.redis_url import parse_url
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    OTHER_EPOCH,
    add,
    all_history,
    save,
    session,
    total,
)

pytestmark = [pytest.mark.external_service, pytest.mark.anyio]

SECOND_US = 1_000_000


@pytest.fixture
def server(redis_quick: Server) -> Server:
    """One server; its acknowledged writes are in its file, and not always on disk."""
    return redis_quick


@pytest.fixture
def cluster(redis_in_three: Cluster) -> Cluster:
    """Three servers as a cluster."""
    return redis_in_three


@pytest.fixture
def place(server: Server) -> str:
    """The URL of an empty place."""
    return server.url()


@pytest.fixture
async def states(place: str) -> AsyncIterator[RedisStates]:
    """An open store that has let *alice* in."""
    async with opened(place) as store:
        yield store


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncGenerator[RedisStates]:
    """A store over this place that has let *alice* in."""
    store = RedisStates(url)
    await store.open()
    try:
        await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        yield store
    finally:
        await store.aclose()


@contextlib.asynccontextmanager
async def linked(url: str) -> AsyncGenerator[tuple[Link, Keys]]:
    """A connection below the store."""
    settings = parse_url(url)
    link = Link(settings)
    link.begin()
    yield link, Keys(settings.prefix)
    await link.aclose()


def ours(server: Server) -> Node:
    """The server, if we run it and may change its settings."""
    if not isinstance(server, Node):
        pytest.skip("this needs a server of our own, and TEST_REDIS_URL names another")
    return server


async def claim(store: RedisStates, at: float = 0.0, limit: int = 99) -> list[StateKey]:
    """Claim for a minute, so many seconds after the tests' time."""
    now_us = NOW_US + round(at * SECOND_US)
    return [*await store.claim_due("tenant", now_us=now_us, limit=limit, holder="test", seconds=60)]


# What the server allows


async def test_refused_scripts_are_done_without(server: Server, caplog: Any) -> None:
    """Where an ACL refuses scripts WATCH is used, with a warning; ``?cas=script`` insists."""
    node = ours(server)
    user = ("ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-eval", "-evalsha")
    assert node.ask(*user) == "+OK"
    url = node.url().replace("redis://", "redis://plain:pw@")
    async with opened(url) as store:
        assert "refuses scripts" in caplog.text
        await save(store, b"1", due_us=NOW_US)
        assert (await save(store, b"2", expected=1, due_us=NOW_US)).version == 2
        with pytest.raises(StateConflict):
            await save(store, b"2", expected=1)
        assert await claim(store) == [KEY]
    with pytest.raises(StoreUnavailable, match="run no scripts"):
        await RedisStates(url + "&cas=script").open()


async def test_scripts_may_be_refused_later(server: Server) -> None:
    """A store whose scripts are refused while it is open goes on without them."""
    node = ours(server)
    node.ask("ACL", "SETUSER", "later", "on", ">pw", "~*", "&*", "+@all")
    async with opened(node.url().replace("redis://", "redis://later:pw@")) as store:
        await save(store, b"1")
        node.ask("ACL", "SETUSER", "later", "-@scripting")
        assert (await save(store, b"2", expected=1)).version == 2
        assert [one.body for one in await all_history(store)] == [b"1", b"2"]


async def test_forgotten_scripts_are_sent_again(server: Server, states: RedisStates) -> None:
    """A server that has lost its scripts, as after a restart, is given them again."""
    node = ours(server)
    await save(states)
    assert node.ask("SCRIPT", "FLUSH") == "+OK"
    assert (await save(states, expected=1)).version == 2


async def test_both_ways_work_side_by_side(place: str) -> None:
    """Processes that run scripts and others that may not lose no update between them."""
    async with opened(place) as one, opened(place + "&cas=watch") as two:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(add, one if number % 2 else two, 10)
        found = await one.load(KEY)
        assert found is not None
        assert (found.body, found.version) == (b"80", 80)
        assert list(await two.problems()) == []


async def test_wrong_login_is_said(server: Server) -> None:
    """A wrong password, or keys that the user may not touch, are not a lost connection."""
    node = ours(server)
    node.ask("ACL", "SETUSER", "few", "on", ">pw", "~other:*", "&*", "+@all")
    for login in ("few:wrong", "few:pw"):
        with pytest.raises(StoreUnavailable, match="ACL") as caught:
            await RedisStates(node.url().replace("redis://", f"redis://{login}@")).open()
        assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("--appendonly", "no"), "persistence is off"),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "appendfsync is 'everysec'"),
        ((*DURABLE, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), "allkeys-lru"),
    ],
)
async def test_durability_that_is_asked_for_is_checked(settings: Sequence[str], said: str) -> None:
    """``?durable=commit`` is refused where a crash may lose what was acknowledged, saying what to
    set; without it the store says that it is best effort."""
    with running(*settings) as node:
        with pytest.raises(StoreUnavailable, match=said):
            await RedisStates(node.url("&durable=commit")).open()
        async with opened(node.url()) as store:
            assert store.capabilities.durable == "best_effort"
        for change in (
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory-policy", "noeviction"),
        ):
            assert node.ask("CONFIG", "SET", *change) == "+OK"
        async with opened(node.url("&durable=commit")) as store:
            assert store.capabilities.durable == "commit"
        async with opened(node.url("&durable=best_effort")) as store:
            assert store.capabilities.durable == "best_effort"


async def test_hidden_settings_prove_nothing(server: Server) -> None:
    """Where CONFIG is not allowed ``?durable=commit`` says so, and erasing says what to run."""
    node = ours(server)
    node.ask("ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", "+@all", "-config", "-info")
    url = node.url().replace("redis://", "redis://blind:pw@")
    with pytest.raises(StoreUnavailable, match="CONFIG GET is not allowed"):
        await RedisStates(url + "&durable=commit").open()
    async with opened(url) as store:
        assert store.capabilities.durable == "best_effort"
        result = await store.finish_erasure()
        assert not result.complete
        assert "BGREWRITEAOF" in result.detail


async def test_part_of_a_cluster_is_named(cluster: Cluster) -> None:
    """A node of a cluster named as one server is refused, saying which URL to use."""
    with pytest.raises(StoreUnavailable, match="redis-cluster://"):
        await RedisStates(cluster.nodes[0].url()).open()


async def test_newer_form_is_refused(place: str) -> None:
    """What a newer release has written is left alone."""
    async with linked(place) as (link, keys):
        await link.ask(keys.schema, (b"SET", keys.schema, b"99"))
        with pytest.raises(SchemaTooNew, match="form 99"):
            await RedisStates(place).open()
        await link.ask(keys.schema, (b"SET", keys.schema, b"x"))
        with pytest.raises(StoreCorrupt):
            await RedisStates(place).open()


async def test_socket_is_a_way_in() -> None:
    """``unix://`` reaches a server by its socket."""
    folder = tempfile.mkdtemp(prefix="redis")
    with running("--unixsocket", f"{folder}/s.sock") as node:
        async with opened(f"unix://{folder}/s.sock?db=2") as store:
            await save(store)
        assert node.ask("DBSIZE") == ":0"
    shutil.rmtree(folder)


# Replicas


async def test_replicas_are_waited_for() -> None:
    """With ``?wait=1`` a save returns when a replica has it; without one in time it fails, and says
    that it was written. The replica itself is refused."""
    with (
        running(*WRITTEN, "--repl-diskless-sync-delay", "0") as node,
        running("--replicaof", "127.0.0.1", str(node.port)) as copy,
    ):
        with anyio.fail_after(30):
            while not copy.ask("ROLE").startswith("*5"):  # noqa: ASYNC110 - it is another process
                await anyio.sleep(0.02)
        with pytest.raises(StoreUnavailable, match="replica"):
            await RedisStates(copy.url()).open()
        place = node.url("&timeout_seconds=10")
        for version, way in enumerate(("script", "watch")):
            async with opened(f"{place}&wait=1&cas={way}") as store:
                await save(store, b"kept", expected=version or None)
            async with opened(f"{place}&wait=2&cas={way}&timeout_seconds=0.6") as store:
                with pytest.raises(StoreUnavailable, match="only 1 of 2 replicas"):
                    await save(store, b"written", key=session(way))
                assert await store.load(session(way)) is not None


# Clusters


async def test_cluster_is_durable_when_all_are(cluster: Cluster) -> None:
    """A cluster declares durable commits when every node keeps them, and not when one does not."""
    for node in cluster.nodes[:2]:
        node.ask("CONFIG", "SET", "appendfsync", "always")
    with pytest.raises(StoreUnavailable, match=f"{cluster.nodes[2].port}: appendfsync is 'no'"):
        await RedisStates(cluster.url("&durable=commit")).open()
    cluster.nodes[2].ask("CONFIG", "SET", "appendfsync", "always")
    async with opened(cluster.url("&durable=commit")) as store:
        assert store.capabilities.durable == "commit"
    for node in cluster.nodes:
        node.ask("CONFIG", "SET", "appendfsync", "no")


async def test_users_lie_in_one_slot_each(cluster: Cluster) -> None:
    """Everything of a user has one slot, whatever the ids hold, and users are spread."""
    async with opened(cluster.url()) as store:
        names = ["}", "{x}", "a:b", "ü", *(f"user {number}" for number in range(9))]
        for name in names:
            key = StateKey("{t}", name, "{s}")
            await store.admit(*key[:2], epoch=EPOCH, now_us=NOW_US)
            await save(store, key=key, due_us=NOW_US)
            await save(store, key=key, expected=1, due_us=NOW_US)
        claimed = await store.claim_due("{t}", now_us=NOW_US, limit=99, holder="h", seconds=1)
        assert {key.user_id for key in claimed} == set(names)
        assert all(node.ask("DBSIZE") != ":0" for node in cluster.nodes)


async def test_slot_that_moves_is_followed(cluster: Cluster) -> None:
    """While a user's slot is moved to another node nothing is lost: what is asked for is found at
    either end, or fails as busy; afterwards it goes on at the new node."""
    url = cluster.url()
    async with opened(url) as store, linked(url) as (link, keys):
        await save(store, b"1")
        user = keys.of(KEY)
        (slot,) = await link.ask(user.head, (b"CLUSTER", b"KEYSLOT", user.head))
        source = await link.on(
            await link._find(await link._lane(), user.head),  # pyright: ignore[reportPrivateUsage] - which node
            lambda line: line.ask([(b"CLUSTER", b"MYID")]),
        )
        ids = [_myid(node) for node in cluster.nodes]
        here = cluster.nodes[ids.index(source[0].decode())]
        there = cluster.nodes[(ids.index(source[0].decode()) + 1) % 3]
        number = str(slot)
        there.ask("CLUSTER", "SETSLOT", number, "IMPORTING", _myid(here))
        here.ask("CLUSTER", "SETSLOT", number, "MIGRATING", _myid(there))
        found = await link.on(
            ("127.0.0.1", here.port),
            lambda line: line.ask([(b"CLUSTER", b"GETKEYSINSLOT", number.encode(), b"1000000")]),
        )
        for key in found[0]:
            moved = here.ask("MIGRATE", "127.0.0.1", str(there.port), key.decode(), "0", "5000")
            assert moved == "+OK"
            loaded = await store.load(KEY)
            assert loaded is not None
            assert loaded.body == b"1"
            if key != found[0][-1]:
                with pytest.raises(StoreBusy, match="moving"):
                    await store.scan("tenant", "alice")
        for node in (there, here):
            node.ask("CLUSTER", "SETSLOT", number, "NODE", _myid(there))
        with anyio.fail_after(30):
            while True:
                try:
                    assert (await save(store, b"2", expected=1)).version == 2
                except StoreBusy:
                    continue
                break
        assert [one.body for one in await all_history(store)] == [b"1", b"2"]
        assert dict(await store.erase("tenant", "alice"))["state_history"] == 2


def _myid(node: Node) -> str:
    return node.tell("CLUSTER", "MYID")


# Timers in two places


class Stopped(Exception):
    """As if the process ended here."""


class Unsteady(Steps):
    """Steps of a process that ends before or after some of them, once it is ``open``."""

    _is_open = False

    async def open(self, probe_key: bytes) -> None:
        await super().open(probe_key)
        self._is_open = True

    async def run(self, step: Step) -> Outcome:
        if self._is_open and random.random() < 0.06:
            raise Stopped
        outcome = await super().run(step)
        if self._is_open and random.random() < 0.06:
            raise Stopped
        await asyncio.sleep(random.uniform(0, 0.002))
        return outcome


def unsteady(url: str) -> RedisStates:
    """A store whose calls may end anywhere between two steps."""
    store = RedisStates(url)
    replace_steps(store, Unsteady(store._link))  # pyright: ignore[reportPrivateUsage] - to interrupt it
    return store


def replace_steps(store: RedisStates, steps: Steps) -> None:
    """Let the store take other steps."""
    for part in (store, store._timers, store._heads):  # pyright: ignore[reportPrivateUsage] - to interrupt it
        part._steps = steps  # pyright: ignore[reportPrivateUsage] - to interrupt it


async def change_something(store: RedisStates) -> None:
    """A save with a timer or without, a claim, or an erasure."""
    user_id, epoch = random.choice(["u0", "u1", "u2"]), random.choice([EPOCH, OTHER_EPOCH])
    key = session(f"s{random.randrange(3)}", user_id)
    due_us = random.choice([None, NOW_US - 5, NOW_US, NOW_US + 30 * SECOND_US])
    chance = random.random()
    if chance < 0.3:
        await claim(store, random.choice([0, 40, 80, 200]), limit=2)
    elif chance < 0.32:
        await store.erase("tenant", user_id)
    else:
        await store.admit("tenant", user_id, epoch=epoch, now_us=NOW_US)
        found = await store.load(key)
        expected = None if found is None else found.version
        await save(store, key=key, expected=expected, epoch=epoch, due_us=due_us)


async def keys_with_timers(store: RedisStates) -> set[StateKey]:
    """The states of the users above that have a timer."""
    keys = [
        key
        for user_id in ("u0", "u1", "u2")
        for key in await store.list("tenant", user_id, limit=99)
    ]
    found = [await store.load(key) for key in keys]
    return {one.key for one in found if one is not None and one.due_us is not None}


@pytest.mark.parametrize("seed", range(6))
async def test_no_timer_is_lost_whatever_is_interrupted(place: str, seed: int) -> None:
    """Saves with and without timers, claims and erasures that end anywhere leave every timer of a
    state to be found, and none of what is gone."""
    random.seed(seed)
    stores = [unsteady(place) for _ in range(3)]
    for one in stores:
        await one.open()

    async def work(store: RedisStates) -> None:
        for _ in range(60):
            with contextlib.suppress(Stopped, UserErased, StateConflict):
                await change_something(store)

    async with anyio.create_task_group() as tasks:
        for one in stores:
            tasks.start_soon(work, one)
    for one in stores:
        await one.aclose()
    fresh = RedisStates(place)
    await fresh.open()  # completes the erasures
    assert list(await fresh.problems()) == []
    timed = await keys_with_timers(fresh)
    assert set(await claim(fresh, at=10_000)) == timed
    await fresh.aclose()


async def test_earliest_of_all_users_come_first(states: RedisStates) -> None:
    """What is due is given out in its order over all users and shards, page by page."""
    keys = [session(f"s{number}", f"u{number % 7}") for number in range(40)]
    for number, key in enumerate(keys):
        await states.admit("tenant", key.user_id, epoch=EPOCH, now_us=NOW_US)
        await save(states, key=key, due_us=NOW_US - 1_000 + number)
    seen: list[StateKey] = []
    while page := await claim(states, limit=6):
        seen += page
    assert seen == keys


async def test_timer_that_was_announced_in_vain_is_tidied_up(place: str) -> None:
    """An entry of the index whose save never came costs one look, and is gone."""
    async with opened(place) as store, linked(place) as (link, keys):
        timers = Timers(link, Steps(link), keys)
        user = keys.of(KEY)
        assert await timers.announce(user, EPOCH, NOW_US) == b"1"
        assert await timers.entry(user) is not None
        assert await claim(store) == []
        assert await timers.entry(user) is None
        # Of one that is erased meanwhile nothing stays, the name in the index included.
        await timers.announce(user, EPOCH, NOW_US)
        await store.erase("tenant", "alice")
        assert await total(store) == 0
        assert await timers.announce(user, EPOCH, NOW_US) is None


async def test_late_announcement_of_an_erased_user_is_taken_back(place: str) -> None:
    """Whoever finds that the user was erased after writing the index removes the name from it."""
    async with opened(place) as store, linked(place) as (_, keys):
        timers = store._timers  # pyright: ignore[reportPrivateUsage] - to come in between
        announce = timers.announce

        async def erased_after(user: UserKeys, epoch: bytes, due_us: int) -> bytes | None:
            ticket = await announce(user, epoch, due_us)
            await store.erase("tenant", "alice")
            await announce_again(user, due_us)
            return ticket

        async def announce_again(user: UserKeys, due_us: int) -> None:
            shard = keys.index_of(user)
            await store._link.ask(shard.users, (b"ZADD", shard.users, b"5", b"alice"))  # pyright: ignore[reportPrivateUsage] - a write that was on its way

        timers.announce = erased_after
        with pytest.raises(UserErased):
            await save(store, due_us=NOW_US)
        assert await total(store) == 0


# Erasure


async def test_interrupted_erasure_is_completed_at_the_next_open(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends in the middle leaves the rest to whoever opens next; until then nothing
    is read or written."""
    monkeypatch.setattr(redis_erase, "_ERASE_KEYS", 3)
    async with opened(place) as store:
        for number in range(20):
            await save(store, key=session(f"s{number}"), due_us=NOW_US)
        heads = store._heads  # pyright: ignore[reportPrivateUsage] - to interrupt it
        steps = heads._steps  # pyright: ignore[reportPrivateUsage] - to interrupt it
        run, left = steps.run, [6]

        async def few(step: Step) -> Outcome:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped
            return await run(step)

        with monkeypatch.context() as patch:
            patch.setattr(steps, "run", few)
            with pytest.raises(Stopped):
                await store.erase("tenant", "alice")
        assert await total(store) > 0
        for number in range(20):
            assert await store.load(session(f"s{number}")) is None
        assert list(await store.list("tenant", "alice", limit=9)) == []
        assert await claim(store) == []
        with pytest.raises(UserErased):
            await save(store, key=session("s1"), expected=1)
        other = RedisStates(place)
        await other.open()
        assert await total(store) == 0
        with pytest.raises(UserErased):
            await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
        await other.aclose()


async def test_returning_user_finishes_what_was_interrupted(place: str) -> None:
    """Whoever lets the user in again first completes the erasure that another began."""
    async with opened(place) as store:
        await save(store)
        heads = store._heads  # pyright: ignore[reportPrivateUsage] - to stop half way
        user = store._keys.of(KEY)  # pyright: ignore[reportPrivateUsage] - to stop half way
        await heads._detach(user, None)  # pyright: ignore[reportPrivateUsage] - to stop half way
        await store.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
        assert (await save(store, epoch=OTHER_EPOCH)).version == 1
        assert [one.version for one in await store.history(KEY, limit=9)] == [1]


async def test_erased_words_are_gone_from_the_files() -> None:
    """After the cleaning no file of the server holds a word of the user's states, ids or names; a
    neighbour's are there."""
    word, name, kept = (secrets.token_hex(8) for _ in range(3))
    key = StateKey("tenant", name, name)
    with running(*DURABLE) as node:
        assert node.ask("CONFIG", "SET", "save", "3600 1") == "+OK"
        async with opened(node.url()) as store:
            await store.admit("tenant", name, epoch=EPOCH, now_us=NOW_US)
            await save(store, word.encode(), key=key, due_us=NOW_US)
            await save(store, word.encode() * 2, key=key, expected=1, due_us=NOW_US)
            await save(store, kept.encode())
            assert node.ask("SAVE") == "+OK"
            assert word.encode() in node.files()
            await store.erase("tenant", name)
            result = await store.finish_erasure()
            assert result.complete, result.detail
        found = node.files()
    assert kept.encode() in found
    assert word.encode() not in found
    assert name.encode() not in found


async def test_cleaning_that_takes_too_long_is_not_complete(
    states: RedisStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not finish in time is named."""
    monkeypatch.setattr(server_module, "_CLEAN_SECONDS", 0.0)
    result = await states.finish_erasure()
    assert not result.complete
    assert "BGREWRITEAOF was not finished" in result.detail


# What is kept


async def test_history_of_what_has_expired_goes_by_itself(place: str) -> None:
    """The history of a state that expires is kept for 30 days longer, by Redis; a save without
    expiry keeps it for ever. The state itself keeps its version."""
    async with opened(place) as store, linked(place) as (link, keys):
        user = keys.of(KEY)
        changes, state = user.changes("s"), user.state("s")
        await save(store, expires_us=NOW_US + 10 * SECOND_US)
        month = 30 * 86_400
        (left, other) = await link.ask(user.head, (b"TTL", changes), (b"TTL", state))
        assert month < left <= month + 10
        assert other == -1
        await save(store, expected=1, expires_us=NOW_US, due_us=NOW_US + 50 * SECOND_US)
        assert month + 10 < (await link.ask(user.head, (b"TTL", changes)))[0] <= month + 50
        await link.ask(changes, (b"UNLINK", changes))
        assert (await store.load(KEY)) is not None
        assert list(await store.problems()) == []
        await save(store, expected=2, expires_us=2**63 - 1)
        assert (await link.ask(user.head, (b"TTL", changes)))[0] > month
        await save(store, expected=3)
        assert (await link.ask(user.head, (b"TTL", changes)))[0] == -1
        assert [one.version for one in await store.history(KEY, limit=9)] == [4, 3]


DAMAGES: Mapping[str, tuple[Sequence[bytes], str]] = {
    "number": ([b"HSET", b"s", b"at", b"x"], ""),
    "missing": ([b"HDEL", b"s", b"body"], "not as their history says"),
    "version": ([b"HSET", b"s", b"v", b"7"], "not as their history says"),
    "list": ([b"ZREM", b"i", b"1s"], "not that of their states"),
    "timer": ([b"ZREM", b"d", b"1s"], "timers that are not"),
    "state": ([b"UNLINK", b"s"], "history without its state"),
    "epoch": ([b"UNLINK", b"u"], "rows but no epoch"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_is_found(place: str, damage: str) -> None:
    """A value that is not as it was written is ``StoreCorrupt`` and its history can be read; the
    self-check finds what does not belong together."""
    (name, key, *words), said = DAMAGES[damage]
    async with opened(place) as store, linked(place) as (link, keys):
        user = keys.of(KEY)
        await save(store, b"1", due_us=NOW_US)
        await save(store, b"2", expected=1, due_us=NOW_US)
        assert list(await store.problems()) == []
        key = user.state("s") if key == b"s" else user.base + key
        await link.ask(user.head, (name, key, *words))
        if damage in ("number", "missing"):
            with pytest.raises(StoreCorrupt):
                await store.load(KEY)
            with pytest.raises(StoreCorrupt):
                await save(store, expected=1)
            assert [one.body for one in await store.history(KEY, limit=9)] == [b"2", b"1"]
        if said:
            assert any(said in line for line in await store.problems())


async def test_state_without_its_history_is_not_half_written(place: str) -> None:
    """A state whose hash was lost is not begun again over its history: nothing is written."""
    async with opened(place) as store, linked(place) as (link, keys):
        user = keys.of(KEY)
        await save(store, b"1")
        await link.ask(user.head, (b"UNLINK", user.state("s")))
        with pytest.raises(StoreUnavailable):
            await save(store, b"new")
        assert await store.load(KEY) is None


async def test_server_that_is_full_writes_nothing(server: Server) -> None:
    """At ``maxmemory`` a save fails whole, by script and by WATCH, and works again afterwards."""
    node = ours(server)
    for way in ("script", "watch"):
        async with opened(node.url(f"&cas={way}")) as store:
            await save(store, b"1", due_us=NOW_US)
            before = await store.scan("tenant", "alice")
            node.ask("CONFIG", "SET", "maxmemory", "1mb")
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                await save(store, b"2", expected=1)
            node.ask("CONFIG", "SET", "maxmemory", "0")
            assert await store.scan("tenant", "alice") == before
            assert list(await store.problems()) == []
            assert (await save(store, b"2", expected=1)).version == 2


# Connections


async def test_connections_are_few(place: str) -> None:
    """Many tasks share a few connections, and whoever gets none in time is told."""
    async with opened(place + "&connections=2&timeout_seconds=0.3") as store:
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(lambda number=number: save(store, key=session(f"s{number}")))
        assert len(await store.list("tenant", "alice", limit=99)) == 50
        lane = store._link._loops[asyncio.get_running_loop()]  # pyright: ignore[reportPrivateUsage] - to hold them
        (pool,) = lane.pools.values()
        async with pool.line(), pool.line():
            with pytest.raises(StoreBusy, match="all 2 connections"):
                await store.load(KEY)
        assert await store.load(KEY) is None


async def test_slow_server_is_given_up(server: Server) -> None:
    """A server that does not answer in time is unavailable, and its late answer reaches nobody."""
    node = ours(server)
    async with opened(node.url("&timeout_seconds=0.3")) as store:
        await save(store, b"1")
        node.ask("CLIENT", "PAUSE", "900", "ALL")
        with pytest.raises(StoreUnavailable, match="in time"):
            await store.load(KEY)
        await anyio.sleep(1.0)
        found = await store.load(KEY)
        assert found is not None
        assert found.body == b"1"


def test_loop_that_ends_closes_its_connections(place: str) -> None:
    """A store used from one loop after the other leaves no connection open behind."""
    store = RedisStates(place)

    async def work() -> None:
        await store.open()
        await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)

    for _ in range(3):
        asyncio.run(work())
    assert store._link._loops == {}  # pyright: ignore[reportPrivateUsage] - what is open


async def test_guards_mean_the_same_both_ways(place: str) -> None:
    """Each comparison holds or not alike, by script and by WATCH."""
    async with linked(place) as (link, keys), linked(place + "&cas=watch") as (other, _):
        ways = [Steps(link), Steps(other)]
        key = keys.probe + b"-test"
        await link.ask(key, (b"HSET", key, b"n", b"5", b"f", b"-1.5e+18"))
        cases = [
            (Guard(key, b"n", "=", b"5"), True),
            (Guard(key, b"n", "=", b"05"), False),
            (Guard(key, b"x", "=", b""), False),
            (Guard(key, b"n", "!"), False),
            (Guard(key, b"x", "!"), True),
            (Guard(key, b"n", "<=", b"5"), True),
            (Guard(key, b"n", "<=", b"4.9"), False),
            (Guard(key, b"x", "<=", b"5"), False),
            (Guard(key, b"f", "<=", b"-1.5e+18"), True),
            (Guard(key, b"n", "<", b"5"), False),
            (Guard(key, b"n", "<", b"10"), True),
            (Guard(key, b"x", "<", b"1"), True),
            (Guard(key, b"x", "<", b"0"), False),
        ]
        for guard, holds in cases:
            for way in ways:
                outcome = await way.run(Step([guard], [(b"HGET", key, b"n")], answers=True))
                assert outcome.done is holds, (guard, way.by_script)
                assert [*outcome.replies] == ([b"5"] if holds else [])
                assert holds or outcome.seen[key][b"n"] == b"5"


async def test_entry_that_was_moved_meanwhile_is_announced_again(place: str) -> None:
    """A save whose entry in the index was taken away after it was announced announces it again; a
    look from before the announcement takes nothing away."""
    async with opened(place) as store:
        timers = store._timers  # pyright: ignore[reportPrivateUsage] - to come in between
        user = store._keys.of(KEY)  # pyright: ignore[reportPrivateUsage] - to come in between
        announce, tickets = timers.announce, list[bytes | None]()

        async def moved_after(user: UserKeys, epoch: bytes, due_us: int) -> bytes | None:
            tickets.append(await announce(user, epoch, due_us))
            if len(tickets) < 3:
                assert await claim(store) == []
                assert await timers.entry(user) is None
            return tickets[-1]

        timers.announce = moved_after
        await save(store, due_us=NOW_US)
        assert tickets == [b"1", b"2", b"3"]
        before = await timers.entry(user)
        assert before is not None
        await announce(user, EPOCH, NOW_US + 1)
        assert not await timers.drop(before)
        assert await claim(store) == [KEY]
