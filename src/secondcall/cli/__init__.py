"""The command line: ``secondcall``. One file for each group of commands."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        # Imported here so that importing the package, as every worker process does, stays light.
        from secondcall.cli.app import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)
