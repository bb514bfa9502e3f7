"""What every command that opens a store takes: ``--url``, ``--tenant``, ``--json``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from secondcall.config import Settings
from secondcall.errors import UnknownName

if TYPE_CHECKING:
    from secondcall.abc import Embedder, LanguageModel, Store
    from secondcall.memory import Memory, UserMemory

__all__ = ["Place", "json_option", "known_user", "settings", "store_options", "user_option"]

user_option = click.option("--user", "user_id", required=True, help="The user's id.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The store that a command works on, not opened yet."""

    url: str
    tenant_id: str
    embedder: str
    retain: str | None
    model: str | None = None
    state: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)

    def open(self, store: Store | None = None) -> Memory:
        """Its memory, to be used with ``async with``; over ``store`` if one is given."""
        from secondcall.memory import Memory  # numpy and apsw load only where a store is opened

        return Memory.open(
            store or self.url,
            tenant_id=self.tenant_id,
            embedder=self._embedder(),
            model=self._model(),
            state=self.state,
            retain=self.retain,
        )

    def _embedder(self) -> Embedder:
        from secondcall.registry import embedder_from_name  # numpy loads only where one is used

        return embedder_from_name(self.embedder, api_key=self.api_key)

    def _model(self) -> LanguageModel | None:
        if self.model is None:
            return None
        from secondcall.registry import model_from_name  # a web client loads only where one is used

        return model_from_name(self.model, api_key=self.api_key)


def settings() -> Settings:
    """The settings of the running command, read from the environment once."""
    return click.get_current_context().ensure_object(_Held).settings


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the store; it is called with ``place`` instead of them."""

    @click.option("--url", help="The store; default SECONDCALL_URL, or a file of your own.")
    @click.option("--tenant", help="The tenant; default SECONDCALL_TENANT, or 'default'.")
    @json_option
    @functools.wraps(command)
    def wrapped(*args: Any, url: str | None, tenant: str | None, **kwargs: Any) -> None:
        known = settings()
        place = Place(
            url=url or known.store_url(),
            tenant_id=tenant or known.tenant_id,
            embedder=known.embedder,
            retain=known.retain,
            model=known.model,
            state=known.state,
            api_key=known.api_key,
        )
        command(*args, place=place, **kwargs)

    return wrapped


async def known_user(memory: Memory, user_id: str) -> UserMemory:
    """The memory of a user who is known. Raises: ``UnknownName`` for one who is not."""
    user = memory.user(user_id)
    if not await user.known():
        raise UnknownName(
            f"nothing is known of user {user_id!r} here; 'secondcall show' lists who is known"
        )
    return user


class _Held:
    def __init__(self) -> None:
        self.settings = Settings.from_environment()
