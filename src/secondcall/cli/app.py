"""The group of all commands, and what becomes of errors.

Exit codes: 0 done, 1 failed, 2 called wrongly, 3 not complete, 130 interrupted.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version

import click

from secondcall.cli.output import allow_any_text, printable
from secondcall.errors import SecondcallError

__all__ = ["FAILED", "INCOMPLETE", "INTERRUPTED", "USAGE", "commands", "run"]

FAILED = 1
USAGE = 2
INCOMPLETE = 3
INTERRUPTED = 130

_COMMANDS: Mapping[str, str] = {
    "advise": "advise:advise_command",
    "brief": "asking:brief",
    "demo": "demo:demo",
    "doctor": "upkeep:doctor",
    "eval": "evaluating:evaluate",
    "export": "transfer:export",
    "facts": "stating:facts",
    "forget": "forgetting:forget",
    "identity": "identity:identity",
    "import": "transfer:import_",
    "recall": "asking:recall",
    "reindex": "upkeep:reindex",
    "remember": "stating:remember",
    "retention": "upkeep:retention",
    "retract": "stating:retract",
    "settle": "stating:settle",
    "show": "showing:show",
    "usage": "usage:usage",
}


class _Commands(click.Group):
    """Loads a command's file when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(f"secondcall.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("secondcall"), message="%(version)s")
def commands() -> None:
    """Memory and state for AI agents that outlives the session.

    The store is --url or SECONDCALL_URL, by default a file in your data folder.

    Exit codes: 0 done, 1 failed, 2 called wrongly, 3 not complete, 130 interrupted.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; its exit code. Errors are one line on standard error."""
    allow_any_text()
    with _warnings_on_stderr():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = commands.main(
            None if arguments is None else list(arguments),
            prog_name="secondcall",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except click.ClickException as error:
        return _usage(error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("secondcall: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output went away; the interpreter must not flush into it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (SecondcallError, OSError) as error:
        return _failed(error)
    return code if isinstance(code, int) else 0


@contextmanager
def _warnings_on_stderr() -> Generator[None, None, None]:
    """Show the library's warnings as lines on standard error while a command runs."""
    logger = logging.getLogger("secondcall")
    handler = _OneLine(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _OneLine(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = getattr(record, "error", "")
        why = f" ({error})" if error else ""
        click.echo(f"secondcall: {_one_line(record.getMessage())}{why}", err=True)


def _usage(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see '{context.command_path} --help')" if context is not None else ""
    click.echo(f"secondcall: {_one_line(error.format_message())}{hint}", err=True)
    return error.exit_code


def _failed(error: Exception) -> int:
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror and not isinstance(error, SecondcallError):
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    click.echo(f"secondcall: {_one_line(text)}", err=True)
    return FAILED


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())
