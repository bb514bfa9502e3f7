"""The code in the README and the documentation runs.

Python blocks of a page run in order, in one namespace, in an empty folder; ``await`` may stand at
the top. A comment above a block says what else is meant:

- ``<!-- not run: why -->``: leave it out, for the reason given;
- ``<!-- prints -->`` above a ``text`` block: what the block before it prints, ``...`` for any text;
- ``<!-- run -->`` above a shell block: run it. The others must name commands, options, ``make``
  targets and extras that exist.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.relative_to(ROOT).parts
    ),
]
PYTHON = {"python", "py"}
SHELL = {"sh", "bash", "shell", "console"}
PLAIN = {"text", "json", "jsonl", "toml", "yaml", "ini", "sql", "make", "diff", "html", "mermaid"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)\s*(?P<info>[^`]*?)\s*$")
_MARK = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its mark, its text and the line it begins on."""

    language: str
    mark: str
    text: str
    line: int


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text("utf-8").splitlines()
    mark, number = "", 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            marked = _MARK.match(lines[number])
            if marked:
                mark = marked["text"]
            elif lines[number].strip():
                mark = ""
            number += 1
            continue
        end = next(
            index
            for index in range(number + 1, len(lines))
            if lines[index].strip() == opened["fence"]
        )
        indent = len(opened["indent"])
        text = "\n".join(line[indent:] for line in lines[number + 1 : end]) + "\n"
        yield Block(opened["info"], mark, text, number + 2)
        mark, number = "", end + 1


def _page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _run_python(block: Block, page: Path, names: dict[str, Any], runner: asyncio.Runner) -> str:
    code = compile(
        "\n" * (block.line - 1) + block.text,
        str(page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    printed = StringIO()
    with redirect_stdout(printed):
        result: object = eval(code, names)  # the documentation's own code
        if asyncio.iscoroutine(result):
            runner.run(result)
    return printed.getvalue()


def _run_shell(block: Block, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euc", block.text],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SECONDCALL_URL": "sqlite:///memory.db",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _check_printed(block: Block, printed: str | None) -> None:
    assert printed is not None, f"line {block.line}: no block before this one was run"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(block.text, printed, flags), (
        f"line {block.line}: the page says\n{block.text}\nbut this was printed:\n{printed}"
    )


# LlamaIndex looks at every attribute of an agent, deprecated ones of pydantic among them.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")
@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's code runs from top to bottom and prints what the page says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__docs__"}
    printed: str | None = None
    with asyncio.Runner() as runner:
        for block in _blocks(page):
            if block.mark == "prints":
                _check_printed(block, printed)
            elif block.mark.startswith("not run:"):
                assert len(block.mark) > len("not run: ") + 10, f"line {block.line}: say why"
            elif block.language in PYTHON:
                printed = _run_python(block, page, names, runner)
            elif block.language in SHELL and block.mark == "run":
                printed = _run_shell(block, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_blocks_say_what_they_are(page: Path) -> None:
    """Every fenced block names a language that this test knows how to treat."""
    known = PYTHON | SHELL | PLAIN
    unknown = [
        (block.line, block.language)
        for block in _blocks(page)
        if not block.language.startswith("{") and block.language not in known
    ]
    assert unknown == []


def _commands(block: Block) -> Iterator[Sequence[str]]:
    """The commands of a shell block that begin a line; a prompt and comments are left out."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        for index, word in enumerate(words):
            if word in {"|", "&&", ";", ">", ">>", "<"}:
                words = words[:index]
                break
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            yield words


def _check_secondcall(words: Sequence[str]) -> None:
    """Parse a command line as the command would, without running it."""
    command: click.Command = import_module("secondcall.cli.app").commands
    context = click.Context(command, info_name="secondcall")
    rest = list(words[1:])
    while True:
        parsed, left, _ = command.make_parser(context).parse_args(rest)
        if not isinstance(command, click.Group) or parsed.keys() & {"help", "version"} or not left:
            return
        name, *rest = left
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name!r}: {shlex.join(words)}"
        command, context = found, click.Context(found, info_name=name, parent=context)


def _check_make(words: Sequence[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    wanted = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
    assert wanted <= targets, f"make has no target {sorted(wanted - targets)}"


def _check_pip(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for word in words:
        named = re.fullmatch(r"secondcall\[([a-z,-]+)\]", word)
        if named:
            assert set(named[1].split(",")) <= set(project["optional-dependencies"]), word


@pytest.mark.parametrize("page", PAGES, ids=_page_name)
def test_commands_exist(page: Path) -> None:
    """The commands, options, ``make`` targets and extras that the page names exist."""
    checks = {"secondcall": _check_secondcall, "make": _check_make, "pip": _check_pip}
    for block in _blocks(page):
        if block.language not in SHELL:
            continue
        for words in _commands(block):
            check = checks.get(words[0])
            if check is not None:
                check(words)


@pytest.mark.parametrize("page", [*PAGES[:2], ROOT / "CHANGELOG.md"], ids=_page_name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the project leads to a file that is there."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
