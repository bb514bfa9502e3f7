"""What a Redis server is set to, and cleaning its files of what was erased."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondcall.abc import ErasureResult
from secondcall.errors import StoreUnavailable
from secondcall.stores.redis_link import Line, Link, Refusal
from secondcall.stores.redis_url import Address

__all__ = ["check_servers", "clean", "is_durable"]

_LOG = logging.getLogger(__name__)
_OLDEST = (7, 0)
_WANTED = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy")
_CLEAN_SECONDS = 30.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class _Server:
    """``config`` is ``None`` when the server does not tell it."""

    name: str
    info: Mapping[str, str]
    config: Mapping[str, str] | None


async def check_servers(link: Link) -> None:
    """Raises: ``StoreUnavailable`` for servers that the contract cannot be kept on."""
    for server in await _servers(link):
        info = server.info
        version = info.get("redis_version", "7.0")
        if tuple(int(one) for one in version.split(".")[:2]) < _OLDEST:
            raise StoreUnavailable(
                f"the server is Redis {version}; 7.0 or newer, or Valkey, is needed"
            )
        if info.get("role", "master") != "master":
            raise StoreUnavailable("the server is a replica; name the primary")
        in_cluster = info.get("cluster_enabled", "0") == "1"
        if in_cluster and not link.settings.cluster:
            raise StoreUnavailable(
                "the server is part of a cluster; use redis-cluster:// or ?cluster=1"
            )


async def is_durable(link: Link) -> bool:
    """Whether every acknowledged write is on disk, on all servers; with ``?durable=commit`` it must
    be.

    Raises: ``StoreUnavailable``, saying what to set.
    """
    wanted = link.settings.durable
    if wanted == "best_effort":
        return False
    problems = [
        f"{server.name}: {problem}"
        for server in await _servers(link)
        if (problem := _not_durable(server))
    ]
    if problems and wanted == "commit":
        raise StoreUnavailable(f"?durable=commit cannot be kept: {'; '.join(problems)}")
    if problems:
        _LOG.info("Redis may lose acknowledged states in a crash: %s", "; ".join(problems))
    return not problems


def _not_durable(server: _Server) -> str:
    """Why acknowledged writes may be lost in a crash, and what to do; empty: they are not."""
    config = server.config
    if config is None:
        return (
            "CONFIG GET is not allowed, so it cannot be seen whether appendonly is 'yes' and "
            "appendfsync 'always'; allow it (ACL +config|get), or leave ?durable=commit out"
        )
    if config.get("appendonly") != "yes":
        return "persistence is off (appendonly is 'no'); set appendonly yes and appendfsync always"
    if config.get("appendfsync") != "always":
        return f"appendfsync is {config.get('appendfsync')!r}; set it to 'always'"
    policy = config.get("maxmemory-policy", "noeviction")
    if config.get("maxmemory", "0") != "0" and policy != "noeviction":
        return f"maxmemory-policy is {policy!r}, which removes states; set it to 'noeviction'"
    return ""


async def clean(link: Link) -> ErasureResult:
    """Have every server write its files anew, without what was erased."""
    problems: list[str] = []
    for address in await link.primaries():
        problem = await link.on(address, _clean)
        if problem:
            problems.append(f"Redis server {_name(address)}: {problem}")
    return ErasureResult(complete=not problems, detail="; ".join(problems))


async def _clean(line: Line) -> str:
    """Why its files may still hold what was erased; empty: they do not."""
    config = await _config(line)
    if config is None:
        return (
            "CONFIG GET is not allowed, so it is not known which files it keeps; run BGREWRITEAOF "
            "and BGSAVE there"
        )
    ways: list[tuple[bytes, str, str]] = []
    if config.get("appendonly") == "yes":
        ways.append((b"BGREWRITEAOF", "aof_rewrite", "aof_last_bgrewrite_status"))
    if config.get("save"):
        ways.append((b"BGSAVE", "rdb_bgsave", "rdb_last_bgsave_status"))
    until = time.monotonic() + _CLEAN_SECONDS
    for command, work, status in ways:
        try:
            if not await _run(line, command, work, until):
                return f"{command.decode()} was not finished within {_CLEAN_SECONDS:.0f} s"
        except Refusal as error:
            return f"{command.decode()} is refused ({type(error).__name__}); run it there"
        if (await _info(line)).get(status, "ok") != "ok":
            return f"{command.decode()} failed; see the server's log"
    return ""


async def _run(line: Line, command: bytes, work: str, until: float) -> bool:
    """Wait for what runs already, which may have begun before the erasure, then run it."""
    begun = False
    while time.monotonic() < until:
        info = await _info(line)
        if all(
            info.get(f"{one}_{state}", "0") == "0"
            for one in ("aof_rewrite", "rdb_bgsave")
            for state in ("in_progress", "scheduled")
        ):
            if begun:
                return True
            (reply,) = await line.send([(command,)])
            # Others may have begun the same in between; then it is asked again.
            if isinstance(reply, Exception) and "in progress" not in str(reply):
                raise reply
            begun = not isinstance(reply, Exception)
        await asyncio.sleep(_LOOK_SECONDS)
    return False


async def _servers(link: Link) -> Sequence[_Server]:
    async def look(line: Line, address: Address) -> _Server:
        return _Server(_name(address), await _info(line), await _config(line))

    return [
        await link.on(address, lambda line, address=address: look(line, address))
        for address in await link.primaries()
    ]


async def _info(line: Line) -> Mapping[str, str]:
    """What the server says of itself; nothing if it may not."""
    (reply,) = await line.send([(b"INFO",)])
    if isinstance(reply, Exception):
        return {}
    pairs = (one.partition(":") for one in bytes(reply).decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in pairs if value}


async def _config(line: Line) -> Mapping[str, str] | None:
    (reply,) = await line.send([(b"CONFIG", b"GET", *(one.encode() for one in _WANTED))])
    if isinstance(reply, Exception):
        return None
    words: list[Any] = [one.decode("utf-8", "replace") for one in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _name(address: Address) -> str:
    host, port = address
    return f"{host}:{port}" if host else "at its socket"
