"""Whatever a file holds, it is read or refused, never anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secondcall.errors import InvalidValue
from secondcall.record.transfer import FORMATS, Source, Transcript, transcripts

NAMES = st.sampled_from(
    [
        "arguments",
        "at",
        "call_id",
        "chat_history",
        "content",
        "conversation",
        "created_at",
        "extra",
        "function",
        "function_call",
        "haystack_dates",
        "haystack_session_ids",
        "haystack_sessions",
        "id",
        "items",
        "kind",
        "messages",
        "metadata",
        "name",
        "output",
        "predicate",
        "question_id",
        "role",
        "sample_id",
        "session_1",
        "session_1_date_time",
        "session_id",
        "sources",
        "status",
        "text",
        "tool_call_id",
        "tool_calls",
        "type",
    ]
)
WORDS = st.sampled_from(
    [
        "",
        "message",
        "tool_call",
        "fact",
        "export",
        "user",
        "assistant",
        "tool",
        "function",
        "function_call",
        "function_call_output",
        "agent_handoff",
        "promise",
        "1:56 pm on 8 May, 2023",
        "2023/05/30 (Tue) 10:18",
        "2026-03-01T09:00:00Z",
        "{}",
        "\ud800",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=40,
)


def read(path: Path, name: str | None) -> list[Transcript]:
    """The parts of a file, or nothing if it is refused."""
    try:
        return list(transcripts(Source(path), format=name))
    except InvalidValue:
        return []


@pytest.mark.parametrize("name", [None, *FORMATS])
@given(values=st.lists(VALUES, min_size=1, max_size=3))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_json(tmp_path: Path, name: str | None, values: list[object]) -> None:
    """Any JSON values, as lines or as one document, are read the same way twice or refused."""
    path = tmp_path / "any.json"
    for text in ("\n".join(json.dumps(value) for value in values), json.dumps(values, indent=1)):
        path.write_text(text, "utf-8")
        assert read(path, name) == read(path, name)


@pytest.mark.parametrize("name", [None, *FORMATS])
@given(
    content=st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "replace"))
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_bytes(tmp_path: Path, name: str | None, content: bytes) -> None:
    """Any bytes are read the same way twice or refused."""
    path = tmp_path / "any.json"
    for data in (content, b"\x1f\x8b" + content):
        path.write_bytes(data)
        assert read(path, name) == read(path, name)
