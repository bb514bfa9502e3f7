"""What a URL of Redis or Valkey says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from secondcall.errors import InvalidValue

__all__ = ["Address", "RedisSettings", "parse_url"]

Address = tuple[str, int]

_PORT = 6379
_FORMS = "redis://user:password@host:6379/0, rediss://…, unix:///path/redis.sock, redis-cluster://…"
_OPTIONS: dict[str, tuple[str, str]] = {
    "cas": (r"script|watch", "'script' or 'watch'"),
    "cluster": (r"[01]", "1 or 0"),
    "connections": (r"[1-9][0-9]{0,3}", "a number from 1 to 9999"),
    "db": (r"[0-9]{1,5}", "a number"),
    "durable": (r"commit|best_effort", "'commit' or 'best_effort'"),
    "prefix": (r"[A-Za-z0-9_.:-]{1,64}", "letters, digits and '_.:-', at most 64"),
    "ssl_ca_certs": (r".+", "the path of a file"),
    "ssl_certfile": (r".+", "the path of a file"),
    "ssl_check_hostname": (r"[01]", "1 or 0"),
    "ssl_keyfile": (r".+", "the path of a file"),
    "timeout_seconds": (r"[0-9]{1,5}(\.[0-9]+)?", "a number from 0.1 to 86400"),
    "wait": (r"[1-9]", "a number of replicas from 1 to 9"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """What the URL says.

    ``options`` goes to the driver's connections and may hold a password. ``connections``: at most
    so many to each server for each event loop. ``wait``: how many replicas must have a write before
    it is acknowledged. ``cas`` and ``durable``: ``None`` finds out.
    """

    nodes: Sequence[Address]
    options: dict[str, Any] = field(repr=False)
    socket_path: str = ""
    tls: bool = False
    cluster: bool = False
    prefix: str = "secondcall:"
    cas: Literal["script", "watch"] | None = None
    durable: Literal["commit", "best_effort"] | None = None
    wait: int = 0
    connections: int = 32
    timeout_seconds: float = 10.0


def parse_url(url: str) -> RedisSettings:
    """The settings in ``redis://host:6379/0?durable=commit``.

    Raises: ``InvalidValue`` naming the option that is not accepted; the URL itself is not shown,
    since it may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "redis-cluster", "unix") or parts.fragment:
        raise InvalidValue(f"the URL is not of one of the forms {_FORMS}")
    given = _options(parts.query)
    cluster = parts.scheme == "redis-cluster" or given.get("cluster") == "1"
    path = unquote(parts.path)
    login, _, places = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options: dict[str, Any] = {
        "username": unquote(user) or None,
        "password": unquote(password) or None,
        **{name: value for name, value in given.items() if name.startswith("ssl_")},
    }
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"] == "1"
    is_socket = parts.scheme == "unix"
    db = given.get("db") or ("" if is_socket else path.strip("/")) or "0"
    if not db.isdecimal() or (cluster and db != "0"):
        raise InvalidValue(f"db is {db!r}, expected a number, and 0 in a cluster")
    if is_socket and (cluster or not path):
        raise InvalidValue("unix:// needs the path of one server's socket, with three slashes")
    seconds = float(given.get("timeout_seconds", "10"))
    if not 0.1 <= seconds <= 86_400:
        raise InvalidValue(f"timeout_seconds is {seconds}, expected 0.1 to 86400")
    return RedisSettings(
        nodes=[("", 0)] if is_socket else [_address(one) for one in places.split(",")],
        options={**options, "db": int(db)},
        socket_path=path if is_socket else "",
        tls=parts.scheme == "rediss",
        cluster=cluster,
        prefix=given.get("prefix", "secondcall:"),
        cas=cast("Any", given.get("cas")),
        durable=cast("Any", given.get("durable")),
        wait=int(given.get("wait", "0")),
        connections=int(given.get("connections", "32")),
        timeout_seconds=seconds,
    )


def _options(query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise InvalidValue(
                f"redis:// has no option {name!r}; known are {', '.join(sorted(_OPTIONS))}"
            )
        form, expected = _OPTIONS[name]
        if not re.fullmatch(form, value):
            raise InvalidValue(f"{name} is {value!r}, expected {expected}")
        given[name] = value
    return given


def _address(place: str) -> Address:
    try:
        parts = urlsplit(f"//{place}")
        return unquote(parts.hostname or "localhost"), parts.port or _PORT
    except ValueError:
        raise InvalidValue("the URL's port is not a number from 1 to 65535") from None
