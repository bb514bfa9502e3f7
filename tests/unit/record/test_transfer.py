"""Formats are told apart, our lines go out and come back, bad files are refused by place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from secondcall.errors import InvalidValue, TooLarge, UnknownName
from secondcall.record.transfer import (
    Source,
    Transcript,
    check,
    detect,
    fact_line,
    header_line,
    item_line,
    transcripts,
)
from secondcall.types import Fact, Item, ItemKey, ItemKind, Message, RecordedItem, ToolCall

Write = Callable[[str, object], Source]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of bytes, text or JSON, and give it as a source."""

    def write(name: str, content: object) -> Source:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8")
        return Source(path)

    return write


def lines(*values: object) -> str:
    """JSON Lines of the values."""
    return "".join(json.dumps(value) + "\n" for value in values)


def read(source: Source, **options: str) -> list[Transcript]:
    """All parts of a file."""
    return list(transcripts(source, **options))


OWN = lines({"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Hi"})
OPENAI: Sequence[object] = [{"role": "user", "content": "Hello"}]
LIVEKIT = {"items": [{"type": "message", "role": "user", "content": ["Hello"], "id": "i1"}]}
LOCOMO: Sequence[object] = [{"sample_id": "a", "conversation": {}, "qa": []}]
LONGMEMEVAL: Sequence[object] = [
    {
        "question_id": "q1",
        "haystack_session_ids": [],
        "haystack_dates": [],
        "haystack_sessions": [],
    }
]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (OWN, "jsonl"),
        (lines({"role": "user", "text": "Hello"}), "jsonl"),
        (header_line("ada"), "jsonl"),
        (OPENAI, "openai"),
        ({"messages": OPENAI}, "openai"),
        (json.dumps({"messages": OPENAI}, indent=2), "openai"),
        (lines({"messages": OPENAI}, {"messages": OPENAI}), "openai"),
        (lines(OPENAI, OPENAI), "openai"),
        (lines(*OPENAI, *OPENAI), "openai"),
        (LIVEKIT, "livekit"),
        (json.dumps(LIVEKIT, indent=2), "livekit"),
        ({"job_id": "j", "chat_history": LIVEKIT}, "livekit"),
        (LOCOMO, "locomo"),
        (json.dumps(LOCOMO, indent=1), "locomo"),
        (LONGMEMEVAL, "longmemeval"),
    ],
)
def test_detect(write: Write, content: object, expected: str) -> None:
    """Each format is told by the structure of its file, pretty-printed or not."""
    assert detect(write("talk.json", content)) == expected


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "3", '"text"', '{"a": 1}\n{"a": 2}\n'])
def test_detect_unknown(write: Write, content: str) -> None:
    """A file of no known structure is refused with the names of the formats."""
    with pytest.raises(InvalidValue, match=r"talk\.json: the format cannot be told .*livekit"):
        detect(write("talk.json", content))


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_detect_empty(write: Write, content: str) -> None:
    """An empty file is refused as empty."""
    with pytest.raises(InvalidValue, match="empty"):
        detect(write("talk.json", content))


def test_unknown_format(write: Write) -> None:
    """A format that is not known is refused by name."""
    with pytest.raises(UnknownName, match="'csv'"):
        read(write("talk.json", OWN), format="csv")


def test_gzip_and_byte_order_mark(write: Write) -> None:
    """A gzipped file is read like a plain one, and a byte order mark is no text."""
    packed = write("talk.jsonl.gz", gzip.compress(OWN.encode("utf-8-sig")))
    assert read(packed)[0].items[0] == read(write("talk.jsonl", OWN))[0].items[0]


def test_session_is_named_after_the_file(write: Write) -> None:
    """A file that names no session is one session with the file's name."""
    assert [part.session_id for part in read(write("monday.call.jsonl", OWN))] == ["monday.call"]


def test_derived_ids_repeat(write: Write) -> None:
    """Items without an id get the same id at every reading, and different ones in one file."""
    same = lines(*[{"role": "user", "text": "yes"}] * 3)
    first, second = (
        [item.id for item in read(write("a.jsonl", same))[0].items if isinstance(item, Message)]
        for _ in range(2)
    )
    assert first == second
    assert len(set(first)) == 3


def test_sessions_follow_the_lines(write: Write) -> None:
    """Lines of several sessions become parts in file order, with facts after their items."""
    content = lines(
        {"session_id": "a", "role": "user", "text": "1"},
        {"session_id": "a", "type": "tool_call", "name": "f", "arguments": {"x": 1}},
        {"session_id": "b", "role": "user", "text": "2"},
        {"type": "fact", "predicate": "p", "value": "v"},
        {"session_id": "a", "role": "user", "text": "3"},
    )
    parts = read(write("t.jsonl", content))
    assert [(part.session_id, len(part.items), len(part.facts)) for part in parts] == [
        ("a", 2, 0),
        ("b", 1, 0),
        ("t", 0, 1),
        ("a", 1, 0),
    ]


def test_a_line_without_a_time_takes_the_one_before(write: Write) -> None:
    """A line without a time has that of the line before it in its session."""
    content = lines(
        {"role": "user", "text": "1", "at": "2026-03-01T13:00:00+01:00"},
        {"role": "user", "text": "2"},
    )
    assert [item.at for item in read(write("t.jsonl", content))[0].items] == [NOON, NOON]


def test_long_files_come_in_batches(write: Write) -> None:
    """A long session is given in parts of at most 1,000 items."""
    content = lines(*[{"role": "user", "text": str(number)} for number in range(2_500)])
    parts = read(write("t.jsonl", content))
    assert [len(part.items) for part in parts] == [1_000, 1_000, 500]
    ids = {item.id for part in parts for item in part.items if isinstance(item, Message)}
    assert len(ids) == 2_500


def test_asking_for_another_session_is_refused(write: Write) -> None:
    """A line that names another session than the one asked for is refused with its place."""
    source = write("t.jsonl", lines({"session_id": "a", "role": "user", "text": "1"}))
    with pytest.raises(InvalidValue, match=r"t\.jsonl, line 1: the line names session 'a'"):
        read(source, session_id="b")


def test_items_come_back_as_they_went_out(write: Write) -> None:
    """An exported message and tool call are read back equal."""
    message = Message(
        "user",
        'Ünïcode "quotes"\nand a \ud800 surrogate',
        id="m1",
        speaker="Ada",
        at=NOON,
        interrupted=True,
        metadata={"topic": ["food", 1.5, None]},
    )
    call = ToolCall("f", {"a": 1}, call_id="c1", output="out", is_error=True, at=NOON)
    named: list[tuple[ItemKind, str, Item]] = [
        ("message", "m1", message),
        ("tool_call", "c1", call),
    ]
    recorded = [
        RecordedItem(
            key=ItemKey("ada", "s", kind, name),
            item=item,
            at=NOON,
            change=number,
            position=number,
            recorded_at=NOON,
        )
        for number, (kind, name, item) in enumerate(named)
    ]
    content = "\n".join([header_line("ada"), *(item_line(one, "ada") for one in recorded)])
    assert read(write("t.jsonl", content)) == [Transcript(session_id="s", items=(message, call))]


def test_facts_come_back_as_they_went_out(write: Write) -> None:
    """An exported fact is read back with every field."""
    fact = Fact(
        id="f1",
        kind="promise",
        subject="user",
        predicate="refund",
        value={"amount": 40},
        status="promised",
        valid_from=NOON,
        recorded_at=NOON,
        due_at=NOON,
        sensitive=True,
        sources=[ItemKey("ada", "s", "message", "m1")],
        metadata={"by": "agent"},
    )
    (part,) = read(write("t.jsonl", fact_line(fact, "ada")))
    (line,) = part.facts
    assert (line.id, line.kind, line.predicate, line.value, line.status) == (
        "f1",
        "promise",
        "refund",
        {"amount": 40},
        "promised",
    )
    assert (line.valid_from, line.recorded_at, line.due_at) == (NOON, NOON, NOON)
    assert line.sensitive
    assert [(one.session_id, one.kind, one.id) for one in line.sources] == [("s", "message", "m1")]
    assert line.metadata == {"by": "agent"}


def test_what_is_attached_comes_back(write: Write) -> None:
    """Bytes that are attached to an item are in its line and come back as they were; a part with
    very many of them ends earlier; what is no base64 is refused."""
    recorded = [
        RecordedItem(
            key=ItemKey("ada", "s", "message", number),
            item=Message("user", "see", id=number, at=NOON),
            at=NOON,
            change=1,
            position=1,
            recorded_at=NOON,
        )
        for number in ("1", "2", "3")
    ]
    data = {"1": bytes(range(256)) * 150_000, "2": b""}
    text = "\n".join(item_line(one, "ada", data.get(one.key.id)) for one in recorded)
    first, second = read(write("t.jsonl", text))
    assert dict(first.attached) == {("message", "1"): data["1"]}
    assert dict(second.attached) == {("message", "2"): b""}
    assert [one.id for one in second.items if isinstance(one, Message)] == ["2", "3"]
    with pytest.raises(InvalidValue, match="attached: expected bytes in base64"):
        read(write("t.jsonl", lines({"role": "user", "text": "", "attached": "?"})))


def test_an_export_says_whose_lines_are(write: Write) -> None:
    """Lines and sources of another user than the exported one come back as that person's."""
    recorded = [
        RecordedItem(
            key=ItemKey(user, "s", "message", "1"),
            item=Message("user", f"I am {user}.", id="1", at=NOON),
            at=NOON,
            change=1,
            position=1,
            recorded_at=NOON,
        )
        for user in ("ada", "ann")
    ]
    fact = Fact(
        id="f1",
        kind="attribute",
        subject="user",
        predicate="p",
        value=1,
        status="current",
        valid_from=NOON,
        recorded_at=NOON,
        sources=[one.key for one in recorded],
    )
    lines_of = [*(item_line(one, "ada") for one in recorded), fact_line(fact, "ada")]
    parts = read(write("t.jsonl", "\n".join([header_line("ada"), *lines_of])))
    assert [(part.session_id, part.person, len(part.items)) for part in parts] == [
        ("s", None, 1),
        ("s", "ann", 1),
        ("t", None, 0),
    ]
    assert [one.person for one in parts[2].facts[0].sources] == [None, "ann"]


def test_lines_written_by_hand_are_nobodys(write: Write) -> None:
    """Without the first line of an export a ``user_id`` says nothing."""
    content = lines({"role": "user", "text": "Hello", "user_id": "ann"})
    assert [part.person for part in read(write("t.jsonl", content))] == [None]


def test_a_single_line_is_told_by_its_fields(write: Write) -> None:
    """A single line whose ``text`` is null is refused for that field, not as another format."""
    source = write("t.jsonl", lines({"role": "user", "text": None}))
    with pytest.raises(InvalidValue, match=r"line 1\.text: expected a string, found null"):
        read(source)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"role": "user"', "line 2: not JSON at line"),
        ('{"role": "user", "text": 3}', r"line 2\.text: expected a string, found a number"),
        ('{"role": "user"}', r"line 2\.text: expected a string, found nothing"),
        ('{"role": "boss", "text": "x"}', r"line 2\.role: expected one of user, assistant"),
        ('{"role": "user", "text": "x", "at": "soon"}', r"line 2\.at: expected an ISO 8601"),
        ('{"role": "user", "text": "x", "at": "2026-03-01T12:00"}', "an offset"),
        ('{"role": "user", "text": "x", "at": "0001-01-01T00:00:00+14:00"}', "years 1 to 9999"),
        ('{"role": "user", "text": "x", "interrupted": 1}', "expected true or false"),
        ('{"role": "user", "text": "x", "metadata": [1]}', r"metadata: expected an object"),
        ('{"role": "user", "text": "x", "metadata": {"a": NaN}}', "NaN is no JSON number"),
        ('{"type": "note", "text": "x"}', "expected one of message, tool_call, fact, export"),
        ('{"type": "fact", "value": 1}', r"predicate: expected a string"),
        ('{"type": "fact", "predicate": "p", "sources": [3]}', r"sources\[0\]: expected an item"),
        ('{"type": "export", "version": 9}', "version 9, this release reads 1"),
        ("[1]", "line 2: expected an object, found a list"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_refused(write: Write, line: str, problem: str) -> None:
    """A bad line is refused with file, line, field and what was expected."""
    content = lines({"role": "user", "text": "fine"}) + line + "\n"
    with pytest.raises(InvalidValue, match=problem) as caught:
        read(write("t.jsonl", content), format="jsonl")
    assert str(caught.value).startswith("t.jsonl, line 2")


def test_errors_hold_no_text(write: Write) -> None:
    """What stands in the file is not in the error."""
    content = lines({"role": "user", "text": ["the secret word"]})
    with pytest.raises(InvalidValue) as caught:
        read(write("t.jsonl", content))
    assert "secret" not in str(caught.value)


def test_not_utf8(write: Write) -> None:
    """A file that is not UTF-8 is refused as such."""
    with pytest.raises(InvalidValue, match="not UTF-8 text"):
        read(write("t.jsonl", OWN.encode("utf-16")), format="jsonl")


def test_damaged_gzip(write: Write) -> None:
    """A gzip file that is cut short is refused as such."""
    packed = gzip.compress(OWN.encode() * 1_000)[:-20]
    with pytest.raises(InvalidValue, match="gzip"):
        read(write("t.jsonl.gz", packed), format="jsonl")


@pytest.mark.parametrize(
    ("line", "error", "problem"),
    [
        ({"role": "user", "text": "x", "id": "a\x00"}, InvalidValue, r"items\[1\]\.id holds a NUL"),
        ({"role": "user", "text": "x", "speaker": "a" * 2_000}, TooLarge, r"\.speaker has 2000"),
        ({"type": "tool_call", "name": ""}, InvalidValue, r"items\[1\]\.name must not be empty"),
        ({"role": "user", "text": "x" * 5_000_000}, TooLarge, r"items\[1\]"),
    ],
)
def test_what_record_would_refuse(
    write: Write, line: object, error: type[InvalidValue], problem: str
) -> None:
    """A check finds what the record would refuse, and names file, session and item."""
    source = write("t.jsonl", lines({"role": "user", "text": "fine"}, line))
    (part,) = read(source)
    with pytest.raises(error, match=problem) as caught:
        check(source, part)
    assert str(caught.value).startswith("t.jsonl: session 't', items[1]")
