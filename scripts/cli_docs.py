"""Writes docs/reference/cli.md from the commands themselves.

python scripts/cli_docs.py            write the page
python scripts/cli_docs.py --check    exit with 1 if the page is not current
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from secondcall.cli.app import commands
from secondcall.config import ENVIRONMENT

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
_HEAD = """# Command line

<!-- Made by scripts/cli_docs.py from the commands themselves; do not edit. -->

Every command takes its store from `--url`, else from `SECONDCALL_URL`, else from a file in your
data folder. `--json` prints one JSON object on standard output, in ASCII, with times in ISO 8601.
Errors are one line on standard error. Long work shows its progress on standard error when that is a
terminal.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | failed: the line on standard error says what and why |
| 2 | called wrongly |
| 3 | not complete: `forget` removed everything, but something else still holds the bytes |
| 130 | interrupted |

What is read from the environment:

| variable | meaning |
| --- | --- |
"""


def page() -> str:
    """The page as it should be."""
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in ENVIRONMENT.items())
    return _HEAD + rows + "".join(_sections(commands, "secondcall"))


def _sections(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        full = f"{path} {name}"
        yield _section(command, full)
        if isinstance(command, click.Group):
            yield from _sections(command, full)


def _section(command: click.Command, path: str) -> str:
    depth = "#" * (path.count(" ") + 1)
    parts = [f"\n{depth} `{path}`\n", inspect.cleandoc(command.help or "")]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    if not isinstance(command, click.Group):
        words = [path, *(_argument(one) for one in arguments), *_required(options)]
        parts.append(f"```text\n{' '.join(words)} [options]\n```")
    if options:
        rows = "\n".join(_row(option) for option in options)
        parts.append(f"| option | meaning |\n| --- | --- |\n{rows}")
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _argument(argument: click.Argument) -> str:
    return (argument.name or "").upper()


def _required(options: list[click.Option]) -> Iterator[str]:
    for option in options:
        if option.required:
            yield f"{option.opts[0]} {_value(option)}"


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" `{_value(option)}`"
    shown = option.show_default and not option.is_flag
    text = " ".join([option.help or "", *([f"Default: {option.default}."] if shown else [])])
    return f"| {names}{value} | {text.strip()} |"


def _value(option: click.Option) -> str:
    kind = option.type
    if isinstance(kind, click.Choice):
        return ", ".join(str(one) for one in kind.choices)
    if isinstance(kind, click.IntRange):
        return "N"
    if isinstance(kind, click.Path):
        return "FILE"
    return kind.name.upper() if kind.name != "text" else (option.name or "").upper()


def main() -> int:
    """Write or check the page; the exit code."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), "utf-8", newline="\n")
        return 0
    if PAGE.exists() and PAGE.read_text("utf-8") == page():
        return 0
    sys.stderr.write("docs/reference/cli.md is not current; run python scripts/cli_docs.py\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
