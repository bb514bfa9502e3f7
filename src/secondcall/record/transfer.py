"""Reads transcripts of any known format, and writes exports. Pure: files in, records out.

The format is told by the structure of the file; ``FORMATS`` are the names that force one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, cast, get_args

from secondcall.checks import check_id
from secondcall.errors import InvalidValue, UnknownName
from secondcall.record.append import encode_item
from secondcall.record.formats import livekit, locomo, longmemeval, openai, own
from secondcall.record.formats.fields import Fields, Place, parse_json
from secondcall.record.formats.own import fact_line, header_line, item_line
from secondcall.record.formats.source import Source
from secondcall.record.formats.transcript import FactLine, SourceLine, Transcript, derived_id

__all__ = [
    "FORMATS",
    "OF_MANY_PEOPLE",
    "FactLine",
    "Source",
    "SourceLine",
    "Transcript",
    "TranscriptFormat",
    "check",
    "derived_id",
    "detect",
    "fact_line",
    "header_line",
    "item_line",
    "transcripts",
]

TranscriptFormat = Literal["jsonl", "openai", "livekit", "locomo", "longmemeval"]
FORMATS: tuple[TranscriptFormat, ...] = get_args(TranscriptFormat)
_SHOWN = 80
_OWN_TYPES = frozenset({"message", "tool_call", "fact", "export"})
OF_MANY_PEOPLE = frozenset({"locomo", "longmemeval"})
"""Whose files say whose memory each conversation is."""


def transcripts(
    source: Source,
    *,
    format: str | None = None,
    session_id: str | None = None,
    default_session: str | None = None,
) -> Iterator[Transcript]:
    """The sessions of a file, part by part, in file order; read lazily where the format allows.

    With ``session_id`` everything must be that session. Without it, a file that names no session is
    ``default_session``, or named after the file. Raises: ``InvalidValue`` naming file, place, field
    and what was expected; ``UnknownName`` for a format that is not known.
    """
    name = detect(source) if format is None else _known(format)
    default = session_id or default_session or source.stem
    if name in OF_MANY_PEOPLE:
        if session_id is not None:
            raise InvalidValue(
                f"{source.name} names its sessions; leave out the session {session_id!r}"
            )
        return (locomo if name == "locomo" else longmemeval).read(source, default)
    if name == "jsonl":
        return own.read(source, default, session_id=session_id)
    if name == "livekit":
        return livekit.read(source, default, session_id=session_id)
    return (
        openai.read_lines(source, default) if _has_lines(source) else openai.read(source, default)
    )


def check(source: Source, part: Transcript) -> None:
    """Refuse what ``record`` would refuse, before anything is recorded.

    Raises: ``InvalidValue``, ``TooLarge`` naming file, session and item.
    """
    try:
        check_id("session_id", part.session_id)
        for index, item in enumerate(part.items):
            name = f"session {part.session_id[:_SHOWN]!r}, items[{index}]"
            encode_item(part.session_id, item, now_us=0, name=name)
    except InvalidValue as error:
        raise type(error)(f"{source.name}: {error}") from None


def detect(source: Source) -> TranscriptFormat:
    """The format of a file, by its structure. Raises: ``InvalidValue`` if none fits."""
    value = _first_line(source)
    found = None if value is None else _format_of(value)
    if found is None and not _has_lines(source):
        found = _format_of(source.document)
    if found is None:
        source.place.refuse(
            f"the format cannot be told from the file; name it with --format ({', '.join(FORMATS)})"
        )
    return found


def _known(name: str) -> TranscriptFormat:
    if name not in FORMATS:
        raise UnknownName(f"no format is named {name!r}; known are {', '.join(FORMATS)}")
    return name


def _first_line(source: Source) -> object:
    """The first line as JSON, or ``None`` if it is none by itself."""
    for place, line in source.lines():
        try:
            return parse_json(line, place)
        except InvalidValue:
            return None
    return source.place.refuse("the file is empty; there is nothing to import")


def _has_lines(source: Source) -> bool:
    """Whether the file is JSON Lines: more than one line, the first of which is JSON by itself."""
    lines = source.lines()
    first = next(lines, None)
    if first is None or next(lines, None) is None:
        return False
    return _first_line(source) is not None


def _format_of(value: object) -> TranscriptFormat | None:
    if isinstance(value, dict):
        return _format_of_object(Fields(cast("object", value), Place("")))
    if not isinstance(value, list) or not value:
        return None
    first = cast("Sequence[object]", value)[0]
    if not isinstance(first, dict):
        return None
    if "haystack_sessions" in first:
        return "longmemeval"
    if "conversation" in first:
        return "locomo"
    return "openai" if "role" in first else None


def _format_of_object(value: Fields) -> TranscriptFormat | None:
    if "items" in value or "chat_history" in value:
        return "livekit"
    if "messages" in value:
        return "openai"
    kind = value.raw("type")
    if (isinstance(kind, str) and kind in _OWN_TYPES) or {"role", "text"} <= {*value.names()}:
        return "jsonl"
    return "openai" if "role" in value else None
