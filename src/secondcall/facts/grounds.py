"""Checks what facts rest on before they are told, and lists where the grounds are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from secondcall.abc import ANY_VERSION, DocumentWrite
from secondcall.errors import InvalidValue, UnknownName
from secondcall.facts.chain import key_of
from secondcall.facts.read import GROUND, all_facts
from secondcall.facts.rests import in_a_circle
from secondcall.facts.write import Also
from secondcall.types import Fact

if TYPE_CHECKING:
    from secondcall.abc import Scope, Store

__all__ = ["check_grounds", "grounds_of", "listed", "lock_of"]

_LOCK = "lock"


async def lock_of(store: Store, scope: Scope) -> DocumentWrite:
    """The lock that whoever tells facts which rest on others takes, so that two who tell at once
    cannot close a circle."""
    found = await store.document(scope, "fact_rests", _LOCK)
    return DocumentWrite(
        kind="fact_rests",
        key=_LOCK,
        body=b"{}",
        expected_version=None if found is None else found.version,
    )


def check_grounds(facts: Collection[Fact], fact: Fact) -> None:
    """Raises: ``UnknownName`` for an id that is no fact of this user, ``InvalidValue`` for a fact
    that would rest on itself, over however many others."""
    known = {each.id: each for each in facts}
    for index, name in enumerate(fact.rests_on):
        if name not in known:
            raise UnknownName(f"rests_on[{index}] is {name!r}, which is no fact of this user")
    closing = in_a_circle(known, fact)
    if closing is not None:
        raise InvalidValue(
            f"rests_on[{list(fact.rests_on).index(closing)}] is {closing!r}, which itself rests on "
            f"or says what predicate {fact.predicate!r} says; a fact cannot rest on itself"
        )


async def grounds_of(
    store: Store, scope: Scope, facts: Sequence[Fact]
) -> Callable[[Sequence[Fact]], Also]:
    """Check what facts that come back rest on; for some of them, what is written with them.

    A ground that is neither held nor among them may still come.

    Raises: ``InvalidValue`` for a circle.
    """
    known = {fact.id: fact for fact in (*await all_facts(store, [scope]), *facts)}
    for fact in facts:
        if fact.rests_on and in_a_circle(known, fact) is not None:
            raise InvalidValue(f"fact {fact.id!r} rests on itself, over the facts in its rests_on")

    def of(told: Sequence[Fact]) -> Also:
        async def writes() -> Sequence[DocumentWrite]:
            names = [name for fact in told for name in fact.rests_on]
            return [await lock_of(store, scope), *listed(known, names)]

        return writes

    return of


def listed(known: dict[str, Fact], names: Collection[str]) -> list[DocumentWrite]:
    """The documents that say in which chains the grounds are."""
    return [
        DocumentWrite(
            kind=GROUND,
            key=name,
            body=key_of(known[name]).encode(),
            expected_version=ANY_VERSION,
        )
        for name in dict.fromkeys(names)
        if name in known
    ]
