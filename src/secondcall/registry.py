"""From a URL to its store and from ``"provider:model"`` to its embedder or language model.

Third parties register through the entry point groups ``secondcall.stores`` (name: URL scheme,
object: ``(url) -> Store``), ``secondcall.embedders`` (name: provider, object:
``(model) -> Embedder``), ``secondcall.models`` (``(model) -> LanguageModel``) and
``secondcall.states`` (name: URL scheme, object: ``(url) -> StateStore``).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from secondcall.errors import UnknownName

if TYPE_CHECKING:
    from secondcall.abc import Embedder, LanguageModel, Store, TokenCounter
    from secondcall.abc_state import StateStore

__all__ = [
    "default_counter",
    "embedder_from_name",
    "model_from_name",
    "state_store_from_url",
    "store_from_url",
]

_STORES = {
    "memory": ("secondcall.stores.memory", "MemoryStore"),
    "sqlite": ("secondcall.stores.sqlite", "SqliteStore"),
}
_STATES = {
    "dynamodb": ("secondcall.stores.dynamodb", "state_store"),
    "memory": ("secondcall.stores.memory", "state_store"),
    "postgresql": ("secondcall.stores.postgresql", "state_store"),
    "redis": ("secondcall.stores.redis", "state_store"),
    "redis-cluster": ("secondcall.stores.redis", "state_store"),
    "rediss": ("secondcall.stores.redis", "state_store"),
    "sqlite": ("secondcall.stores.sqlite", "state_store"),
    "unix": ("secondcall.stores.redis", "state_store"),
}
_EMBEDDERS = {
    "static": ("secondcall.embedders.static", "StaticEmbedder"),
    "maxsim": ("secondcall.embedders.maxsim", "MaxSimEmbedder"),
    "onnx": ("secondcall.embedders.onnx", "OnnxEmbedder"),
    "sentence-transformers": (
        "secondcall.embedders.sentence_transformers",
        "SentenceTransformersEmbedder",
    ),
    "openai": ("secondcall.embedders.openai", "OpenAIEmbedder"),
}
_MODELS = {"openai": ("secondcall.models.openai", "OpenAIModel")}


def default_counter() -> TokenCounter:
    """The token counter that needs nothing: the shipped vocabulary's."""
    from secondcall.embedders.counting import (
        VocabularyCounter,  # the vocabulary is read at first use
    )

    return VocabularyCounter()


def store_from_url(url: str) -> Store:
    """The store that a URL names, not opened yet: ``sqlite:///file.db``, ``memory://``.

    Raises: ``UnknownName`` for a scheme that nothing answers to; the URL itself is not shown, since
    it may hold a password.
    """
    scheme = urlsplit(url).scheme
    factory = _find("secondcall.stores", scheme, _STORES)
    if factory is None:
        known = ", ".join(f"{name}://" for name in sorted(_STORES))
        if scheme in _STATES:
            raise UnknownName(
                f"{scheme}:// holds states only yet; keep the records in one of {known} and name "
                "it with state="
            )
        raise UnknownName(f"no store answers to the URL scheme {scheme!r}; known are {known}")
    return cast("Store", factory(url))


def state_store_from_url(url: str) -> StateStore:
    """The state store that a URL names, not opened yet, to stand beside a store of records.

    Raises: ``UnknownName`` for a scheme that nothing answers to; the URL itself is not shown, since
    it may hold a password.
    """
    scheme = urlsplit(url).scheme
    factory = _find("secondcall.states", scheme, _STATES)
    if factory is None:
        known = ", ".join(f"{name}://" for name in sorted(_STATES))
        raise UnknownName(f"no state store answers to the URL scheme {scheme!r}; known are {known}")
    return cast("StateStore", factory(url))


def embedder_from_name(name: str, *, api_key: str | None = None) -> Embedder:
    """The embedder named ``"provider"`` or ``"provider:model"``, e.g. ``"static"``.

    ``api_key`` is handed to the provider ``openai`` only.

    Raises: ``UnknownName``, and ``MissingExtra`` when its package is not installed.
    """
    provider, _, model = name.partition(":")
    factory = _find("secondcall.embedders", provider, _EMBEDDERS)
    if factory is None:
        known = ", ".join(sorted(_EMBEDDERS))
        raise UnknownName(f"no embedder is named {provider!r}; known are {known}")
    return cast("Embedder", _made(factory, provider, model, api_key))


def model_from_name(name: str, *, api_key: str | None = None) -> LanguageModel:
    """The language model named ``"provider:model"``, e.g. ``"openai:qwen3@http://host:8000/v1"``.

    ``api_key`` is handed to the provider ``openai`` only.

    Raises: ``UnknownName``, and ``MissingExtra`` when its package is not installed.
    """
    provider, _, model = name.partition(":")
    factory = _find("secondcall.models", provider, _MODELS)
    if factory is None:
        known = ", ".join(sorted(_MODELS))
        raise UnknownName(f"no language model is named {provider!r}; known are {known}")
    return cast("LanguageModel", _made(factory, provider, model, api_key))


def _made(factory: Callable[..., object], provider: str, model: str, api_key: str | None) -> object:
    options = {"api_key": api_key} if provider == "openai" and api_key is not None else {}
    return factory(model, **options) if model else factory(**options)


def _find(
    group: str, name: str, builtin: dict[str, tuple[str, str]]
) -> Callable[..., object] | None:
    if name in builtin:
        module, attribute = builtin[name]
        return cast("Callable[..., object]", getattr(importlib.import_module(module), attribute))
    from importlib.metadata import entry_points  # only strangers need it, and it costs 10 ms

    for point in entry_points(group=group, name=name):
        return cast("Callable[..., object]", point.load())
    return None
