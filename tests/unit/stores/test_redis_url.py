"""URLs of Redis, names of keys, and the driver's errors in our words."""

from __future__ import annotations

import inspect
import sys
from typing import Any, cast

import pytest
import redis.exceptions
from hypothesis import given
from hypothesis import strategies as st

from secondcall.abc_state import StateKey
from secondcall.errors import InvalidValue, MissingExtra, StoreBusy, StoreError, StoreUnavailable
from secondcall.registry import state_store_from_url
from secondcall.stores.redis import RedisStates
from secondcall.stores.redis_keys import Keys, level, session_of
from secondcall.stores.redis_link import map_error
from secondcall.stores.redis_timers import score
from secondcall.stores.redis_url import parse_url

IDS = st.text(max_size=20) | st.sampled_from(
    ["{a}", "a:b", "a}:{b", "#1", "%7B", "", ":", "}", "{"]
)
NAMES = IDS.filter(lambda one: "\x00" not in one and not any("\ud800" <= c < "\ue000" for c in one))


@pytest.mark.parametrize(
    ("url", "nodes", "cluster", "tls"),
    [
        ("redis://host", [("host", 6379)], False, False),
        ("redis://host:7000/3", [("host", 7000)], False, False),
        ("redis://[::1]:7000", [("::1", 7000)], False, False),
        ("rediss://host?ssl_check_hostname=0&cluster=1", [("host", 6379)], True, True),
        ("redis-cluster://one:1,two:2", [("one", 1), ("two", 2)], True, False),
        ("redis://one,two?cluster=1", [("one", 6379), ("two", 6379)], True, False),
    ],
)
def test_urls_are_read(url: str, nodes: list[tuple[str, int]], cluster: bool, tls: bool) -> None:
    """Every form of URL names its servers."""
    settings = parse_url(url)
    assert (list(settings.nodes), settings.cluster, settings.tls) == (nodes, cluster, tls)
    assert isinstance(state_store_from_url(url), RedisStates)


def test_login_and_options_are_read() -> None:
    """User, password, database and options come out as they were meant, and the password is not
    shown."""
    settings = parse_url(
        "unix://me:p%40ss@/run/redis%20x.sock?db=3&wait=2&cas=watch&durable=commit&prefix=a.b:"
        "&connections=4&timeout_seconds=2.5"
    )
    assert settings.socket_path == "/run/redis x.sock"
    assert (settings.options["username"], settings.options["password"]) == ("me", "p@ss")
    assert (settings.options["db"], settings.wait, settings.cas) == (3, 2, "watch")
    assert (settings.durable, settings.prefix, settings.connections) == ("commit", "a.b:", 4)
    assert settings.timeout_seconds == 2.5
    assert "p@ss" not in repr(settings)
    assert isinstance(state_store_from_url("unix:///run/redis.sock"), RedisStates)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://host?nosuch=1", "no option 'nosuch'"),
        ("redis://host?cas=lua", "cas is 'lua', expected 'script' or 'watch'"),
        ("redis://host?wait=0", "wait is '0'"),
        ("redis://host?prefix={a}", "prefix is '{a}'"),
        ("redis://host?timeout_seconds=0", "timeout_seconds is 0.0"),
        ("redis://host:99999", "port"),
        ("redis://host/one", "db is 'one'"),
        ("redis-cluster://host/1", "db is '1'"),
        ("unix://?cluster=1", "socket"),
        ("redis://host#part", "not of one of the forms"),
    ],
)
def test_wrong_urls_are_refused(url: str, said: str) -> None:
    """What is not accepted is named, and the URL with its password is not shown."""
    with pytest.raises(InvalidValue, match=said) as caught:
        parse_url(url.replace("://host", "://me:secret@host"))
    assert "secret" not in str(caught.value)


def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without redis-py the error says what to install."""
    monkeypatch.setitem(sys.modules, "redis.asyncio.connection", None)
    for name in [one for one in sys.modules if one.startswith("secondcall.stores.redis")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra, match=r"secondcall\[redis\]"):
        state_store_from_url("redis://host")


@given(NAMES, NAMES, NAMES, NAMES)
def test_users_never_share_a_tag(one: str, two: str, three: str, four: str) -> None:
    """Whatever the ids hold, users have tags of their own, which lead back to them, and only the
    tag is between braces."""
    keys = Keys("p:")
    first, second = keys.user(one, two), keys.user(three, four)
    assert (first.tag == second.tag) == ((one, two) == (three, four))
    assert keys.of_tag(first.tag) == first
    assert first[:2] == (one, two)
    assert first.base.count(b"{") == first.base.count(b"}") == 1
    # An index is never taken for a user.
    assert b"#" not in first.tag
    assert all(b":#" in shard.users for shard in keys.index(one))
    state = keys.of(StateKey(one, two, three)).state(three)
    assert state.startswith(first.base)


@given(st.lists(NAMES.filter(bool), unique=True, max_size=9))
def test_levels_sort_as_states_are_listed(names: list[str]) -> None:
    """The user-wide state comes first, then sessions by code points, and each leads back."""
    levels = [level(None), *(level(one) for one in sorted(names))]
    assert levels == sorted(levels)
    assert [session_of(one) for one in levels] == [None, *sorted(names)]


@given(st.integers(-(2**63), 2**63 - 1))
def test_scores_are_never_late(time_us: int) -> None:
    """What Redis sorts by is the time, or a little earlier where its numbers are too coarse."""
    assert int(score(time_us)) <= time_us
    assert abs(time_us) > 2**53 or score(time_us) == time_us


def test_every_error_of_the_driver_is_mapped() -> None:
    """Each class of the driver's errors becomes one of ours, without its text."""
    kinds = [
        kind
        for _, kind in inspect.getmembers(redis.exceptions, inspect.isclass)
        if issubclass(kind, Exception)
    ]
    assert len(kinds) > 20
    for kind in kinds:
        made = cast("Any", kind).__new__(kind)
        made.args = ("secret text",)
        found = map_error(made)
        assert isinstance(found, StoreError)
        assert "secret text" not in str(found)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (redis.exceptions.BusyLoadingError("x"), StoreBusy, "nothing was written"),
        (redis.exceptions.TryAgainError("x"), StoreBusy, "nothing was written"),
        (redis.exceptions.ResponseError("BUSY a script"), StoreBusy, "nothing was written"),
        (redis.exceptions.ResponseError("MISCONF x"), StoreUnavailable, "cannot save to its disk"),
        (redis.exceptions.ResponseError("NOREPLICAS x"), StoreUnavailable, "too few replicas"),
        (redis.exceptions.OutOfMemoryError("x"), StoreUnavailable, "maxmemory"),
        (redis.exceptions.ReadOnlyError("x"), StoreUnavailable, "replica"),
        (redis.exceptions.NoPermissionError("x"), StoreUnavailable, "ACL"),
        (redis.exceptions.AuthenticationError("x"), StoreUnavailable, "password"),
        (TimeoutError(), StoreUnavailable, "not known"),
        (ConnectionResetError(), StoreUnavailable, "cannot be reached"),
    ],
)
def test_errors_say_what_is_wrong(error: Exception, kind: type[Exception], said: str) -> None:
    """What may be repeated, what an operator must do, and whether it was written."""
    found = map_error(error)
    assert type(found) is kind
    assert said in str(found)
