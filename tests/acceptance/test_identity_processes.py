"""Identity between real processes on one SQLite file."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from secondcall.identity import (
    begin_erasure,
    identifiers_from,
    identities_of,
    partitions_of,
    release_identities,
    resolve,
    sweep,
)
from secondcall.registry import store_from_url

PROCESSES = 8
ROUNDS = 5
KILLS = 4
HOUR_US = 3_600_000_000

CALLERS = """
import json, sys, time
from pathlib import Path
import anyio
from secondcall.identity import identifiers_from, resolve
from secondcall.registry import store_from_url

async def main(url, folder, me, rounds):
    store = store_from_url(url)
    await store.open()
    callers = []
    for number in range(rounds):
        Path(folder, f"ready-{number}-{me}").touch()
        while not Path(folder, f"go-{number}").exists():
            time.sleep(0.0005)
        found = identifiers_from(phone=f"+1415555{number:04d}", device=f"handset-{number}")
        caller = await resolve(store, "tenant", found.usable, now_us=time.time_ns() // 1000)
        callers.append([caller.user_id, caller.known])
    await store.aclose()
    print(json.dumps(callers))

anyio.run(main, *sys.argv[1:4], int(sys.argv[4]))
"""

BUSY = """
import random, sys, time
import anyio
from secondcall.errors import InvalidValue, UnknownName, UserErased
from secondcall.identity import *
from secondcall.registry import store_from_url

async def main(url, seed):
    source = random.Random(seed)
    store = store_from_url(url)
    await store.open()
    print("open", flush=True)
    users = []
    while True:
        now_us = time.time_ns() // 1000
        phone = f"+1415555{source.randrange(12):04d}"
        others = [{}, {"device": f"handset-{phone}"}, {"subject": f"account {phone}"}]
        deed = source.random()
        try:
            if deed < 0.7 or len(users) < 2:
                found = identifiers_from(phone=phone, **source.choice(others))
                users.append((await resolve(store, "tenant", found.usable, now_us=now_us)).user_id)
                users = users[-6:]
            elif deed < 0.8:
                (identity,) = identifiers_from(phone=phone).usable
                await unlink(store, "tenant", users[-1], identity, now_us=now_us)
            elif deed < 0.9:
                await merge(store, "tenant", users[0], users[-1], now_us=now_us)
            else:
                erasure = await begin_erasure(store, "tenant", users[-1], now_us=now_us)
                await release_identities(store, erasure, now_us=now_us)
                for scope in erasure.users:
                    await store.erase(scope)
        except (InvalidValue, UnknownName, UserErased):
            pass

anyio.run(main, sys.argv[1], int(sys.argv[2]))
"""


def _python(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_processes_at_once_get_one_user(tmp_path: Path) -> None:
    """Eight processes that identify one number at once get one user, new to exactly one of them."""
    url = f"sqlite:///{tmp_path}/memory.db"
    started = [_python(CALLERS, url, tmp_path, me, ROUNDS) for me in range(PROCESSES)]
    for number in range(ROUNDS):
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob(f"ready-{number}-*"))) < PROCESSES:
            assert time.monotonic() < deadline, [process.poll() for process in started]
            time.sleep(0.002)
        (tmp_path / f"go-{number}").touch()
    answers: list[list[tuple[str, bool]]] = []
    for process in started:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        answers.append(json.loads(out))
    for calls in zip(*answers, strict=True):
        assert len({user_id for user_id, _ in calls}) == 1
        assert sum(not known for _, known in calls) == 1
    anyio.run(_only_these_users, url, {user_id for user_id, _ in answers[0]})


async def _only_these_users(url: str, expected: set[str]) -> None:
    store = store_from_url(url)
    await store.open()
    try:
        users = {scope.name for scope in await store.scopes("tenant", "user", limit=1000)}
        assert users == expected
        assert len(await store.scopes("tenant", "identity", limit=1000)) == 2 * ROUNDS
    finally:
        await store.aclose()


def test_killed_processes_leave_what_the_next_puts_right(tmp_path: Path) -> None:
    """After kill -9 amid calls, merges and erasures each number has one user, nothing is left."""
    url = f"sqlite:///{tmp_path}/memory.db"
    source = random.Random(7)
    for number in range(KILLS):
        busy = [_python(BUSY, url, 10 * number + me) for me in range(3)]
        for process in busy:
            assert process.stdout is not None
            if process.stdout.readline() != "open\n":
                pytest.fail(process.communicate()[1])
        time.sleep(source.uniform(0.05, 0.5))
        for process in busy:
            assert process.poll() is None, process.communicate()[1]
            process.send_signal(signal.SIGKILL)
            process.communicate()
        anyio.run(_consistent, url)


async def _consistent(url: str) -> None:
    store = store_from_url(url)
    await store.open()
    try:
        now_us = time.time_ns() // 1000 + HOUR_US
        phones = [identifiers_from(phone=f"+1415555{n:04d}").usable for n in range(12)]
        first = [await resolve(store, "tenant", phone, now_us=now_us) for phone in phones]
        swept = await sweep(store, "tenant", now_us=now_us + 2 * HOUR_US)
        for user_id in swept.unfinished:
            erasure = await begin_erasure(store, "tenant", user_id, now_us=now_us)
            await release_identities(store, erasure, now_us=now_us)
            for scope in erasure.users:
                await store.erase(scope)
        again = [await resolve(store, "tenant", phone, now_us=now_us) for phone in phones]
        assert [c.user_id for c in again] == [c.user_id for c in first]
        names: set[str] = set()
        for scope in await store.scopes("tenant", "user", limit=10_000):
            whole = await partitions_of(store, "tenant", scope.name)
            assert scope.name in whole.user_ids
            for identity in await identities_of(store, "tenant", scope.name):
                names.add(identity.name)
        claimed = {scope.name for scope in await store.scopes("tenant", "identity", limit=10_000)}
        assert claimed == names
    finally:
        await store.aclose()
