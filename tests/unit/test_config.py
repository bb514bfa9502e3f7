"""Settings come from the environment, and only when they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from secondcall.config import ENVIRONMENT, Settings


def test_defaults() -> None:
    """An empty environment gives the defaults, and empty variables count as not set."""
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment(dict.fromkeys(ENVIRONMENT, "")) == Settings()


def test_every_variable_is_read() -> None:
    """Each variable that is described changes the settings."""
    for name in ENVIRONMENT:
        assert Settings.from_environment({name: "x"}) != Settings(), name


def test_default_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL the store is a file in the user's data folder, which is made."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data #1"))
    monkeypatch.setenv("HOME", str(tmp_path))
    url = Settings().store_url()
    assert url.startswith("sqlite:////")
    assert url.endswith("/secondcall/memory.db")
    assert "#" not in url
    assert Settings(url="memory://").store_url() == "memory://"


def test_the_states_address_is_read_and_not_shown() -> None:
    """``SECONDCALL_STATE`` may hold a password, so a printed ``Settings`` does not show it."""
    settings = Settings.from_environment({"SECONDCALL_STATE": "postgresql://u:secret@h/d"})
    assert settings.state == "postgresql://u:secret@h/d"
    assert "secret" not in repr(settings)
