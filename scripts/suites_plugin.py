"""A pytest plugin for ``scripts/suites.py``: puts secondcall's classes where LlamaIndex's tests
look for LlamaIndex's own, before the tests are imported.

``SECONDCALL_SUITE`` says which swap to make. Nothing of a test is changed: names in modules and
constructors are, and packages that only start a database, which ours does not need, are stood in
for. Each store is a SQLite file of its own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from uuid import uuid4

import llama_index.core
import pytest

from secondcall.adapters.llama_index.async_chat_store import SecondCallAsyncChatStore
from secondcall.adapters.llama_index.chat_store import SecondCallChatStore
from secondcall.adapters.llama_index.memory import SecondCallMemory

_FOLDER = tempfile.TemporaryDirectory(prefix="secondcall-suites-")


def _url() -> str:
    return f"sqlite:///{(Path(_FOLDER.name) / f'{uuid4().hex}.db').as_posix()}"


def _known(settings: dict[str, Any]) -> dict[str, Any]:
    """Of what a test names only what ours has; a store that was not dumped gets a file."""
    names = ("user_id", "tenant_id", "handle")
    known = {name: settings[name] for name in names if name in settings}
    known.setdefault("user_id", "suite")
    if known.get("handle") is None:
        known["url"] = _url()
    return known


class ChatStore(SecondCallChatStore):
    """Ours, made as any of the others is."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(**_known(settings))

    @classmethod
    def from_uri(cls, *args: Any, **settings: Any) -> ChatStore:
        """A store of its own, whatever database is named."""
        return cls()

    from_params = from_uri


class AsyncChatStore(SecondCallAsyncChatStore):
    """Ours, made as any of the others is."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(**_known(settings))

    @property
    def active(self) -> Any:
        """The lists by key, as the tests' own store has them."""
        return _Lists(self, "active")

    @property
    def archived(self) -> Any:
        """The archived lists by key."""
        return _Lists(self, "archived")


class _Lists:
    def __init__(self, store: AsyncChatStore, part: str) -> None:
        self._store, self._part = store, part

    def __getitem__(self, key: str) -> Any:
        from secondcall.adapters.llama_index.chat_lists import ChatLists

        bound = self._store._bound
        return bound.run_blocking(lambda user: ChatLists(bound, user).messages(key, self._part))


class Memory(SecondCallMemory):
    """Ours, made as LlamaIndex's is: without saying whose it is."""

    @classmethod
    def from_defaults(cls, chat_history: Any = None, **settings: Any) -> Memory:
        """A conversation of its own, with the settings that ours has too."""
        known = ("llm", "token_limit", "window")
        taken = {name: settings[name] for name in known if settings.get(name) is not None}
        memory = super().from_defaults(user_id="suite", session_id=uuid4().hex, url=_url(), **taken)
        if chat_history:
            memory.set(chat_history)
        return memory


def _module(name: str, **content: Any) -> None:
    """A module of this name, with packages above it that find their other parts as before."""
    made = types.ModuleType(name)
    made.__dict__.update(content)
    sys.modules[name] = made


def _stand_in(*names: str) -> None:
    for name in names:
        sys.modules[name] = MagicMock(name=name)


def _async_store() -> None:
    import llama_index.core.memory.memory as memory_module
    import llama_index.core.storage.chat_store.sql as sql

    sql.SQLAlchemyChatStore = AsyncChatStore
    memory_module.SQLAlchemyChatStore = AsyncChatStore
    made = memory_module.Memory.__init__

    def init(self: Any, **settings: Any) -> None:
        settings.setdefault("sql_store", AsyncChatStore())
        made(self, **settings)

    memory_module.Memory.__init__ = init


def _chat_store() -> None:
    import llama_index.core.memory as memory
    import llama_index.core.memory.chat_memory_buffer as buffer
    import llama_index.core.memory.chat_summary_memory_buffer as summary
    import llama_index.core.storage.chat_store as stores
    import llama_index.core.storage.chat_store.loading as loading
    import llama_index.core.storage.chat_store.simple_chat_store as simple

    for module in (memory, buffer, summary, stores, loading, simple):
        if hasattr(module, "SimpleChatStore"):
            module.SimpleChatStore = ChatStore
    loading.RECOGNIZED_CHAT_STORES["SecondCallChatStore"] = ChatStore
    for kind in (memory.ChatMemoryBuffer, memory.ChatSummaryMemoryBuffer):
        _with_store(kind)


def _with_store(kind: Any) -> None:
    made = kind.__init__

    def init(self: Any, *args: Any, **settings: Any) -> None:
        if not args:
            settings.setdefault("chat_store", ChatStore())
        made(self, *args, **settings)

    kind.__init__ = init


def _integration(name: str, kind: str, *packages: str) -> None:
    _stand_in("docker", "docker.models", "docker.models.containers", *packages)
    place = f"llama_index.storage.chat_store.{name}"
    _module("llama_index.storage")
    _module("llama_index.storage.chat_store")
    _module(place, **{kind: ChatStore, "get_data_model": MagicMock()})
    _module(f"{place}.base", **{kind: ChatStore, "get_data_model": MagicMock()})


def _memory() -> None:
    import llama_index.core.agent.workflow.base_agent as single
    import llama_index.core.agent.workflow.multi_agent_workflow as multi
    import llama_index.core.chat_engine.condense_plus_context as condense_plus
    import llama_index.core.chat_engine.condense_question as condense
    import llama_index.core.chat_engine.context as context
    import llama_index.core.chat_engine.multi_modal_condense_plus_context as modal_plus
    import llama_index.core.chat_engine.multi_modal_context as modal
    import llama_index.core.chat_engine.simple as simple
    import llama_index.core.memory as memory
    import llama_index.core.memory.chat_memory_buffer as buffer

    engines = (condense_plus, condense, context, modal_plus, modal, simple)
    for module in (memory, buffer, single, multi, *engines):
        for name in ("ChatMemoryBuffer", "Memory"):
            if hasattr(module, name):
                setattr(module, name, Memory)


_SWAPS = {
    "async-chat-store": _async_store,
    "chat-store": _chat_store,
    "memory": _memory,
    "sqlite": lambda: _integration("sqlite", "SQLiteChatStore"),
    "postgres": lambda: _integration("postgres", "PostgresChatStore", "asyncpg", "psycopg"),
    "mongo": lambda: _integration("mongo", "MongoChatStore", "pymongo"),
    "redis": lambda: _integration("redis", "RedisChatStore"),
    "dynamodb": lambda: _integration("dynamodb", "DynamoDBChatStore", "moto", "boto3"),
    "yugabytedb": lambda: _integration("yugabytedb", "YugabyteDBChatStore", "psycopg2"),
    "gel": lambda: _integration("gel", "GelChatStore"),
    "none": lambda: None,
}
"""By the name that ``suites.toml`` gives; ``none`` leaves LlamaIndex's own, to tell whose a failure
is."""


def _fixtures_with_marks() -> None:
    """Some fixtures bear marks, which pytest 9 refuses: they are taken off."""
    fixture: Any = pytest.fixture

    def lenient(function: Any = None, **settings: Any) -> Any:
        if function is None:
            return lambda given: lenient(given, **settings)
        function.__dict__.pop("pytestmark", None)
        return fixture(function, **settings) if not settings else fixture(**settings)(function)

    pytest.fixture = lenient


def _from_the_clone() -> None:
    """Modules beside the tests can be imported, but no LlamaIndex of the clone's: the installed one
    is loaded, and what it ships for counting tokens offline is used."""
    sys.path.append(os.environ["SECONDCALL_SUITE_TESTS"])
    shipped = Path(str(llama_index.core.__file__)).parent / "_static" / "tiktoken_cache"
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(shipped))


_from_the_clone()
_fixtures_with_marks()
# The suites' conftest files are imported before any hook is called, so the swap is made here. They
# name a plugin for coroutines; anyio's runs them.
_module("pytest_asyncio", fixture=pytest.fixture)
os.environ.pop("CI", None)
if os.environ["SECONDCALL_SUITE"] == "gel":  # its tests start a server at import
    subprocess.run = MagicMock()
_SWAPS[os.environ["SECONDCALL_SUITE"]]()


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker of that plugin."""
    config.addinivalue_line("markers", "asyncio: a test that is a coroutine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where a test module has a store of its own, as an example of one, ours takes its place."""
    if os.environ["SECONDCALL_SUITE"] == "async-chat-store":
        for item in items:
            module: Any = getattr(item, "module", None)
            if hasattr(module, "InMemoryChatStore"):
                module.InMemoryChatStore = AsyncChatStore


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases in containers are waited for; there are none."""
    if os.environ["SECONDCALL_SUITE"] in ("postgres", "mongo", "yugabytedb"):
        monkeypatch.setattr("time.sleep", lambda seconds: None)


@pytest.fixture
def anyio_backend() -> str:
    """Coroutines run on asyncio."""
    return "asyncio"


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Close every store, then let go of their folder."""
    from secondcall.adapters.llama_index.places import close_places

    close_places()
    _FOLDER.cleanup()
    asyncio.set_event_loop(None)
