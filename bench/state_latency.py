"""What a state costs beside a bare conditional commit of the same rows by apsw, in one run: at the
port, and as a user calls it, with preferences and a workflow."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from measure import loop_lag, machine, percentile, report

from secondcall import Memory, Step, Workflow
from secondcall.abc_state import StateKey, StateStore
from secondcall.stores.sqlite import state_store
from secondcall.stores.sqlite_file import SqliteSettings, connect_writer, row_of, run
from secondcall.stores.statements import load_queries

_ROUNDS = 1_000
_WRITERS = 16
_SAVES = 200
_EPOCH = b"0123456789abcdef"
_BODY = b'{"workflow": "booking", "step": "payment", "slots": {"date": "2026-12-01"}}' * 8
_SUMMARY = b'{"step": ["dates", "payment"]}'
_BOOKING = Workflow(
    "booking",
    steps={
        "dates": Step(),
        "payment": Step(requires=["date"], expires="30d", then="dropped"),
        "done": Step(terminal=True),
        "dropped": Step(terminal=True),
    },
    transitions={"dates": ["payment"], "payment": ["done"]},
    slots={"date": str, "people": int},
)
_PREFERENCES = ("diet", "seat", "language", "airline", "room")
_SESSIONS = [f"s{number}" for number in range(_WRITERS)]


class _Bare:
    """The rows of one save written by apsw alone, with the store's pragmas and tables."""

    def __init__(self, path: Path, body: bytes = _BODY) -> None:
        self._body = body
        self._connection = connect_writer(
            SqliteSettings(path=str(path)), keep_waiting=lambda _: False
        )
        self._queries = load_queries("sqlite")
        self._versions = dict.fromkeys(_SESSIONS, 1)

    def write(self, session_id: str) -> None:
        """One transaction: the state if it is at its version, and a row of its history."""
        connection, now_us = self._connection, time.time_ns() // 1_000
        level = (1, 1, session_id, self._versions[session_id])
        run(connection, "BEGIN IMMEDIATE")
        values = (1, now_us, "bench", None, None, self._body, *level)
        row = row_of(connection, self._queries["set_state"], values)
        assert row is not None, "the bare save lost its comparison"
        change = (*row, 1, now_us, "bench", _SUMMARY, self._body)
        run(connection, self._queries["add_state_change"], change)
        run(connection, "COMMIT")
        self._versions[session_id] += 1


async def _begin(path: Path) -> StateStore:
    """A file with one user and a state of each session, open."""
    store = state_store(f"sqlite:///{path}")
    await store.open()
    await store.admit("bench", "ana", epoch=_EPOCH, now_us=0)
    for session_id in _SESSIONS:
        await _save(store, session_id, None)
    return store


async def _save(store: StateStore, session_id: str, expected: int | None) -> None:
    await store.save(
        StateKey("bench", "ana", session_id),
        _BODY,
        expected_version=expected,
        epoch=_EPOCH,
        now_us=time.time_ns() // 1_000,
        by="bench",
        summary=_SUMMARY,
    )


async def _update(store: StateStore, session_id: str) -> None:
    """What a caller does: load, change, save under the version that was loaded."""
    found = await store.load(StateKey("bench", "ana", session_id))
    await _save(store, session_id, None if found is None else found.version)


async def _measure(folder: Path) -> None:
    await (await _begin(folder / "bare.db")).aclose()
    bare_writer = _Bare(folder / "bare.db")
    store = await _begin(folder / "ours.db")
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        bare_writer.write("s0")
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        await _update(store, "s0")
        ours.append(time.perf_counter() - started)
    report("the same rows by apsw alone", bare)
    report("load and save a state, acknowledged durable", ours)
    added = 1e3 * (percentile(ours, 0.5) - percentile(bare, 0.5))
    print(f"adds {added:+.2f} ms at the median (promised: < 0.5 ms)")
    await _different_keys(store, bare_writer)
    await store.aclose()
    await _measure_as_called(folder)


async def _measure_as_called(folder: Path) -> None:
    """``session.state``: a workflow at its second step, fields, and five preferences to show."""
    await (await _begin(folder / "bare-called.db")).aclose()
    saved: list[float] = []
    updated: list[float] = []
    bare: list[float] = []
    url = f"sqlite:///{folder / 'called.db'}"
    async with Memory.open(url, workflows=[_BOOKING]) as memory:
        user = memory.user("ana")
        for name in _PREFERENCES:
            await user.remember(name, "any", kind="preference")
        state = (await user.session("s0")).state
        written = await state.update(
            lambda one: (
                one.start(_BOOKING, date="2026-12-01")
                .advance("payment")
                .with_fields(note="a" * 300)
            )
        )
        assert written.origin is not None
        bare_writer = _Bare(folder / "bare-called.db", written.origin[0].body)
        for number in range(_ROUNDS):
            started = time.perf_counter()
            bare_writer.write("s0")
            bare.append(time.perf_counter() - started)
            started = time.perf_counter()
            found = await state.load()
            assert found is not None
            await state.save(found.fill(people=number))
            saved.append(time.perf_counter() - started)
            started = time.perf_counter()
            await state.update(lambda one: one.fill(people=one.slots["people"] + 1))
            updated.append(time.perf_counter() - started)
    report("the same rows by apsw alone", bare)
    report("session.state: load, change and save", saved)
    report("session.state.update", updated)
    added = [1e3 * (percentile(one, 0.5) - percentile(bare, 0.5)) for one in (saved, updated)]
    print(
        f"load and save add {added[0]:+.2f} ms at the median (promised: < 0.5 ms), an update "
        f"{added[1]:+.2f} ms"
    )


async def _different_keys(store: StateStore, bare_writer: _Bare) -> None:
    started = time.perf_counter()
    for _ in range(_SAVES):
        for session_id in _SESSIONS:
            bare_writer.write(session_id)
    bare = _WRITERS * _SAVES / (time.perf_counter() - started)

    async def work(session_id: str) -> None:
        for _ in range(_SAVES):
            await _update(store, session_id)

    started = time.perf_counter()
    async with loop_lag() as lag:
        await asyncio.gather(*(work(session_id) for session_id in _SESSIONS))
    ours = _WRITERS * _SAVES / (time.perf_counter() - started)
    print(
        f"different keys, {_WRITERS} writers: {ours:,.0f} loads and saves a second, bare "
        f"{bare:,.0f} saves: {ours / bare:.1f} times (promised: at least 0.5)"
    )
    report("loop lag, 16 writers", lag.seconds, promise="p99 < 10 ms")


def main() -> None:
    """Print both."""
    print(f"machine: {machine()}")
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(_measure(Path(name)))


if __name__ == "__main__":
    main()
