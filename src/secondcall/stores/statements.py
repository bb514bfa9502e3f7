"""Named queries and numbered migrations, kept as ``.sql`` files in ``sql/``, one folder per
database.

A query begins with ``-- name: what_it_does`` and ends where the next one begins. A migration is
called ``0001_subject.sql``; its number is the schema version that it leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Migration", "load_migrations", "load_queries"]

_MARK = "-- name: "


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    sql: str


def load_queries(database: str) -> Mapping[str, str]:
    """The named queries of ``sql/<database>/queries.sql``."""
    text = files("secondcall.stores.sql").joinpath(database, "queries.sql").read_text("utf-8")
    queries: dict[str, str] = {}
    for block in text.split(_MARK)[1:]:
        name, _, sql = block.partition("\n")
        queries[name.strip()] = sql.strip().rstrip(";")
    return queries


def load_migrations(database: str) -> list[Migration]:
    """The migrations of ``sql/<database>/``, in the order of their numbers."""
    found = [
        Migration(int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in files("secondcall.stores.sql").joinpath(database).iterdir()
        if file.name[:4].isdigit() and file.name.endswith(".sql")
    ]
    return sorted(found)
