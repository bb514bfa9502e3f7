"""The self-check of a ``SqliteStore``: SQLite's own, then what its tables say of each other."""

from __future__ import annotations

from typing import cast

import apsw

from secondcall.stores.sqlite_file import row_of, rows_of
from secondcall.stores.statements import load_queries

__all__ = ["find_problems"]

_SQL = load_queries("sqlite")


def find_problems(connection: apsw.Connection) -> list[str]:
    """What is wrong, one line each. Raises: apsw errors."""
    checked = [str(row[0]) for row in rows_of(connection, "PRAGMA quick_check")]
    found = [f"SQLite: {line}" for line in checked if line != "ok"]
    found += [
        f"partition {number}: its newest change is {change}, but {count} are stored, from {first} "
        f"to {last}"
        for number, change, count, first, last in rows_of(connection, _SQL["gaps"])
    ]
    found += [
        f"partition {number}: the entry of change {change} is not whole"
        for number, change in rows_of(connection, _SQL["wrong_entries"])
    ]
    found += [
        f"partition {number}: the outline of session {session} is not what it holds"
        for number, session in rows_of(connection, _SQL["wrong_outlines"])
    ]
    found += [
        f"partition {number}: state {state} is not as its history says"
        for number, state in rows_of(connection, _SQL["wrong_states"])
    ]
    orphans = cast("tuple[int]", row_of(connection, _SQL["orphans"]))[0]
    if orphans:
        found.append(f"{orphans} rows belong to no partition")
    return found
