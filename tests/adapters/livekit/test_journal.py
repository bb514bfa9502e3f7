"""A journal holds what the store does not have yet, and gives it back once."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from adapters.livekit.calls import FailingStore, recorded, recording, said
from adapters.livekit.waiting import until

from secondcall import Memory
from secondcall.adapters.livekit.journal import Journal, JournalFull, left_behind
from secondcall.adapters.livekit.lines import Header
from secondcall.adapters.livekit.replay import Journals, Replayed, replay
from secondcall.types import Item, Message, ToolCall

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
HEADER = Header(tenant_id="default", user_id="ana", session_id="call", made_at=NOW)
ITEMS: list[Item] = [
    Message("user", "Grüße 👋\nline", id="m1", at=NOW, interrupted=True, metadata={"a": [1, None]}),
    Message("assistant", "x", id="m2", speaker="bot"),
    ToolCall("tool", {"n": 1}, call_id="c1", at=NOW),
    ToolCall("tool", "text", call_id="c2", output="out", is_error=True, metadata={"b": True}),
]


def _left(path: Path | None) -> list[Item]:
    """What a dead process left in a journal; the file stays."""
    assert path is not None
    left = left_behind(path)
    assert left is not None
    left.release()
    return list(left.items)


def _killed(folder: Path, items: list[Item], header: Header = HEADER) -> Path:
    """The journal of a process that was killed after it had written the items."""
    journal = Journal(folder, header)
    journal.append(items)
    assert journal.path is not None
    journal.close()
    return journal.path


def test_items_come_back_as_they_were(tmp_path: Path) -> None:
    """Every field of messages and tool calls survives the file."""
    assert _left(_killed(tmp_path, ITEMS)) == ITEMS


def test_a_file_is_private(tmp_path: Path) -> None:
    """The file and its folder can be read by their owner alone, and its name tells nothing."""
    path = _killed(tmp_path / "journals", ITEMS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "ana" not in path.name
    assert "call" not in path.name


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    """A call in which nothing is said leaves no file."""
    Journal(tmp_path, HEADER).discard()
    assert list(tmp_path.iterdir()) == []


def test_it_is_empty_when_the_store_has_all(tmp_path: Path) -> None:
    """What the store has is taken out, and the file stays small however long a call is."""
    journal = Journal(tmp_path, HEADER, fsync=False)
    sizes: list[int] = []
    for number in range(200):
        journal.append([Message("user", f"line {number}", id=str(number))])
        journal.done(1)
        assert journal.path is not None
        sizes.append(journal.path.stat().st_size)
    path = journal.path
    journal.close()
    assert path is not None
    assert max(sizes) < 600
    assert b"line" not in path.read_bytes()
    assert _left(path) == []


def test_what_the_store_has_is_not_given_again(tmp_path: Path) -> None:
    """Of a journal that was emptied in part only the rest comes back."""
    journal = Journal(tmp_path, HEADER)
    journal.append(ITEMS)
    journal.done(3)
    journal.close()
    assert _left(journal.path) == ITEMS[3:]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_line_is_dropped(tmp_path: Path, cut: int) -> None:
    """A last line that was torn off in the middle takes none of the others with it."""
    path = _killed(tmp_path, ITEMS[:3])
    path.write_bytes(path.read_bytes()[:-cut])
    assert _left(path) == ITEMS[:2]


def test_a_damaged_line_is_counted(tmp_path: Path) -> None:
    """A flipped bit in the middle costs its own line, which is counted."""
    path = _killed(tmp_path, ITEMS[:3])
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"assistant", b"Assistant")
    path.write_bytes(b"\n".join(lines))
    left = left_behind(path)
    assert left is not None
    left.release()
    assert (list(left.items), left.damaged) == ([ITEMS[0], ITEMS[2]], 1)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full, the items do not count as written, and those before stay whole."""
    journal = Journal(tmp_path, HEADER)
    journal.append(ITEMS[:1])
    write = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:30])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            journal.append(ITEMS[1:2])
    journal.append(ITEMS[2:3])
    journal.close()
    assert _left(journal.path) == [ITEMS[0], ITEMS[2]]


def test_it_is_bounded(tmp_path: Path) -> None:
    """A journal over its limit takes nothing more until it has been emptied."""
    journal = Journal(tmp_path, HEADER, max_bytes=2_000)
    for number in range(10):
        journal.append([Message("user", "words " * 10, id=str(number))])
    with pytest.raises(JournalFull, match="2,000 bytes"):
        journal.append([Message("user", "words " * 100, id="too much")])
    journal.done(journal.waiting)
    journal.append(ITEMS[:1])
    journal.close()
    assert _left(journal.path) == ITEMS[:1]


def test_a_living_process_keeps_its_journal(tmp_path: Path) -> None:
    """A journal that is in use is not taken, also not by the same process."""
    journal = Journal(tmp_path, HEADER)
    journal.append(ITEMS)
    assert journal.path is not None
    assert left_behind(journal.path) is None
    journal.close()
    assert _left(journal.path) == ITEMS


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the folder to somebody's file is neither read nor written."""
    target = tmp_path / "target"
    target.write_bytes(b"precious\n")
    link = tmp_path / "x.journal"
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        left_behind(link)
    assert target.read_bytes() == b"precious\n"


async def test_a_killed_call_is_replayed(tmp_path: Path) -> None:
    """What a killed worker left is in its own session afterwards, with its times, and the file is
    gone; replaying again does nothing."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        _killed(journals.folder, ITEMS)
        first = await journals.replay()
        again = await journals.replay()
        found = [one.item for one in await recorded(memory)]
        brief = await memory.user("ana").brief(deadline_seconds=None)
    assert (first, again) == (Replayed(calls=1, items=4), Replayed())
    assert {getattr(one, "id", None) or getattr(one, "call_id", None) for one in found} == {
        "m1", "m2", "c1", "c2"
    }  # fmt: skip
    assert said(found)[0] == ("user", "Grüße 👋\nline")
    assert brief.known
    assert list(journals.folder.iterdir()) == []


async def test_a_replay_adds_nothing_twice(tmp_path: Path) -> None:
    """Items that the store has already are told apart by their ids."""
    async with Memory.open("memory://") as memory:
        await (await memory.user("ana").session("call")).record(*ITEMS[:3])
        journals = Journals(memory, tmp_path)
        _killed(journals.folder, ITEMS)
        assert await replay(memory, tmp_path) == Replayed(calls=1, items=4)
        assert len(await recorded(memory)) == 4


async def test_a_replay_takes_nothing_back(tmp_path: Path) -> None:
    """Of a call that stands in the journal without and with its output, the last entry counts;
    what the store has of it is not corrected back."""
    begun = ToolCall("tool", {"n": 1}, call_id="c1", at=NOW)
    ended = ToolCall("tool", {"n": 1}, call_id="c1", output="out", at=NOW)
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call")
        before = await session.record(ended)
        journals = Journals(memory, tmp_path)
        _killed(journals.folder, [begun, ended])
        assert await journals.replay() == Replayed(calls=1, items=1)
        after = await session.record(ended)
        assert (after.unchanged, after.change) == (1, before.change)


async def test_two_workers_replay_each_journal_once(tmp_path: Path) -> None:
    """Workers that start together share the journals out; every call is complete."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        for number in range(10):
            item = Message("user", f"call {number}", id=f"m{number}")
            _killed(journals.folder, [item])
        done = await asyncio.gather(journals.replay(), Journals(memory, tmp_path).replay())
        assert sum(one.calls for one in done) == 10
        assert len(await recorded(memory)) == 10


async def test_a_forgotten_user_is_not_brought_back(tmp_path: Path) -> None:
    """A journal out of reach of ``forget`` is refused by its epoch, and deleted; also when the
    user has returned meanwhile."""
    async with Memory.open("memory://") as memory:
        session = await memory.user("ana").session("call")
        await session.record(ITEMS[0])
        epoch = await session.epoch()
        hidden = tmp_path / "hidden"
        header = Header(
            tenant_id="default", user_id="ana", session_id="call", made_at=NOW, epoch=epoch
        )
        for _ in range(2):
            _killed(hidden, [ITEMS[1]], header)
        await memory.user("ana").forget()
        journals = Journals(memory, tmp_path)
        first, second = sorted(hidden.iterdir())
        journals.folder.mkdir(parents=True)
        first.rename(journals.folder / first.name)
        assert await journals.replay() == Replayed(erased=1)
        assert await memory.users() == []
        await (await memory.user("ana").session("new")).record(Message("user", "hello again"))
        second.rename(journals.folder / second.name)
        assert await journals.replay() == Replayed(erased=1)
        assert await recorded(memory) == []
        assert list(journals.folder.iterdir()) == []


async def test_forgetting_deletes_journals(tmp_path: Path) -> None:
    """``forget`` deletes the user's journals on this machine, of dead and living calls, names them
    in its receipt, and leaves those of others."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        dead = _killed(journals.folder, ITEMS)
        living = journals.journal("now", user_id=None)
        living.append(ITEMS)
        living.know(user_id="ana", epoch=None)
        other = journals.journal("now", user_id="ben")
        other.append(ITEMS)
        receipt = await memory.user("ana").forget()
        assert receipt.removed["journals"] == 2
        assert receipt.complete
        assert not dead.exists()
        assert [path.name for path in journals.folder.iterdir()] == [
            path.name for path in [other.path] if path is not None
        ]
        living.append(ITEMS[:1])
        living.close()
        other.close()


async def test_journals_that_cannot_be_deleted_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt is not complete while a journal of the user may be left."""

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "denied")

    async with Memory.open("memory://") as memory:
        _killed(Journals(memory, tmp_path).folder, ITEMS)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            receipt = await memory.user("ana").forget()
    assert not receipt.complete
    assert receipt.remaining == {"journals": 1}


async def test_other_tenants_and_stores_are_left_alone(tmp_path: Path) -> None:
    """A journal is replayed by its own tenant, into its own store only."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        path = _killed(journals.folder, ITEMS)
        assert await Journals(memory.tenant("other"), tmp_path).replay() == Replayed()
        async with Memory.open(f"sqlite:///{tmp_path}/a.db") as elsewhere:
            assert await Journals(elsewhere, tmp_path).replay() == Replayed()
        assert path.exists()


async def test_a_store_that_is_down_keeps_the_journal(tmp_path: Path) -> None:
    """A replay that the store does not take is tried again at the next start."""
    store = FailingStore()
    async with Memory.open(store) as memory:
        journals = Journals(memory, tmp_path)
        _killed(journals.folder, ITEMS)
        store.down = True
        assert await journals.replay() == Replayed(kept=1)
        store.down = False
        assert await journals.replay() == Replayed(calls=1, items=4)


async def test_a_caller_who_was_not_known_yet_is_looked_up(tmp_path: Path) -> None:
    """What was said while nobody could be identified comes to the caller at the replay."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        journal = journals.journal("call", who={"subject": "ana@shop"})
        journal.append(ITEMS[:1])
        journal.close()
        assert await journals.replay() == Replayed(calls=1, items=1)
        caller = await memory.identify(subject="ana@shop")
        session = await memory.user(caller).session("call")
        assert said(await session.items()) == [("user", "Grüße 👋\nline")]


async def test_old_journals_are_deleted_unread(tmp_path: Path) -> None:
    """What was left longer ago than the limit is deleted and counted as lost."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path, max_age_seconds=60.0)
        path = _killed(journals.folder, ITEMS)
        os.utime(path, (1.0, 1.0))
        assert await journals.replay() == Replayed(expired=1, lost=4)
        assert not path.exists()
        assert await memory.users() == []


async def test_refused_items_do_not_keep_back_others(tmp_path: Path) -> None:
    """One item that the record does not accept is lost alone, and said to be."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        _killed(journals.folder, [ITEMS[0], Message("user", "long", id="x" * 2_000), ITEMS[1]])
        assert await journals.replay() == Replayed(calls=1, items=2, lost=1)


async def test_nothing_to_read_is_no_error(tmp_path: Path) -> None:
    """Rubbish in the folder, a file of a later release, and no folder at all are survived."""
    async with Memory.open("memory://") as memory:
        journals = Journals(memory, tmp_path)
        assert await journals.replay() == Replayed()
        journals.folder.mkdir(parents=True)
        (journals.folder / "a.journal").write_bytes(b"rubbish\n\x00\xff\n")
        (journals.folder / "b.journal").write_bytes(b"")
        (journals.folder / "c.txt").write_bytes(b"mine")
        assert await journals.replay() == Replayed()
        assert sorted(path.name for path in journals.folder.iterdir()) == ["a.journal", "c.txt"]


async def test_a_call_leaves_no_journal(tmp_path: Path) -> None:
    """After a call whose words the store took, the folder is empty."""
    async with recording(tmp_path) as call:
        call.recorder.record(Message("user", "hello"))
        await until(lambda: call.recorder.progress.store == 1)
        assert len(call.files()) == 1
        assert (await call.recorder.finish()).complete
        assert call.files() == []


async def test_acknowledged_means_in_the_journal(tmp_path: Path) -> None:
    """While the store hangs, items count as acknowledged when the journal has them, and what it has
    then can be replayed by others after this process."""
    store = FailingStore()
    async with recording(tmp_path, store) as call:
        store.hangs = True
        call.recorder.record(Message("user", "one", id="a"), Message("user", "two", id="b"))
        assert call.recorder.progress.acknowledged == 0
        await until(lambda: call.recorder.progress.acknowledged == 2)
        finished = await call.recorder.finish(deadline_seconds=0.05)
        await call.recorder.aclose()
        store.hangs = False
        assert not finished.complete
        assert (finished.progress.journal, finished.progress.lost) == (2, 0)
        assert await call.journals.replay() == Replayed(calls=1, items=2)


async def test_a_journal_that_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without room for the journal the store still gets everything, and the log says it."""
    (tmp_path / "file").write_text("no folder")
    async with recording(tmp_path / "file") as call:
        call.recorder.record(Message("user", "a secret word"))
        finished = await call.recorder.finish()
    assert finished.complete
    assert "the journal of this call cannot be written" in caplog.messages
    assert "secret" not in caplog.text


async def test_what_is_lost_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When neither store nor journal takes it, the loss is counted and logged, never silent."""
    store = FailingStore()
    (tmp_path / "file").write_text("no folder")
    async with recording(tmp_path / "file", store) as call:
        store.down = True
        call.recorder.record(Message("user", "a secret word"))
        await call.recorder.finish(deadline_seconds=0.05)
        await call.recorder.aclose()
        lost = call.recorder.progress.lost
    assert lost == 1
    assert "items of this call are lost" in caplog.messages
    assert "secret" not in caplog.text


async def test_writing_is_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes its time for the journal does not stop the loop."""
    go, threads, fsync = threading.Event(), list[int](), os.fsync

    def slow(descriptor: int) -> None:
        threads.append(threading.get_ident())
        assert go.wait(10.0)
        fsync(descriptor)

    async with recording(tmp_path) as call:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", slow)
            call.recorder.record(Message("user", "hello"))
            await until(lambda: bool(threads))
            assert call.recorder.progress.acknowledged == 0
            go.set()
            await until(lambda: call.recorder.progress.store == 1)
    assert threading.get_ident() not in threads
