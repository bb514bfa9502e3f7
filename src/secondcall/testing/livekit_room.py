"""A job with a real room in which people come, change and leave, as the server would tell it."""

# LiveKit leaves type arguments of its own classes open: what is unknown there is its own.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Literal, cast

from livekit import rtc
from livekit.agents import JobContext
from livekit.agents.testing import fake_job_context
from livekit.rtc._proto import participant_pb2 as people
from livekit.rtc._proto import room_pb2 as rooms

__all__ = ["Kind", "RoomJob", "room_job"]

Kind = Literal["standard", "sip", "agent", "egress", "connector"]
_KINDS: Mapping[Kind, people.ParticipantKind.ValueType] = {
    "standard": people.PARTICIPANT_KIND_STANDARD,
    "sip": people.PARTICIPANT_KIND_SIP,
    "agent": people.PARTICIPANT_KIND_AGENT,
    "egress": people.PARTICIPANT_KIND_EGRESS,
    "connector": people.PARTICIPANT_KIND_CONNECTOR,
}


class RoomJob:
    """A job context whose room is told what happens in it."""

    def __init__(self, ctx: JobContext) -> None:
        self.ctx = ctx
        self.caller = ""
        """The identity of who called in last."""

    def join(
        self,
        identity: str,
        *,
        kind: Kind = "standard",
        attributes: Mapping[str, str] | None = None,
        metadata: str = "",
        edits_itself: bool = False,
        hidden: bool = False,
    ) -> None:
        """Somebody comes into the room."""
        info = people.ParticipantInfo(
            identity=identity,
            kind=_KINDS[kind],
            metadata=metadata,
            state=people.PARTICIPANT_STATE_ACTIVE,
            permission=people.ParticipantPermission(
                can_update_metadata=edits_itself, hidden=hidden
            ),
            attributes=dict(attributes or {}),
        )
        owned = people.OwnedParticipant(info=info)
        self._happens(rooms.RoomEvent(participant_connected=rooms.ParticipantConnected(info=owned)))

    def call_in(self, number: str | None, *, rule: str = "SDR_1", identity: str = "sip_1") -> None:
        """Somebody calls by telephone, or is called (without a ``rule``)."""
        attributes = {"sip.callID": "SCL_1", "sip.trunkPhoneNumber": "+14155550000"}
        if rule:
            attributes["sip.ruleID"] = rule
        if number is not None:
            attributes["sip.phoneNumber"] = number
        self.caller = identity
        self.join(identity, kind="sip", attributes=attributes)

    def set_attributes(self, identity: str, attributes: Mapping[str, str]) -> None:
        """A participant has these attributes now."""
        self._local()
        entries = [rooms.AttributesEntry(key=key, value=value) for key, value in attributes.items()]
        changed = rooms.ParticipantAttributesChanged(
            participant_identity=identity, attributes=entries, changed_attributes=entries
        )
        self._happens(rooms.RoomEvent(participant_attributes_changed=changed))

    def leave(self, identity: str) -> None:
        """Somebody leaves."""
        gone = rooms.ParticipantDisconnected(participant_identity=identity)
        self._happens(rooms.RoomEvent(participant_disconnected=gone))

    def close(self) -> None:
        """The room is closed."""
        state = rooms.ConnectionStateChanged(state=rooms.CONN_DISCONNECTED)
        self._happens(rooms.RoomEvent(connection_state_changed=state))

    def agent_is(self, identity: str) -> None:
        """The agent's own identity in the room."""
        info = people.ParticipantInfo(identity=identity, kind=people.PARTICIPANT_KIND_AGENT)
        room = self.ctx.room
        room._local_participant = rtc.LocalParticipant(  # pyright: ignore[reportPrivateUsage] - only a server gives one
            room._room_queue,  # pyright: ignore[reportPrivateUsage] - of the same room
            people.OwnedParticipant(info=info),
        )

    def listeners(self) -> int:
        """How many handlers the room has for what a watch listens to."""
        events = cast("dict[str, dict[object, None]]", self.ctx.room._events)  # pyright: ignore[reportPrivateUsage] - nothing public counts them
        return sum(len(handlers) for handlers in events.values())

    def _local(self) -> None:
        if self.ctx.room._local_participant is None:  # pyright: ignore[reportPrivateUsage] - raises where it is public
            self.agent_is("agent-AJ_1")

    def _happens(self, event: rooms.RoomEvent) -> None:
        self.ctx.room._on_room_event(event)  # pyright: ignore[reportPrivateUsage] - what the server's messages go through


@contextmanager
def room_job(
    metadata: str = "", *, room_name: str = "", room_metadata: str = "", job_id: str = "AJ_1"
) -> Generator[RoomJob]:
    """A job in a real room that nobody has come to yet."""
    room = rtc.Room()
    room._info.name = room_name  # pyright: ignore[reportPrivateUsage] - the server names it
    room._info.metadata = room_metadata  # pyright: ignore[reportPrivateUsage] - the server says it
    with fake_job_context(room=room, job_metadata=metadata, job_id=job_id) as ctx:
        try:
            yield RoomJob(ctx)
        finally:
            ctx._tempdir.cleanup()  # pyright: ignore[reportPrivateUsage] - only a job's own process does it
