"""What can be used is written down."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import secondcall
from secondcall import errors
from secondcall.memory import SessionMemory, StateHandle, UserMemory

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ALL_TEXT = "\n".join(
    path.read_text("utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if "_build" not in path.relative_to(DOCS).parts
)
DRAWN = re.compile(r"^    (?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+)(?: +(?P<said>.*))?$")


def _drawn_tree() -> dict[str, tuple[str | None, str]]:
    """Each error drawn in the docstring with its parent and what is said of it."""
    assert errors.__doc__ is not None
    drawing = errors.__doc__.split("::", 1)[1].split("\n\nMessages", 1)[0]
    above: list[str] = []
    tree: dict[str, tuple[str | None, str]] = {}
    for line in drawing.splitlines():
        found = DRAWN.match(line)
        if found:
            depth = len(found["bars"]) // 4
            above = above[:depth]
            tree[found["name"]] = (above[-1] if above else None, found["said"] or "")
            above.append(found["name"])
    return tree


def test_error_tree_is_drawn_as_it_is() -> None:
    """The tree in the docstring of ``errors`` shows every error under its parents."""
    tree = _drawn_tree()
    assert sorted(tree) == sorted(errors.__all__)
    for name, (parent, said) in tree.items():
        bases = [base.__name__ for base in getattr(errors, name).__bases__]
        standard = re.match(r"\((\w+)\)", said)
        assert bases[0] == (parent or "Exception"), name
        assert bases[1:] == ([standard[1]] if standard else []), name


def test_public_classes_have_a_reference() -> None:
    """Every public class and function stands on a page of the reference."""
    modules = {
        value.__module__
        for name in secondcall.__all__
        if inspect.isclass(value := getattr(secondcall, name)) or inspect.isfunction(value)
    }
    assert [name for name in modules if f"automodule:: {name}\n" not in ALL_TEXT] == []


def _commands() -> list[str]:
    main: click.Group = import_module("secondcall.cli.app").commands
    context = click.Context(main)
    return main.list_commands(context)


def test_commands_are_documented() -> None:
    """Every command of ``secondcall`` has a place in the command reference."""
    page = (DOCS / "reference" / "cli.md").read_text("utf-8")
    assert [name for name in _commands() if f"secondcall {name}" not in page] == []


def test_settings_are_documented() -> None:
    """Every variable that the settings read is named in the documentation."""
    found = find_spec("secondcall.config")
    assert found is not None
    assert found.origin is not None
    names = set(re.findall(r"SECONDCALL_[A-Z_]+\b", Path(found.origin).read_text("utf-8")))
    assert sorted(name for name in names if name not in ALL_TEXT) == []


def test_extras_are_documented() -> None:
    """Every extra of the package is named in the documentation or the README."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    section = project.split("[project.optional-dependencies]", 1)[1].split("\n[", 1)[0]
    extras = re.findall(r"^([a-z-]+) = ", section, re.MULTILINE)
    text = ALL_TEXT + (ROOT / "README.md").read_text("utf-8")
    assert [extra for extra in extras if f"[{extra}]" not in text] == []


def test_verbs_lead_to_the_layers() -> None:
    """Each verb that chooses a layer names the page that says which layer is for what."""
    verbs: dict[str, object] = {
        "record": SessionMemory.record,
        "remember": UserMemory.remember,
        "facts": UserMemory.facts,
        "recall": UserMemory.recall,
        "brief": UserMemory.brief,
        "update": StateHandle[Mapping[str, Any]].update,
    }
    silent = [
        name for name, verb in verbs.items() if "docs/which-layer.md" not in str(verb.__doc__)
    ]
    assert silent == []
