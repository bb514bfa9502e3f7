"""Transcripts of OpenAI-style lists and of LiveKit become messages and whole tool calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from secondcall.errors import InvalidValue
from secondcall.record.transfer import Source, Transcript, transcripts
from secondcall.types import Message, ToolCall

Read = Callable[..., list[Transcript]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a file of this content."""

    def read(content: object, *, name: str = "chat.json", **options: str) -> list[Transcript]:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return list(transcripts(Source(path), **options))

    return read


def openai_call(call_id: str, arguments: str = '{"city": "Bern"}') -> dict[str, object]:
    """An assistant message that calls a tool."""
    function = {"name": "weather", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def openai_output(call_id: str, content: object = "rain") -> dict[str, object]:
    """The answer of a tool."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_openai_roles(read: Read) -> None:
    """System and developer messages are system, a name is the speaker, silence is no message."""
    (part,) = read(
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello", "name": "Ada"},
            {"role": "assistant", "content": ""},
            {"role": "assistant", "refusal": "I can't."},
        ]
    )
    found = [
        (item.role, item.text, item.speaker) for item in part.items if isinstance(item, Message)
    ]
    assert found == [
        ("system", "Be kind.", None),
        ("system", "Be brief.", None),
        ("user", "Hello", "Ada"),
        ("assistant", "I can't.", None),
    ]


def test_openai_parts(read: Read) -> None:
    """Text parts are joined by lines; the types of other parts are kept in the metadata."""
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:..."}},
        {"type": "text", "text": "nice?"},
    ]
    (part,) = read([{"role": "user", "content": content}])
    (message,) = part.items
    assert isinstance(message, Message)
    assert message.text == "Look:\nnice?"
    assert message.metadata == {"parts": ["image_url"]}


def test_openai_tool_calls_are_paired(read: Read) -> None:
    """Calls and outputs of one id become one tool call, in the place of the call."""
    (part,) = read([openai_call("c1"), openai_call("c2"), openai_output("c2"), openai_output("c1")])
    assert [(call.call_id, call.output) for call in part.items if isinstance(call, ToolCall)] == [
        ("c1", "rain"),
        ("c2", "rain"),
    ]
    first = part.items[0]
    assert isinstance(first, ToolCall)
    assert (first.name, first.arguments) == ("weather", {"city": "Bern"})


def test_openai_reused_call_ids(read: Read) -> None:
    """A call id that a host uses again names a second call, with its own output."""
    (part,) = read(
        [openai_call("c"), openai_output("c", "1"), openai_call("c"), openai_output("c", "2")]
    )
    assert [(call.call_id, call.output) for call in part.items if isinstance(call, ToolCall)] == [
        ("c", "1"),
        ("c#2", "2"),
    ]


def test_openai_output_without_call(read: Read) -> None:
    """An output whose call is not in the file is kept as a call of which only that is known."""
    (part,) = read([openai_output("c9"), {"role": "user", "content": "ok"}])
    assert part.items[0] == ToolCall(
        "unknown", None, call_id="c9", output="rain", metadata={"call": "missing"}
    )


def test_openai_call_without_output(read: Read) -> None:
    """A call whose output never came is kept without one."""
    (part,) = read([openai_call("c1")])
    (call,) = part.items
    assert isinstance(call, ToolCall)
    assert call.output is None


@pytest.mark.parametrize("arguments", ["{broken", "NaN", "[1]", ""])
def test_openai_odd_arguments(read: Read, arguments: str) -> None:
    """Arguments that are no JSON object are kept as the text they are."""
    (part,) = read([openai_call("c1", arguments)])
    (call,) = part.items
    assert isinstance(call, ToolCall)
    assert call.arguments == arguments


def test_openai_functions(read: Read) -> None:
    """The older function_call and function message are one tool call."""
    (part,) = read(
        [
            {
                "role": "assistant",
                "content": "Let me see.",
                "function_call": {"name": "weather", "arguments": "{}"},
            },
            {"role": "function", "name": "weather", "content": "rain"},
        ]
    )
    message, call = part.items
    assert isinstance(message, Message)
    assert isinstance(call, ToolCall)
    assert (call.name, call.output) == ("weather", "rain")


def test_openai_conversations_by_line(read: Read) -> None:
    """A file with a conversation a line gives numbered sessions."""
    content = "\n".join(
        json.dumps({"messages": [{"role": "user", "content": text}]}) for text in ("a", "b")
    )
    assert [part.session_id for part in read(content, name="log.jsonl")] == ["log-1", "log-2"]


def test_openai_messages_by_line(read: Read) -> None:
    """A file with a message a line is one session."""
    content = "\n".join(json.dumps({"role": "user", "content": text}) for text in ("a", "b"))
    (part,) = read(content, name="log.jsonl")
    assert (part.session_id, len(part.items)) == ("log", 2)


BAD_MESSAGES: list[tuple[object, str]] = [
    ([{"role": "user", "content": 3}], r"\[0\]\.content: expected a string, a list"),
    ([{"role": "user", "content": "x"}, 3], r"\[1\]: expected a message \(an object\)"),
    ([{"role": "user", "content": "x"}, {"content": "x"}], r"\[1\]\.role: expected one of"),
    ([{"role": "tool", "content": "x"}], r"\[0\]\.tool_call_id: expected a string"),
    ([{"role": "assistant", "tool_calls": [{}]}], r"\[0\]\.tool_calls\[0\]\.function"),
    ([{"role": "user", "content": [{"text": "x"}]}], r"content\[0\]\.type: expected a string"),
]


@pytest.mark.parametrize(("messages", "problem"), BAD_MESSAGES)
def test_openai_bad_messages(read: Read, messages: object, problem: str) -> None:
    """A bad message is refused with its place and what was expected."""
    with pytest.raises(InvalidValue, match=problem):
        read(messages, format="openai")


def livekit(*items: dict[str, object]) -> dict[str, object]:
    """A chat context of these items."""
    return {"items": list(items)}


def said(name: str, text: str, at: float | None = None, **more: object) -> dict[str, object]:
    """A chat message."""
    item: dict[str, object] = {"id": name, "type": "message", "role": "user", "content": [text]}
    return item | ({} if at is None else {"created_at": at}) | more


def test_livekit_messages(read: Read) -> None:
    """Ids, times, the interrupted flag and the transcript's confidence are kept."""
    (part,) = read(
        livekit(
            said("i1", "Hello", 1_700_000_000.25, transcript_confidence=0.5),
            said("i2", "Well", 1_700_000_001.0, role="assistant", interrupted=True),
        )
    )
    assert part.items == (
        Message(
            "user",
            "Hello",
            id="i1",
            at=datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC),
            metadata={"transcript_confidence": 0.5},
        ),
        Message(
            "assistant",
            "Well",
            id="i2",
            at=datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC),
            interrupted=True,
        ),
    )


def test_livekit_tool_calls_are_paired(read: Read) -> None:
    """A function call and its output are one tool call, with the time of the call."""
    (part,) = read(
        livekit(
            {
                "id": "x1",
                "type": "function_call",
                "call_id": "c1",
                "name": "weather",
                "arguments": '{"city": "Bern"}',
                "created_at": 10.0,
            },
            {
                "id": "x2",
                "type": "function_call_output",
                "call_id": "c1",
                "output": "no",
                "is_error": True,
                "created_at": 12.0,
            },
        )
    )
    assert part.items == (
        ToolCall(
            "weather",
            {"city": "Bern"},
            call_id="c1",
            output="no",
            is_error=True,
            at=datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC),
        ),
    )


def test_livekit_instructions_stay_out(read: Read) -> None:
    """No instruction and no running summary enters the record; what stays out is counted."""
    (part,) = read(
        livekit(
            {"id": "u", "type": "agent_config_update", "instructions": "SECRET PROMPT"},
            {"id": "h", "type": "agent_handoff", "new_agent_id": "b"},
            said("lk.agent_task.instructions", "SECRET PROMPT", role="system"),
            said("s", "SECRET SUMMARY", role="assistant", extra={"is_summary": True}),
            said("i1", "Hello"),
        )
    )
    assert [item.id for item in part.items if isinstance(item, Message)] == ["i1"]
    assert part.left_out == 4


def test_livekit_parts_that_are_no_text(read: Read) -> None:
    """Pictures and sound are named in the metadata; a message of nothing at all is left out."""
    content: list[object] = [{"type": "image_content"}, "See?", {"type": "audio_content"}]
    (part,) = read(livekit(said("i1", "", content=content), said("i2", "", content=[])))
    (message,) = part.items
    assert isinstance(message, Message)
    assert (message.text, message.metadata) == (
        "See?",
        {"parts": ["image_content", "audio_content"]},
    )


def test_livekit_without_times(read: Read) -> None:
    """A context written without times gives items without; one gap takes the time before it."""
    (part,) = read(livekit(said("i1", "a"), said("i2", "b")))
    assert [item.at for item in part.items] == [None, None]
    (part,) = read(livekit(said("i1", "a", 5.0), said("i2", "b")))
    assert part.items[0].at == part.items[1].at


def test_livekit_report(read: Read) -> None:
    """A session report is the session of its job, unless another is asked for."""
    report = {"job_id": "job-7", "room": "r", "chat_history": livekit(said("i1", "Hello"))}
    assert [part.session_id for part in read(report)] == ["job-7"]
    assert [part.session_id for part in read(report, session_id="call-1")] == ["call-1"]


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (said("i", "x", created_at="now"), r"items\[0\]\.created_at: expected seconds"),
        (said("i", "x", created_at=1e300), r"created_at: expected seconds .* years 1 to 9999"),
        (said("i", "x", role="boss"), r"items\[0\]\.role: expected one of"),
        (said("i", "x", content=[3]), r"content\[0\]: expected a string or an object"),
        ({"type": "poem"}, r"items\[0\]\.type: expected one of message"),
        ({"type": "function_call", "name": "f"}, r"items\[0\]\.call_id: expected a string"),
    ],
)
def test_livekit_bad_items(read: Read, item: dict[str, object], problem: str) -> None:
    """A bad item is refused with its place and what was expected."""
    with pytest.raises(InvalidValue, match=problem):
        read(livekit(item), format="livekit")
