"""Whose words a record holds, and where they go: to the store as soon as it can be asked, and until
then to a journal that tells whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondcall.types import JsonValue

if TYPE_CHECKING:
    from secondcall.adapters.livekit.caller import ResolvedCaller
    from secondcall.adapters.livekit.journal import Journal
    from secondcall.adapters.livekit.opening import Opened
    from secondcall.adapters.livekit.replay import Journals
    from secondcall.memory import SessionMemory

__all__ = ["Speaker"]


class Speaker:
    """The caller whom one record is of. ``apart`` is the memory of a call whose own cannot be
    opened: the caller is then found anew when that is open.

    ``resolved`` may be exchanged while they are the same caller, who has become known.
    """

    def __init__(
        self,
        resolved: ResolvedCaller,
        session_id: str,
        *,
        opened: Opened,
        apart: bool,
        default_region: str | None,
    ) -> None:
        self.resolved = resolved
        self._session_id = session_id
        self._opened = opened
        self._apart = apart
        self._default_region = default_region

    async def session(self) -> SessionMemory:
        """Where their words are recorded. Raises: store errors."""
        memory = self._opened.memory
        caller, fields = self.resolved.caller, self.resolved.fields
        if self._apart:
            await self._opened.open()
        # Under the id of the call alone it would be nobody's, were the worker killed before that is
        # joined to the caller.
        if fields.given and (self._apart or self.resolved.pending):
            caller = await fields.identify(memory, default_region=self._default_region)
        return await memory.user(caller).session(self._session_id)

    def journal(self, journals: Journals) -> Journal:
        """A journal for them: by their id, or by what a replay can find them with."""
        user_id = self.resolved.caller.user_id
        if not (self._apart or self.resolved.pending):
            return journals.journal(self._session_id, user_id=user_id)
        who = self._who()
        return journals.journal(self._session_id, user_id=None if who else user_id, who=who)

    def _who(self) -> dict[str, JsonValue]:
        fields = self.resolved.fields
        who: dict[str, JsonValue] = {
            name: value for name in fields.__slots__ if (value := getattr(fields, name)) is not None
        }
        if who and self._default_region is not None:
            who["default_region"] = self._default_region
        return who
