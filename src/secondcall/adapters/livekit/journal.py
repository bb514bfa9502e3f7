"""A local file that holds what a call has said until the store has it.

A line is written and flushed to the disk before the store is asked, and the file is emptied when
the store has everything: a killed worker loses nothing that was acknowledged, and little remembered
text lies about. One file for each call, readable by its owner alone, locked while its process
lives. What a dead process left is for ``replay``.

A line is the CRC-32 of a JSON object, a space, and the object. The first line says whose call it
is; a last line that was torn off is dropped, since nobody was told that it is safe.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from secondcall.adapters.livekit.lines import (
    Header,
    decode_lines,
    encode_done,
    encode_header,
    encode_item,
)
from secondcall.adapters.livekit.locks import lock
from secondcall.types import Item

__all__ = ["Journal", "JournalFull", "Left", "header_of", "journals_in", "left_behind"]

_SUFFIX = ".journal"
_MAX_BYTES = 64 * 1024 * 1024
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class JournalFull(OSError):
    """The journal has reached its limit: the store has not taken anything for long."""


class Journal:
    """The journal of one call. Its methods block: they are for a thread, and may be called from
    several.

    Nothing is made before the first ``append``, which raises ``OSError`` where the folder or the
    disk does not take it (the next one tries again), and ``JournalFull`` over ``max_bytes``.
    """

    def __init__(
        self, folder: Path, header: Header, *, max_bytes: int = _MAX_BYTES, fsync: bool = True
    ) -> None:
        self._folder = folder
        self._header = header
        self._max_bytes = max_bytes
        self._fsync = fsync
        self._guard = threading.RLock()
        self._path: Path | None = None
        self._descriptor = -1
        self._size = self._start = 0
        self._written = self._done = 0

    @property
    def path(self) -> Path | None:
        """The file, which is there from the first ``append`` until ``discard``."""
        return self._path

    @property
    def waiting(self) -> int:
        """How many of the appended items are not known to be in the store."""
        return self._written - self._done

    def append(self, items: Sequence[Item]) -> None:
        """Write the items behind the others; when this returns, they survive the process and, with
        ``fsync``, the machine. Raises: ``OSError``, and then none of them counts as written."""
        data = b"".join(map(encode_item, items))
        with self._guard:
            try:
                self._open()
            except BlockingIOError:  # a replay looked at the file before it was locked
                self._open()
            if self._size + len(data) > self._max_bytes:
                raise JournalFull(
                    f"the journal {self._path} would have over {self._max_bytes:,} bytes; it is "
                    "emptied when the store can be reached"
                )
            self._write(data)
            self._written += len(items)

    def know(self, *, user_id: str, epoch: str | None) -> None:
        """Note whose call it turned out to be, and the epoch that the user is stored under.

        Raises: ``OSError``.
        """
        with self._guard:
            known = replace(self._header, user_id=user_id, epoch=epoch)
            if known != self._header:
                self._header = known
                if self._descriptor >= 0:
                    self._write(encode_header(known))

    def done(self, count: int) -> None:
        """Note that the store has ``count`` more of the items, in their order; when it has all, the
        file is emptied. Raises: ``OSError``."""
        with self._guard:
            self._done = min(self._written, self._done + count)
            if self._descriptor < 0 or count < 1:
                return
            if self._done == self._written:
                self._clear()
            else:
                self._write(encode_done(self._done), flush=False)

    def discard(self) -> None:
        """Delete the file with all that is in it. Raises: ``OSError``."""
        with self._guard:
            if self._descriptor >= 0 and self._path is not None:
                os.ftruncate(self._descriptor, 0)
                self.close()
                self._path.unlink(missing_ok=True)
            self._path = None
            self._written = self._done = 0

    def close(self) -> None:
        """Let go of the file and its lock; what is in it is for ``replay``."""
        with self._guard:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def _open(self) -> None:
        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_nlink:
                return
            self.close()  # forgetting the user took the file away
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{secrets.token_hex(12)}{_SUFFIX}"
        self._descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            lock(self._descriptor)
            if not os.fstat(self._descriptor).st_nlink:
                raise BlockingIOError(f"{path} was taken away while it was made")
            self._size = self._written = self._done = 0
            self._write(encode_header(self._header))
            self._start = self._size
            if self._fsync:
                _flush_folder(self._folder)
        except BaseException:  # cancelled too: no half-made file stays; raised on
            self.close()
            path.unlink(missing_ok=True)
            raise
        self._path = path

    def _write(self, data: bytes, *, flush: bool = True) -> None:
        """Write ``data`` at the end, or leave the file as it was."""
        try:
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
            if flush and self._fsync:
                os.fsync(self._descriptor)
        except BaseException:  # cancelled too: the file is left as it was; raised on
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(data)

    def _clear(self) -> None:
        os.ftruncate(self._descriptor, self._start)
        self._size = self._start
        self._written = self._done = 0
        self._write(encode_header(self._header), flush=False)


@dataclass(slots=True, eq=False)
class Left:
    """A journal that a dead process left, locked by this one. ``items`` are those that the store is
    not known to have, ``damaged`` counts the lines that cannot be read."""

    path: Path
    header: Header
    items: Sequence[Item]
    written_at: float
    damaged: int
    descriptor: int

    def discard(self) -> None:
        """Delete the file: the store has everything, or must not have it. Raises: ``OSError``."""
        os.ftruncate(self.descriptor, 0)
        self.release()
        self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Leave the file to the next start."""
        os.close(self.descriptor)


def left_behind(path: Path, *, max_age_seconds: float = float("inf")) -> Left | None:
    """What stands in a journal that no living process holds; ``None`` for one that is in use, is
    gone, is somebody else's, or says not whose call it was, which is deleted when it is older than
    ``max_age_seconds``. Raises: ``OSError``."""
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    try:
        lock(descriptor)
        about = os.fstat(descriptor)
        own = not hasattr(os, "geteuid") or about.st_uid == os.geteuid()
        data = _read(descriptor) if own and about.st_nlink else b""
        found = decode_lines(data)
        # Its process was killed while it made the file, or nobody can tell any more whose it was.
        expired = time.time() - about.st_mtime > max_age_seconds
        if own and (b"\n" not in data or (expired and found.header is None)):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:  # cancelled too: the lock goes with the descriptor; raised on
        os.close(descriptor)
        raise
    if found.header is None:
        os.close(descriptor)
        return None
    return Left(
        path=path,
        header=found.header,
        items=found.items,
        written_at=about.st_mtime,
        damaged=found.damaged,
        descriptor=descriptor,
    )


def header_of(path: Path) -> Header | None:
    """Whose journal it is, in use or not; ``None`` if it is gone or does not say.

    Raises: ``OSError``.
    """
    try:
        return decode_lines(path.read_bytes()).header
    except FileNotFoundError:
        return None


def journals_in(folder: Path) -> list[Path]:
    """The journals of a folder, by name; none if it is not there. Raises: ``OSError``."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(_SUFFIX))
    except FileNotFoundError:
        return []


def _read(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def _flush_folder(folder: Path) -> None:
    """Make the file's name durable too, where folders can be flushed."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
