"""What a question may ask for: every argument of ``recall`` checked, an error naming the field."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args
from zoneinfo import ZoneInfo

from secondcall.checks import check_deadline, check_id, check_limit, check_metadata, from_us, to_us
from secondcall.errors import InvalidValue
from secondcall.memory.asking import Question, clamp_query
from secondcall.memory.screening import Screen
from secondcall.recall.confidence import DEFAULT_CONFIDENCE
from secondcall.types import FactKind, ItemKey, ItemKind, Role

if TYPE_CHECKING:
    from secondcall.recall.index import Neighbours
    from secondcall.types import Metadata

__all__ = ["question_of"]

_MOST_NEIGHBOURS = 10
_KINDS = frozenset((*get_args(ItemKind), *get_args(FactKind)))
_ROLES = frozenset(get_args(Role))

Name = TypeVar("Name", bound=str)


def question_of(
    query: str,
    *,
    now: datetime,
    limit: int,
    at: datetime | None,
    by: Literal["message", "turn", "session"],
    where: Metadata | None,
    kinds: Collection[ItemKind | FactKind] | None,
    roles: Collection[Role] | None,
    sessions: Collection[str] | None,
    since: datetime | None,
    until: datetime | None,
    apart_from: tuple[str, datetime] | None = None,
    told: Collection[ItemKey | str] = (),
    stale: Literal["mark", "drop"],
    prefer_current: bool,
    max_tokens: int | None,
    deadline_seconds: float | None,
    time: Literal["soft", "hard"] = "soft",
    time_zone: str | None = None,
    screen: Screen | None = None,
    min_confidence: float = DEFAULT_CONFIDENCE,
    neighbours: Neighbours = 0,
    small_talk: bool = False,
    explain: bool = False,
) -> Question:
    """The checked question. Raises: ``InvalidValue``."""
    items, facts = _told(told)
    return Question(
        query=clamp_query(query),
        limit=check_limit("limit", limit, maximum=10_000),
        at=_where(now if at is None else from_us(to_us("at", at)), time_zone),
        by=_one_of("by", by, ("message", "turn", "session")),
        where=None if where is None else check_metadata("where", where),
        kinds=_chosen("kinds", kinds, _KINDS),
        roles=_chosen("roles", roles, _ROLES),
        sessions=_collected("sessions", sessions),
        since=None if since is None else from_us(to_us("since", since)),
        until=None if until is None else from_us(to_us("until", until)),
        apart_from=_conversation("apart_from", apart_from),
        stale=_one_of("stale", stale, ("mark", "drop")),
        prefer_current=bool(prefer_current),
        max_tokens=None if max_tokens is None else check_limit("max_tokens", max_tokens),
        deadline_seconds=check_deadline(deadline_seconds),
        time=_one_of("time", time, ("soft", "hard")),
        screen=_callable(screen),
        min_confidence=_share("min_confidence", min_confidence),
        neighbours=_count("neighbours", neighbours),
        told=items,
        told_facts=facts,
        small_talk=bool(small_talk),
        explain=bool(explain),
    )


def _where(at: datetime, time_zone: str | None) -> datetime:
    """The moment of asking on the clock of the user. Raises: ``InvalidValue``."""
    if time_zone is None:
        return at
    try:
        return at.astimezone(ZoneInfo(time_zone))
    except (KeyError, ValueError, TypeError, OSError, OverflowError):
        raise InvalidValue(
            f"time_zone is {str(time_zone)[:64]!r}, which is not known here; give a name such as "
            "'Europe/Berlin'"
        ) from None


def _conversation(field: str, given: tuple[str, datetime] | None) -> tuple[str, datetime] | None:
    if given is None:
        return None
    if not isinstance(given, tuple) or len(given) != 2:  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"{field} must be a pair: a session id and the time since when")
    session_id, since = given
    return check_id(f"{field}[0]", session_id), from_us(to_us(f"{field}[1]", since))


def _callable(screen: Screen | None) -> Screen | None:
    if screen is not None and not callable(screen):
        raise InvalidValue(f"screen must be a function, not {type(screen).__name__}")
    return screen


def _share(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidValue(f"{field} must be a number from 0 to 1")
    return float(value)


def _count(field: str, value: object) -> Neighbours:
    if value == "turn":
        return "turn"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_NEIGHBOURS:
        raise InvalidValue(
            f"{field} must be a whole number from 0 to {_MOST_NEIGHBOURS}, or 'turn'"
        )
    return value


def _told(given: Collection[ItemKey | str]) -> tuple[frozenset[ItemKey], frozenset[str]]:
    """Items and facts apart."""
    if isinstance(given, str) or not isinstance(given, Collection):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(
            f"told must be a list of item keys and fact ids, not {type(given).__name__}"
        )
    items = frozenset(one for one in given if isinstance(one, ItemKey))
    facts = frozenset(one for one in given if isinstance(one, str))
    if len(items) + len(facts) < len(set(given)):
        raise InvalidValue("told must hold the keys of items (ItemKey) and the ids of facts (str)")
    return items, facts


def _one_of(field: str, value: Any, known: tuple[str, ...]) -> Any:
    if value not in known:
        names = ", ".join(map(repr, known[:-1]))
        raise InvalidValue(f"{field} is {value!r}, expected {names} or {known[-1]!r}")
    return value


def _collected(field: str, names: Collection[Name] | None) -> Collection[Name] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Collection):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
        raise InvalidValue(f"{field} must be a list of names, not {type(names).__name__}")
    for name in names:
        check_id(field, name)
    return names


def _chosen(
    field: str, names: Collection[Name] | None, known: frozenset[str]
) -> Collection[Name] | None:
    for name in _collected(field, names) or ():
        if name not in known:
            raise InvalidValue(f"{field} has {name!r}, expected {', '.join(sorted(known))}")
    return names
