"""Whatever was remembered can be printed, and cannot steer the terminal."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secondcall.cli.output import Progress, allow_any_text, printable, stamp, to_json

TEXT = st.text(st.characters(codec=None))


@given(TEXT)
def test_printable_text(text: str) -> None:
    """Nothing but line breaks, tabs, joiners and printable characters is left."""
    shown = printable(text)
    assert all(one.isprintable() or one in "\n\t\u200c\u200d" for one in shown)
    assert printable(shown) == shown


def test_escapes_and_directions_are_shown() -> None:
    """Terminal escapes and direction marks become visible escapes; emoji stay whole."""
    assert printable("a\x1b[31m\u202eb\r") == "a\\x1b[31m\\u202eb\\r"
    assert printable("👩\u200d🚒 שלום 你好") == "👩\u200d🚒 שלום 你好"


@given(TEXT)
def test_json_of_any_text(text: str) -> None:
    """JSON is ASCII and reads back as the same text."""
    written = to_json({"text": text, "at": datetime(1, 1, 1, tzinfo=UTC)})
    assert written.isascii()
    assert json.loads(written) == {"text": text, "at": "0001-01-01T00:00:00Z"}


def test_streams_take_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that the stream's encoding lacks, and lone surrogates, are written as escapes."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    allow_any_text()
    print("né \ud800", flush=True)
    assert raw.getvalue() == b"n\\xe9 \\ud800\n"


@pytest.mark.parametrize("year", [1, 2026, 9999])
def test_stamps(year: int) -> None:
    """A time of any year is shown with the year in four digits."""
    assert stamp(datetime(year, 2, 3, 4, 5, tzinfo=UTC)).startswith(f"{year:04}-02-03")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress counts on a terminal and is silent without one."""
    for stream, shown in ((_Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("recorded", 10) as progress:
            progress.advance(10)
        assert ("recorded: 0 of 10" in stream.getvalue()) is shown
        assert (stream.getvalue() == "") is not shown
