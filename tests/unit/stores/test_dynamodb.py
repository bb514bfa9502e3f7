"""What the state store on DynamoDB does beside the contract: URLs, tables, faults, expiry, erasure.

Throttling, conflicts of transactions and lost answers are made by a proxy: the emulator is never
busy and loses nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import anyio.to_thread
import pytest
from services.dynamodb import Fault, Proxy, Server, dynamodb_server, dynamodb_url, refusal

from secondcall.abc_state import StateConflict, StateKey
from secondcall.errors import (
    InvalidValue,
    NotOpen,
    SchemaTooNew,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
    TooLarge,
    UnknownName,
    UserErased,
)
from secondcall.registry import state_store_from_url, store_from_url
from secondcall.stores.dynamodb import DynamoStates, state_store
from secondcall.stores.dynamodb_calls import Calls, DynamoSettings, parse_url
from secondcall.stores.dynamodb_items import (
    FORM_KEY,
    USER,
    Item,
    binary,
    counter_key,
    history_key,
    number,
    state_key,
    text,
    user_partition,
)
from secondcall.stores.dynamodb_rows import Rows, key_at
from secondcall.testing.conformance.state_material import (
    EPOCH,
    KEY,
    NOW_US,
    OTHER_EPOCH,
    WIDE,
    save,
    session,
    total,
)

pytestmark = [pytest.mark.external_service, pytest.mark.anyio]

ALICE = user_partition("tenant", "alice")
CONFLICT = refusal(
    "TransactionCanceledException",
    CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict"}, {"Code": "None"}],
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The emulator, or what ``TEST_DYNAMODB_ENDPOINT`` names."""
    with dynamodb_server() as found:
        yield found


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """What stands before it in each test."""
    with Proxy(server.endpoint) as found:
        yield found


@pytest.fixture
def url(server: Server, proxy: Proxy) -> str:
    """An empty place behind the proxy."""
    return dynamodb_url(server.table(), proxy.endpoint)


@pytest.fixture
async def states(url: str) -> AsyncIterator[DynamoStates]:
    """An open store that has let *alice* in."""
    store = state_store(url)
    await store.open()
    await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
    yield store
    await store.aclose()


@pytest.fixture
async def calls(url: str, states: DynamoStates) -> AsyncIterator[Calls]:
    """The same table, past the store."""
    found = Calls(parse_url(url))
    found.start()
    yield found
    await found.stop()


async def _opened(url: str, **changes: Any) -> DynamoStates:
    store = DynamoStates(Calls(replace(parse_url(url), **changes)))
    await store.open()
    return store


def test_url_says_table_region_and_endpoint() -> None:
    """Every option of a URL is read."""
    url = "dynamodb://my.table-1?region=eu-west-1&endpoint=http%3A%2F%2F127.0.0.1%3A8000&create=1"
    assert parse_url(f"{url}&timeout_seconds=2.5") == DynamoSettings(
        table="my.table-1",
        region="eu-west-1",
        endpoint="http://127.0.0.1:8000",
        create=True,
        timeout_seconds=2.5,
    )
    assert parse_url("dynamodb://abc") == DynamoSettings(table="abc")
    assert isinstance(state_store_from_url("dynamodb://abc"), DynamoStates)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("dynamodb://", "table"),
        ("dynamodb://ab", "'ab'"),
        ("dynamodb://a%20b%20c", "'a b c'"),
        ("dynamodb://table/path", "form"),
        ("dynamodb://table#x", "form"),
        ("dynamodb://AKIA:secret@table", "credentials"),
        ("dynamodb://table?endpoint=http://AKIA:secret@host", "endpoint"),
        ("dynamodb://table?endpoint=host:8000", "endpoint"),
        ("dynamodb://table?create=yes", "'yes'"),
        ("dynamodb://table?timeout_seconds=x", "'x'"),
        ("dynamodb://table?timeout_seconds=600", "'600'"),
        ("dynamodb://table?password=x", "'password'"),
    ],
)
def test_bad_urls_are_refused(url: str, named: str) -> None:
    """What is wrong with a URL is named, and credentials are not shown."""
    with pytest.raises(InvalidValue) as caught:
        state_store(url)
    assert named in str(caught.value)
    assert "secret" not in str(caught.value)


def test_records_are_not_kept_here() -> None:
    """A memory whose records should be in DynamoDB is told that only states can be."""
    with pytest.raises(UnknownName, match="state="):
        store_from_url("dynamodb://table")


def test_missing_package_names_its_install_line() -> None:
    """Without aiobotocore the error says what to install."""
    code = (
        "import sys\n"
        "sys.modules['aiobotocore'] = None\n"
        "from secondcall.errors import MissingExtra\n"
        "try:\n"
        "    import secondcall.stores.dynamodb\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    )
    assert "pip install 'secondcall[dynamodb]'" in done.stdout


async def test_absent_table_is_made_only_when_asked(url: str) -> None:
    """Without ``create=1`` the error holds the command that makes the table."""
    with pytest.raises(StoreUnavailable) as caught:
        await _opened(url, create=False)
    assert f"aws dynamodb create-table --table-name {parse_url(url).table} " in str(caught.value)
    await (await _opened(url)).aclose()
    await (await _opened(url, create=False)).aclose()


async def test_other_tables_are_left_alone(calls: Calls, url: str, server: Server) -> None:
    """A table with other keys is not written to."""
    table = server.table()
    await calls.send(
        "create_table",
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    with pytest.raises(StoreUnavailable, match="other keys"):
        await _opened(url, table=table)
    assert (await calls.send("scan", TableName=table))["Count"] == 0


async def test_newer_table_is_refused(calls: Calls, url: str) -> None:
    """A table that a newer release made is not touched; one without its form is corrupt."""
    table = calls.settings.table
    await calls.send("put_item", TableName=table, Item={**FORM_KEY, "form": number(2)})
    with pytest.raises(SchemaTooNew, match="form 2"):
        await _opened(url)
    await calls.send("put_item", TableName=table, Item=FORM_KEY)
    with pytest.raises(StoreCorrupt):
        await _opened(url)


@pytest.mark.parametrize(
    "answer",
    [
        refusal("ProvisionedThroughputExceededException"),
        refusal("ThrottlingException"),
        refusal("RequestLimitExceeded"),
        refusal("TransactionInProgressException"),
        refusal("InternalServerError", status=500),
        refusal("ServiceUnavailable", status=503),
        CONFLICT,
        None,
    ],
)
async def test_busy_moments_are_waited_out(
    states: DynamoStates, proxy: Proxy, answer: bytes | None
) -> None:
    """A request that was throttled, in conflict or lost is sent again, and done once."""
    proxy.faults = [Fault("TransactWriteItems", answer, times=2)]
    assert (await save(states, b"1")).version == 1
    assert proxy.faults[0].times == 0
    assert len(await states.history(KEY, limit=9)) == 1


@pytest.mark.parametrize("answer", [refusal("ThrottlingException"), CONFLICT])
async def test_waiting_has_an_end(url: str, proxy: Proxy, answer: bytes) -> None:
    """When DynamoDB stays busy, the save fails with ``StoreBusy`` and nothing was written."""
    store = await _opened(url, timeout_seconds=0.2)
    await store.admit("tenant", "alice", epoch=EPOCH, now_us=NOW_US)
    proxy.faults = [Fault("TransactWriteItems", answer, times=1_000)]
    with pytest.raises(StoreBusy, match=r"0\.2 s"):
        await save(store, b"1")
    proxy.faults.clear()
    assert await store.load(KEY) is None
    await store.aclose()


@pytest.mark.parametrize(
    "code", ["AccessDeniedException", "ExpiredTokenException", "UnrecognizedClientException"]
)
async def test_refusals_are_not_repeated(states: DynamoStates, proxy: Proxy, code: str) -> None:
    """What will not change by waiting fails at once, and names DynamoDB's reason."""
    proxy.faults = [Fault("GetItem", refusal(code), times=9)]
    with pytest.raises(StoreUnavailable, match=code):
        await states.load(KEY)
    assert proxy.faults[0].times == 8


async def test_lost_answers_do_not_do_it_twice(states: DynamoStates, proxy: Proxy) -> None:
    """A save whose answer was lost is sent again under the same token: one version, no conflict."""
    proxy.faults = [Fault("TransactWriteItems", passed_on=True, times=2)]
    assert (await save(states, b"1", due_us=NOW_US)).version == 1
    assert proxy.seen["TransactWriteItems"] == 4
    assert len(await states.history(KEY, limit=9)) == 1
    proxy.faults = [Fault("UpdateItem", passed_on=True)]
    assert await states.claim_due("tenant", now_us=NOW_US, limit=9, holder="h", seconds=1) == [KEY]


async def test_answers_that_stay_lost_are_unavailable(states: DynamoStates, proxy: Proxy) -> None:
    """Whoever is never answered is told so, also when the save was done; it is then found."""
    proxy.faults = [Fault("TransactWriteItems", passed_on=True, times=9)]
    with pytest.raises(StoreUnavailable):
        await save(states, b"1")
    proxy.faults.clear()
    with pytest.raises(StateConflict) as caught:
        await save(states, b"1")
    assert caught.value.current == await states.load(KEY)


async def test_garbage_is_unavailable(states: DynamoStates, proxy: Proxy) -> None:
    """What a portal or proxy answers instead is taken neither for absence nor for success."""
    body = b"<html>busy</html>"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    faults = [Fault("GetItem", head + body, times=9)]
    faults.append(Fault("TransactWriteItems", head + body, times=9))
    proxy.faults = faults
    with pytest.raises(StoreUnavailable, match="somebody else"):
        await states.load(KEY)
    with pytest.raises(StoreUnavailable, match="somebody else"):
        await save(states)


async def test_a_lost_region_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a region or credentials the error says where they come from."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(StoreUnavailable, match="region"):
        await state_store("dynamodb://table").open()


async def test_conflict_needs_no_read(states: DynamoStates, proxy: Proxy) -> None:
    """A refused save carries the present state although nothing was read."""
    current = await save(states, b"1")
    proxy.seen.clear()
    with pytest.raises(StateConflict) as caught:
        await save(states, b"2", expected=9)
    assert caught.value.current == current
    assert proxy.seen == {"TransactWriteItems": 1}


async def test_items_over_the_limit_say_their_size(states: DynamoStates) -> None:
    """The longest ids beside the largest body fit; what does not is refused with its size."""
    wide = "🙂" * 1_000
    key = StateKey(wide, wide, wide)
    await states.admit(wide, wide, epoch=EPOCH, now_us=NOW_US)
    most = states.capabilities.max_state_bytes
    saved = await save(states, bytes(most - 2), key=key, by=wide, due_us=1, expires_us=1)
    assert await states.load(key) == saved
    with pytest.raises(TooLarge, match=r"item of 41\d,\d\d\d bytes") as caught:
        await save(states, bytes(most - 2), by="🙂" * 13_000)
    assert "409,600" in str(caught.value)


async def test_long_ids_that_begin_alike_are_listed_in_order(states: DynamoStates) -> None:
    """Session ids whose sort keys do not tell their order still come in it, page by page."""
    names = ["x" * 899, "x" * 900, *(f"{'x' * 950}{one}" for one in "hfdbacegij"), "x" * 901, "y"]
    keys = [WIDE, *(session(one) for one in sorted(names))]
    for key in keys:
        await save(states, key=key)
    for limit in (1, 4, 99):
        seen = [*await states.list("tenant", "alice", limit=limit)]
        while page := await states.list("tenant", "alice", after=seen[-1], limit=limit):
            assert len(page) <= limit
            seen += page
        assert seen == keys


async def _expire(calls: Calls) -> Item:
    """Delete the state as DynamoDB's own expiry does; what it was."""
    answer = await calls.send(
        "delete_item",
        TableName=calls.settings.table,
        Key=key_at(ALICE, state_key("s")),
        ReturnValues="ALL_OLD",
    )
    return answer["Attributes"]


async def test_versions_go_on_over_expiry(states: DynamoStates, calls: Calls) -> None:
    """A state that DynamoDB let expire is absent, and saved again goes on counting."""
    await save(states, b"1", expires_us=NOW_US)
    await save(states, b"2", expected=1, expires_us=NOW_US)
    ttl = int((await _expire(calls))["ttl"]["N"])
    assert time.time() + 86_000 < ttl < time.time() + 87_000
    assert await states.load(KEY) is None
    with pytest.raises(StateConflict) as caught:
        await save(states, b"3", expected=2)
    assert caught.value.current is None
    assert (await save(states, b"3")).version == 3
    assert "ttl" not in await _expire(calls)
    assert [one.version for one in await states.history(KEY, limit=9)] == [3, 2, 1]


async def test_expiry_again_and_deletion_keep_the_count(states: DynamoStates, calls: Calls) -> None:
    """Expired, saved to expire again, expired, saved, deleted and saved: no version comes twice."""
    await save(states, b"1", expires_us=NOW_US)
    await _expire(calls)
    assert (await save(states, b"2", expires_us=NOW_US)).version == 2
    await _expire(calls)
    assert (await save(states, b"3", expires_us=NOW_US)).version == 3
    await states.delete(KEY, expected_version=3, epoch=EPOCH, now_us=NOW_US, by="test")
    assert (await save(states, b"5")).version == 5
    removed = await states.erase("tenant", "alice")
    assert removed == {"partitions": 1, "states": 1, "state_history": 5, "state_counters": 1}


async def _interrupt(states: DynamoStates, proxy: Proxy) -> None:
    """Begin to erase *alice*, and fail in the middle."""
    for number_ in range(5):
        await save(states, key=session(f"s{number_}"), expires_us=NOW_US)
    proxy.faults = [Fault("DeleteItem", refusal("AccessDeniedException"), times=99)]
    with pytest.raises(StoreUnavailable):
        await states.erase("tenant", "alice")
    assert await total(states) > 1
    with pytest.raises(UserErased):
        await save(states, expected=1, key=session("s0"))


async def test_interrupted_erasure_is_completed_at_open(
    states: DynamoStates, proxy: Proxy, url: str, calls: Calls
) -> None:
    """An erasure that failed in the middle lets nothing in, and the next ``open`` completes it."""
    await _interrupt(states, proxy)
    proxy.faults.clear()
    other = await _opened(url)
    assert await total(other) == 0
    left = (await calls.send("scan", TableName=calls.settings.table))["Items"]
    assert not any(word in repr(left) for word in ("alice", "tenant", "s0"))
    assert len(left) == 2
    await other.aclose()


async def test_returning_user_completes_the_erasure(states: DynamoStates, proxy: Proxy) -> None:
    """Before a user is let in again, what is left of the last time goes."""
    await _interrupt(states, proxy)
    proxy.faults.clear()
    await states.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
    assert await total(states) == 1
    assert (await save(states, epoch=OTHER_EPOCH, key=session("s0"))).version == 1


async def test_late_deletion_spares_who_came_back(states: DynamoStates, calls: Calls) -> None:
    """A deletion that was under way when its user was erased and came back takes nothing new."""
    await save(states)
    rows = Rows(calls)
    old = await rows.item(ALICE, state_key("s"))
    old_row = await rows.item(ALICE, history_key("s", 1))
    assert old is not None
    assert old_row is not None
    await states.erase("tenant", "alice")
    await states.admit("tenant", "alice", epoch=OTHER_EPOCH, now_us=NOW_US)
    await save(states, epoch=OTHER_EPOCH)
    assert await rows.delete([old, old_row]) == [False, False]
    assert await states.load(KEY) is not None
    assert len(await states.history(KEY, limit=9)) == 1


async def test_corrupt_items_are_named(states: DynamoStates, calls: Calls) -> None:
    """An item that lacks an attribute, or holds the ids of another, is ``StoreCorrupt``; the
    history is still read."""
    await save(states, b"secret")
    rows = Rows(calls)
    good = await rows.item(ALICE, state_key("s"))
    assert good is not None
    changes: list[Item] = [
        {"body": text("secret")},
        {"version": text("1")},
        {"at_us": {"N": "1.5"}},
        {"user_id": text("bob")},
        {"by": number(1)},
    ]
    for change in changes:
        bad: Item = {**good, **change}
        await calls.send("put_item", TableName=calls.settings.table, Item=bad)
        with pytest.raises(StoreCorrupt) as caught:
            await states.load(KEY)
        assert "secret" not in str(caught.value)
        assert [one.body for one in await states.history(KEY, limit=9)] == [b"secret"]


async def test_backups_hold_what_was_erased(states: DynamoStates, calls: Calls) -> None:
    """With point-in-time recovery on, an erasure is not complete, and it says for how long."""
    assert (await states.finish_erasure()).complete
    await calls.send(
        "update_continuous_backups",
        TableName=calls.settings.table,
        PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
    )
    result = await states.finish_erasure()
    assert not result.complete
    assert "35 days" in result.detail


async def test_what_may_not_be_asked_is_said(states: DynamoStates, proxy: Proxy) -> None:
    """Who may not see the table's settings is told so, and takes no erasure for complete."""
    denied = refusal("AccessDeniedException")
    proxy.faults = [Fault("DescribeContinuousBackups", denied), Fault("DescribeTimeToLive", denied)]
    result = await states.finish_erasure()
    assert not result.complete
    assert "AccessDenied" in result.detail
    (line,) = await states.problems()
    assert "AccessDenied" in line
    proxy.faults = [Fault("DescribeContinuousBackups", refusal("UnknownOperationException"))]
    assert (await states.finish_erasure()).complete


async def test_opening_again_in_an_outage_closes_nothing(
    states: DynamoStates, proxy: Proxy
) -> None:
    """A store that is open stays so when it is opened once more while DynamoDB is away."""
    proxy.cut()
    await states.open()
    proxy.mend()
    assert (await save(states)).version == 1


async def test_closing_closes_the_clients_of_all_loops(states: DynamoStates) -> None:
    """What another thread's event loop used is closed with the store, while that loop runs on."""
    begun, done = threading.Event(), threading.Event()

    async def use() -> None:
        await save(states)
        begun.set()
        await anyio.to_thread.run_sync(done.wait)
        with pytest.raises(NotOpen):
            await states.load(KEY)

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    await anyio.to_thread.run_sync(begun.wait)
    await states.aclose()
    done.set()
    await anyio.to_thread.run_sync(thread.join)


async def test_table_without_expiry_is_a_problem(states: DynamoStates, calls: Calls) -> None:
    """The self-check says when DynamoDB does not delete what has expired."""
    assert list(await states.problems()) == []
    await calls.send(
        "update_time_to_live",
        TableName=calls.settings.table,
        TimeToLiveSpecification={"Enabled": False, "AttributeName": "ttl"},
    )
    (line,) = await states.problems()
    assert "ttl" in line


async def test_keys_hold_no_ids_of_users(states: DynamoStates, calls: Calls) -> None:
    """A partition's key is a hash; the user's counter and history are hashes too."""
    await save(states, expires_us=NOW_US)
    for sort_key in (USER, counter_key("s"), history_key("s", 1)):
        assert await Rows(calls).item(ALICE, sort_key) is not None
        assert b"alice" not in ALICE + sort_key
    assert key_at(ALICE, USER) == {"pk": binary(ALICE), "sk": binary(b"u")}
