"""Names for stores, given once in code: what an object that crosses processes carries of its store.

A URL may hold a password, so it does not travel; its name does, and who receives the object says
what the name means there, with ``configure`` or with ``SECONDCALL_URL``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from secondcall.checks import check_id
from secondcall.config import Settings
from secondcall.errors import InvalidValue, UnknownName
from secondcall.memory import Memory

__all__ = ["DEFAULT_NAME", "Opening", "configure", "named_memory", "store_name"]

Opening: TypeAlias = str | Callable[[], Memory]
"""A URL, or what makes a memory that is not open yet."""

DEFAULT_NAME = "default"
"""The store of ``SECONDCALL_URL``, unless it was given another meaning."""

_lock = threading.Lock()
_openings: dict[str, Opening] = {}


def configure(names: Mapping[str, Opening | None] | None = None, /, **more: Opening | None) -> None:
    """Give stores names, by which memories that were serialised find them again:
    ``secondcall.configure(main="sqlite:///memory.db")``.

    A value is a URL, or a function that makes a ``Memory`` which is not open yet, for other
    settings than the defaults; ``None`` takes the name away. Names that are no keywords go into a
    mapping. A name that is given again means the new store for what is opened from then on.

    Raises: ``InvalidValue`` naming the store.
    """
    given = {**(names or {}), **more}
    for name, opening in given.items():
        check_id("name", name)
        if opening is not None and not isinstance(opening, str) and not callable(opening):
            raise InvalidValue(
                f"store {name!r} must be a URL or a function that makes a Memory, not "
                f"{type(opening).__name__}"
            )
    with _lock:
        for name, opening in given.items():
            if opening is None:
                _openings.pop(name, None)
            else:
                _openings[name] = opening


def store_name(url: str) -> str:
    """The name of a URL's store: the one that it was configured under, else one that is made of
    the URL without its user, password and query."""
    with _lock:
        known = next((name for name, one in _openings.items() if one == url), None)
    return _made_name(url) if known is None else known


def named_memory(name: str) -> Memory:
    """The memory of a name, not open yet. ``SECONDCALL_URL`` is meant by ``"default"``, and by the
    name that is made of it.

    Raises: ``UnknownName`` naming it, and what ``Memory.open`` raises.
    """
    with _lock:
        opening = _openings.get(name)
    if isinstance(opening, str):
        return Memory.open(opening)
    if opening is not None:
        return opening()
    settings = Settings.from_environment()
    if settings.url is not None and name in (DEFAULT_NAME, _made_name(settings.url)):
        return Memory.open(
            settings.url,
            state=settings.state,
            embedder=settings.embedder,
            model=settings.model,
            retain=settings.retain,
        )
    raise UnknownName(
        f"no store is named {name!r} in this process; call secondcall.configure with the name and "
        f"the store's URL, or set SECONDCALL_URL if it is the store {DEFAULT_NAME!r}"
    )


def _made_name(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    said = f"{parts.scheme}://{host}{parts.path}"
    return f"store-{hashlib.blake2b(said.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"
