"""Settings: the one reader of the environment. Importing this reads nothing.

An argument beats the environment, the environment beats the default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import platformdirs

__all__ = ["ENVIRONMENT", "Settings", "state_folder"]

_EVAL_DATA = Path("../shared/data")

ENVIRONMENT: Mapping[str, str] = {
    "SECONDCALL_URL": "The store, such as sqlite:///memory.db; by default a file in the user's "
    "data folder.",
    "SECONDCALL_STATE": "Where states are kept, if not with the records, such as "
    "postgresql://host/name.",
    "SECONDCALL_TENANT": "The tenant whose data is meant; 'default' by default.",
    "SECONDCALL_EMBEDDER": "The embedder, such as 'static' or 'openai:model'; 'static' by default.",
    "SECONDCALL_MODEL": "The language model, such as 'openai:model@http://host/v1', that writes "
    "summaries and finds facts in the background; none by default.",
    "OPENAI_API_KEY": "The key for SECONDCALL_MODEL and SECONDCALL_EMBEDDER, where their provider "
    "is 'openai'.",
    "SECONDCALL_RETAIN": "How long things are kept, such as 90d; for ever by default.",
    "SECONDCALL_EVAL_DATA": "The folder with the public evaluation data; '../shared/data' by "
    "default.",
}
"""Every variable that is read, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says. ``url`` is ``None`` where it does not name a store, ``model``
    where none is to be used; ``api_key`` is the model's and the embedder's, and is not shown."""

    url: str | None = None
    state: str | None = field(default=None, repr=False)
    tenant_id: str = "default"
    embedder: str = "static"
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    retain: str | None = None
    eval_data: Path = _EVAL_DATA

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """The settings of ``environ`` (the process's by default). Empty counts as not set."""
        values = os.environ if environ is None else environ
        return cls(
            url=values.get("SECONDCALL_URL") or None,
            state=values.get("SECONDCALL_STATE") or None,
            tenant_id=values.get("SECONDCALL_TENANT") or "default",
            embedder=values.get("SECONDCALL_EMBEDDER") or "static",
            model=values.get("SECONDCALL_MODEL") or None,
            api_key=values.get("OPENAI_API_KEY") or None,
            retain=values.get("SECONDCALL_RETAIN") or None,
            eval_data=Path(values.get("SECONDCALL_EVAL_DATA") or _EVAL_DATA),
        )

    def store_url(self) -> str:
        """The URL to open: the one that was set, or a file in the user's data folder.

        The folder is made if it is not there. Raises: ``OSError`` if it cannot be made.
        """
        if self.url is not None:
            return self.url
        folder = platformdirs.user_data_path("secondcall", appauthor=False)
        folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{quote((folder / 'memory.db').as_posix())}"


def state_folder() -> Path:
    """The user's folder for what a program keeps from one run to the next; not made here."""
    return platformdirs.user_state_path("secondcall", appauthor=False)
