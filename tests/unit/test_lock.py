"""The lock of the development environment."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = {path.stem: path.read_text("utf-8") for path in (ROOT / "requirements").glob("*.lock")}
LOCK = LOCKS["dev"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCKED = set(re.findall(r"^([a-z0-9-]+)==", LOCK, re.MULTILINE))


def _names(requirements: list[str | dict[str, str]]) -> set[str]:
    """The normalized names of requirements; included groups are left to themselves."""
    texts = [one for one in requirements if isinstance(one, str)]
    return {re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", text)[0]).lower() for text in texts}


def test_lock_holds_what_the_project_asks_for() -> None:
    """Every dependency, light extra and tool of ``pyproject.toml`` is in the lock."""
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = _names(PROJECT["project"]["dependencies"])
    wanted |= _names(extras["openai"]) | _names(extras["phone"])
    for group in PROJECT["dependency-groups"].values():
        wanted |= _names(group)
    assert sorted(wanted - LOCKED) == []


@pytest.mark.parametrize("name", ["dev", "oldest", "peers", "pydantic-2.13"])
def test_lock_names_no_place(name: str) -> None:
    """A lock holds no address and no option that names an index."""
    assert "://" not in LOCKS[name]
    assert re.findall(r"^ *-(?!-hash=sha256:).*", LOCKS[name], re.MULTILINE) == []


@pytest.mark.parametrize("name", ["dev", "oldest", "peers", "pydantic-2.13"])
def test_lock_has_hashes(name: str) -> None:
    """Every locked version has at least one hash."""
    entries = re.split(r"^(?=[a-z0-9])", LOCKS[name], flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
