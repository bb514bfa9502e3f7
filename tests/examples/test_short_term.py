"""The examples of short-term memory run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "short_term"


def test_table_booking(tmp_path: Path) -> None:
    """The second call knows what the first one saved before it died."""
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / "table_booking.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Ana, 4 people, wants to book a table",
        "offered: at the window, upstairs, in the garden",
        "wrong codes so far: 1",
        "verified: True",
        "heard: ['A table for four, my name is Ana.']",
    ]
