"""The page of commands is made from the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "cli_docs.py"


def test_the_page_is_current() -> None:
    """``docs/reference/cli.md`` is what ``scripts/cli_docs.py`` writes."""
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
