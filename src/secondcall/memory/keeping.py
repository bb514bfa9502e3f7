"""Short-term memory that outlives its process: loaded from, and saved to, the session's document.

Saving is a compare-and-set under the user's epoch: what somebody else saved meanwhile is never
overwritten, and a forgotten user stays forgotten. The document runs out with the last value in it.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from secondcall.abc import Batch, DocumentWrite
from secondcall.errors import InvalidValue, SchemaTooNew, StoreCorrupt, VersionConflict
from secondcall.shortterm.snapshot import FORMAT, Restored
from secondcall.shortterm.userdata import ShortTermMemory

if TYPE_CHECKING:
    from secondcall.abc import Document, Scope
    from secondcall.memory.shared import Place

__all__ = ["KeptShortTerm", "sweep_kept"]

_KIND = "shortterm"
_MAX_TRIES = 20
_LOOK_AGAIN_SECONDS = 1.0
_PAGE = 500

T = TypeVar("T")


class KeptShortTerm(Generic[T]):
    """A short-term memory and its place in the store. Made by ``session.shortterm(...)``.

    ``memory`` is the one to work with, and to hand to agents; nothing is written until ``save``.
    """

    def __init__(self, memory: ShortTermMemory[T], place: Place, session_id: str) -> None:
        self.memory = memory
        self._place = place
        self._session_id = session_id
        self._writer = secrets.token_hex(8)
        self._scope: Scope | None = None
        self._version: int | None = None
        self._restored: Restored | None = None
        self._saving = asyncio.Lock()

    @property
    def version(self) -> int | None:
        """The version that was loaded or saved last, from 1; ``None``: nothing is kept yet."""
        return self._version

    @property
    def restored(self) -> Restored | None:
        """What loading did, field by field; ``None`` when there was nothing to load."""
        return self._restored

    async def save(self) -> int | None:
        """Keep what the memory holds now; durable when this returns. The version, or ``None`` when
        the memory is empty, so that there is nothing to keep.

        Raises: ``VersionConflict`` when another process saved this session's memory since: nothing
        was written; ``reload`` takes over what is kept, then do the change again. ``UserErased``,
        ``TooLarge``, store errors.
        """
        with self._place.shared.in_flight():
            async with self._saving:  # tools that save at once wait for each other
                return await self._save()

    async def _save(self) -> int | None:
        for _ in range(_MAX_TRIES):
            scope = await self._home()
            epoch = await self._place.epoch()
            write = self._write()
            try:
                await self._place.shared.store.write(
                    scope, Batch(documents=[write]), epoch=epoch, now_us=self._now_us()
                )
            except VersionConflict:
                await self._settle(scope, write.expected_version)
            else:
                return await self._saved(scope, write)
        raise self._conflict(expected=self._version, found=None)

    async def reload(self) -> Restored | None:
        """Drop what the memory holds and take over what is kept, and its version; what that did,
        field by field. ``None``, and a memory as it is, when nothing is kept.

        Raises: ``StoreCorrupt``, ``SchemaTooNew``, store errors.
        """
        self._place.look_again()
        home = await self._place.home()
        self._scope, self._version, self._restored = home, None, None
        for scope in await self._place.scopes():
            found = await self._place.shared.store.document(scope, _KIND, self._session_id)
            if found is None:
                continue
            if scope == home:
                self._version = found.version
            if found.expires_us is not None and found.expires_us <= self._now_us():
                continue
            self._restored = self._restore(found)
            break
        if await self._place.shared.store.header(home) is not None:
            await self._place.epoch()  # from here on, an erasure refuses what is saved
        return self._restored

    def _restore(self, found: Document) -> Restored:
        try:
            return self.memory.restore(self._read(found)["snapshot"])
        except InvalidValue as error:
            raise StoreCorrupt(f"{self._what()} cannot be read: {error}") from None

    def _what(self) -> str:
        return f"the stored short-term memory of session {self._session_id!r}"

    def _now_us(self) -> int:
        return self._place.shared.now_us()

    async def _home(self) -> Scope:
        self._place.look_again(after_seconds=_LOOK_AGAIN_SECONDS)
        scope = await self._place.home()
        if scope != self._scope:
            self._scope, self._version = scope, None
        return scope

    def _write(self) -> DocumentWrite:
        left = self.memory.longest_left_seconds()
        held = {"writer": self._writer, "snapshot": self.memory.snapshot()}
        empty = left is not None and left <= 0
        return DocumentWrite(
            kind=_KIND,
            key=self._session_id,
            body=None if empty else json.dumps(held, separators=(",", ":")).encode(),
            expected_version=self._version,
            expires_us=None if left is None or empty else self._now_us() + math.ceil(left * 1e6),
        )

    async def _saved(self, scope: Scope, write: DocumentWrite) -> int | None:
        if write.body is None:
            self._version = None
        elif write.expected_version is not None:
            self._version = write.expected_version + 1
        else:
            found = await self._document(scope)
            ours = found is not None and self._read(found)["writer"] == self._writer
            self._version = found.version if found is not None and ours else None
        return self._version

    async def _settle(self, scope: Scope, expected: int | None) -> None:
        """After a lost race: go on if it was lost to this memory's own save, which may be one whose
        answer never came. Raises: ``VersionConflict``."""
        found = await self._document(scope)
        if found is not None and self._read(found)["writer"] == self._writer:
            self._version = found.version
        elif self._version == expected:
            raise self._conflict(expected, None if found is None else found.version)

    async def _document(self, scope: Scope) -> Document | None:
        return await self._place.shared.store.document(scope, _KIND, self._session_id)

    def _conflict(self, expected: int | None, found: int | None) -> VersionConflict:
        return VersionConflict(
            f"the short-term memory of session {self._session_id!r}",
            expected=expected,
            found=found,
        )

    def _read(self, document: Document) -> dict[str, Any]:
        what = self._what()
        try:
            held = cast("dict[str, Any]", json.loads(document.body))
            written_as = held["snapshot"]["format"]
            newer = held["writer"] is not None and written_as > FORMAT
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(f"{what} cannot be read ({type(error).__name__})") from None
        if newer:
            raise SchemaTooNew(
                f"{what} has format {written_as!r}, this release reads {FORMAT}; upgrade secondcall"
            )
        return held


async def sweep_kept(place: Place, scope: Scope) -> int:
    """Delete the kept short-term memories in which everything has run out; how many."""
    shared = place.shared
    header = await shared.store.header(scope)
    if header is None:
        return 0
    now_us, deleted, after = shared.now_us(), 0, ""
    while page := await shared.store.documents(scope, _KIND, after=after, limit=_PAGE):
        after = page[-1].key
        for one in page:
            if one.expires_us is not None and one.expires_us <= now_us:
                write = DocumentWrite(
                    kind=_KIND, key=one.key, body=None, expected_version=one.version
                )
                try:
                    await shared.store.write(
                        scope, Batch(documents=[write]), epoch=header.epoch, now_us=now_us
                    )
                    deleted += 1
                except VersionConflict:
                    continue  # saved again meanwhile
    return deleted
