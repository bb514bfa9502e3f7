"""The journals of one memory: making one for a call, replaying what dead workers left, erasing."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio.to_thread

from secondcall import identity, telemetry
from secondcall.adapters.livekit.journal import (
    Journal,
    Left,
    header_of,
    journals_in,
    left_behind,
)
from secondcall.adapters.livekit.lines import Header, key_of
from secondcall.config import state_folder
from secondcall.errors import (
    InvalidValue,
    MissingExtra,
    NotOpen,
    OperationFailed,
    UsageError,
    UserErased,
)
from secondcall.memory import Memory, SessionMemory, UserMemory
from secondcall.types import Item, JsonValue

__all__ = ["Journals", "Replayed", "default_folder", "replay"]

_log = logging.getLogger("secondcall")
_BATCH = 200
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay found: ``items`` given to the store (those it had already change nothing),
    ``calls`` that are now complete, ``erased`` ones whose user was forgotten meanwhile, ``kept``
    ones that could not be written and are tried again at the next start, ``expired`` ones that were
    older than the limit, and how many items or lines were ``lost`` because nothing can read them.
    """

    calls: int = 0
    items: int = 0
    erased: int = 0
    kept: int = 0
    expired: int = 0
    lost: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        names = [one.name for one in fields(self)]
        return Replayed(**{name: getattr(self, name) + getattr(other, name) for name in names})


def default_folder() -> Path:
    """Where journals are kept unless a folder is named: in the user's state folder."""
    return state_folder() / "journals"


class Journals:
    """The journals of the calls that one memory records, in a folder of this machine.

    Each store has a folder of its own inside, by ``Memory.place``, so that nothing is replayed into
    another one. From its making on, ``forget`` of any user of this memory also deletes the user's
    journals here. ``max_age_seconds``: what was left longer ago is deleted unread.
    """

    def __init__(
        self,
        memory: Memory,
        folder: str | Path | None = None,
        *,
        max_age_seconds: float = 30 * _DAY_SECONDS,
        fsync: bool = True,
    ) -> None:
        top = default_folder() if folder is None else Path(folder)
        digest = hashlib.blake2b(memory.place.encode("utf-8", "replace"), digest_size=8)
        self._memory = memory
        self._folder = top / digest.hexdigest()
        self._max_age_seconds = max_age_seconds
        self._fsync = fsync
        memory.beside("journals", str(self._folder), partial(_erase, self._folder))

    @property
    def folder(self) -> Path:
        """Where the journals of this memory's store are."""
        return self._folder

    def journal(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        who: Mapping[str, JsonValue] | None = None,
    ) -> Journal:
        """A journal for one call; no file is made before something is written. ``who`` stands for a
        user who is not known since the store is down: the arguments of ``memory.identify``."""
        header = Header(
            tenant_id=self._memory.tenant_id,
            user_id=user_id,
            session_id=session_id,
            made_at=datetime.now(UTC),
            who=dict(who or {}),
        )
        return Journal(self._folder, header, fsync=self._fsync)

    async def replay(self) -> Replayed:
        """Give the store what workers that are gone left behind, each call to its own session.

        Items are told apart by their ids, so that what the store has already changes nothing. What
        is not the tenant's is left alone, and so is a journal of a living process. A user who was
        forgotten since is not brought back: the journal carries the epoch. Never raises for what a
        file or the store does; what could not be written stays for the next time.
        """
        total = Replayed()
        try:
            paths = await anyio.to_thread.run_sync(journals_in, self._folder)
        except OSError as error:
            _log.warning(
                "journals of earlier calls cannot be listed", extra={"error": type(error).__name__}
            )
            return total
        for path in paths:
            total += await self._replay_one(path)
        if any(getattr(total, one.name) for one in fields(total)):
            _log.info(
                "journals of earlier calls were replayed",
                extra={f"replay_{one.name}": getattr(total, one.name) for one in fields(total)},
            )
        return total

    async def _replay_one(self, path: Path) -> Replayed:
        try:
            look = partial(left_behind, path, max_age_seconds=self._max_age_seconds)
            left = await anyio.to_thread.run_sync(look)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning(
                "a journal of an earlier call cannot be read", extra={"error": type(error).__name__}
            )
            return Replayed(kept=1)
        if left is None:
            return Replayed()
        keep = True
        try:
            result, keep = await self._give(left)
        finally:
            await anyio.to_thread.run_sync(left.release if keep else partial(_discard, left))
        return result

    async def _give(self, left: Left) -> tuple[Replayed, bool]:
        """What became of it, and whether the file is to stay."""
        if left.header.tenant_id != self._memory.tenant_id:
            return Replayed(), True
        if time.time() - left.written_at > self._max_age_seconds:
            _lost("expired", len(left.items))
            return Replayed(expired=1, lost=len(left.items)), False
        _lost("damaged", left.damaged)
        lost = Replayed(lost=left.damaged)
        if not left.items:
            return lost, False
        try:
            session = await self._session(left.header)
            epoch = left.header.epoch
            if epoch is not None and not await session.has_epoch(epoch):
                return lost + Replayed(erased=1), False
            done = await _record(session, _newest(left.items))
            await session.close()
        except UserErased:
            return lost + Replayed(erased=1), False
        except (OperationFailed, NotOpen, OSError) as error:
            _log.warning(
                "a journal of an earlier call could not be replayed; it stays for the next start",
                extra={"error": type(error).__name__, "items": len(left.items)},
            )
            return lost + Replayed(kept=1), True
        except UsageError as error:
            _lost(type(error).__name__, len(left.items))
            return lost + Replayed(lost=len(left.items)), False
        return lost + done, False

    async def _session(self, header: Header) -> SessionMemory:
        user: UserMemory
        if header.user_id is not None:
            user = self._memory.user(header.user_id)
        else:
            caller = await self._memory.identify(**cast("dict[str, Any]", dict(header.who)))
            user = self._memory.user(caller)
        return await user.session(header.session_id)


async def replay(memory: Memory, folder: str | Path | None = None) -> Replayed:
    """Give ``memory`` what workers that were killed left in the journals of ``folder``; see
    ``Journals.replay``. For the start of a worker."""
    return await Journals(memory, folder).replay()


def _newest(items: Sequence[Item]) -> list[Item]:
    """The items, of several entries of one only the last, in the place of the first."""
    found: dict[object, Item] = {}
    for item in items:
        kind, item_id = key_of(item)
        found[object() if item_id is None else (kind, item_id)] = item
    return list(found.values())


async def _record(session: SessionMemory, items: Sequence[Item]) -> Replayed:
    """Record the items in order; one that is refused does not keep back the others."""
    done = Replayed(calls=1)
    for start in range(0, len(items), _BATCH):
        part = items[start : start + _BATCH]
        try:
            await session.record(*part)
            done += Replayed(items=len(part))
        except UsageError:
            for item in part:
                done += await _record_one(session, item)
    return done


async def _record_one(session: SessionMemory, item: Item) -> Replayed:
    try:
        await session.record(item)
    except NotOpen:
        raise
    except UsageError as error:
        _lost(type(error).__name__, 1)
        return Replayed(lost=1)
    return Replayed(items=1)


def _lost(reason: str, count: int) -> None:
    if count:
        telemetry.count_unwritten("lost", reason, count)
        _log.error("items of an earlier call are lost", extra={"reason": reason, "items": count})


def _discard(left: Left) -> None:
    try:
        left.discard()
    except OSError as error:
        _log.warning(
            "a journal that is done with cannot be deleted", extra={"error": type(error).__name__}
        )


async def _erase(folder: Path, tenant_id: str, partition: str) -> int:
    """Delete the journals of a user or an identity, those of calls that go on too; how many.

    Raises: ``OSError``; ``MissingExtra`` when it cannot be told whose one is, after the others.
    """
    work: Callable[[], int] = partial(_erase_files, folder, tenant_id, partition)
    return await anyio.to_thread.run_sync(work)


def _erase_files(folder: Path, tenant_id: str, partition: str) -> int:
    gone = 0
    unread: MissingExtra | None = None
    for path in journals_in(folder):
        header = header_of(path)
        if header is None or header.tenant_id != tenant_id:
            continue
        try:
            is_theirs = partition == header.user_id or partition in _deciding(header)
        except MissingExtra as error:
            unread = error
            continue
        if is_theirs:
            path.unlink(missing_ok=True)
            gone += 1
    if unread is not None:
        raise unread
    return gone


def _deciding(header: Header) -> Sequence[str]:
    """The identities by which a replay would find a caller whom the store did not tell then.

    Raises: ``MissingExtra``.
    """
    if header.user_id is not None:
        return ()
    try:
        usable = identity.identifiers_from(**cast("dict[str, Any]", dict(header.who))).usable
    except (InvalidValue, TypeError) as error:
        _log.warning(
            "a journal does not say whose it is; it stays until it is replayed",
            extra={"error": type(error).__name__},
        )
        return ()
    proved = [one.name for one in usable if one.trust == "verified"]
    return proved or [one.name for one in usable]
